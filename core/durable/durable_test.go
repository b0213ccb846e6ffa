package durable

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestReplace(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "state")
	for _, text := range []string{"one", "", "three"} {
		if err := Replace(path, []byte(text)); err != nil {
			t.Fatal(err)
		}
		got, err := Read(path, 5)
		if err != nil || string(got) != text {
			t.Fatalf("read %q, %v: want %q", got, err, text)
		}
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("mode %v, %v: want 0600", info.Mode(), err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Fatalf("left behind: %v", left)
	}
}

func TestReplaceFailsWhole(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "state")
	if err := os.Mkdir(path, 0o700); err != nil { // a rename onto it fails
		t.Fatal(err)
	}
	if err := Replace(path, []byte("x")); err == nil {
		t.Fatal("replaced a directory")
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Fatalf("left behind: %v", left)
	}
	if err := Replace(filepath.Join(dir, "no", "such"), nil); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("error %v, want that the directory is missing", err)
	}
}

func TestReadRefusesLarge(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	if err := Replace(path, make([]byte, 6)); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(path, 5); err == nil {
		t.Fatal("read more than the limit")
	}
	if _, err := Read(path+"x", 5); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("error %v, want that the file is missing", err)
	}
}

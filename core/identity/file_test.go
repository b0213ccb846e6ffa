package identity

import (
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// The secrets of a file after each step of a rotation.
func TestRotationOfAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	if err := CreateFile(path, rand.Reader); err != nil {
		t.Fatal(err)
	}
	if err := CreateFile(path, rand.Reader); err == nil || !strings.Contains(err.Error(), "is there already") {
		t.Errorf("a file was overwritten: %v", err)
	}
	lines := func() []string {
		t.Helper()
		if _, warnings, err := ReadFile(path); err != nil || len(warnings) != 0 {
			t.Fatalf("the file is not usable: %v, %v", warnings, err)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	}
	step := func(s Step, want int) []string {
		t.Helper()
		n, err := ChangeFile(path, s, rand.Reader)
		if err != nil || n != want || len(lines()) != want {
			t.Fatalf("step %d: %d secrets, %v; %d are in the file, want %d", s, n, err, len(lines()), want)
		}
		return lines()
	}
	before := lines()[0]
	both := step(Add, 2)
	if both[0] != before || both[1] == before {
		t.Error("the new secret is not the last")
	}
	if got := step(Promote, 2); got[0] != both[1] || got[1] != before {
		t.Error("the new secret is not the first")
	}
	if got := step(Drop, 1); got[0] != both[1] {
		t.Error("the wrong secret was dropped")
	}
	step(Drop, 1) // nothing to do
	if _, err := ChangeFile(path, Promote, rand.Reader); !errors.Is(err, ErrSecret) || !strings.Contains(err.Error(), "add one first") {
		t.Errorf("%v", err)
	}
	for n := 2; n <= maxSecrets; n++ {
		step(Add, n)
	}
	if _, err := ChangeFile(path, Add, rand.Reader); !errors.Is(err, ErrSecret) || len(lines()) != maxSecrets {
		t.Errorf("one too many: %v", err)
	}
}

// A name that leads to the file goes on to do so, and the file stays its owner's.
func TestChangedFileKeepsNameAndOwner(t *testing.T) {
	dir := t.TempDir()
	path, link := filepath.Join(dir, "secret"), filepath.Join(dir, "link")
	if err := errors.Join(CreateFile(path, rand.Reader), os.Symlink(path, link)); err != nil {
		t.Fatal(err)
	}
	owner := os.Getuid()
	if owner == 0 {
		owner = 65534
	}
	if err := os.Chown(path, owner, -1); err != nil {
		t.Fatal(err)
	}
	if n, err := ChangeFile(link, Add, rand.Reader); err != nil || n != 2 {
		t.Fatal(n, err)
	}
	if to, err := os.Readlink(link); err != nil || to != path {
		t.Errorf("the link leads to %q: %v", to, err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Sys().(*syscall.Stat_t).Uid; int(got) != owner || info.Mode().Perm() != 0o600 {
		t.Errorf("it belongs to %d with mode %v", got, info.Mode())
	}
}

// What is wrong with a file is said before anything is changed.
func TestBadFileIsNotChanged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte("short\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, s := range []Step{Add, Promote, Drop} {
		if _, err := ChangeFile(path, s, rand.Reader); !errors.Is(err, ErrSecret) {
			t.Errorf("step %d: %v", s, err)
		}
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "short\n" {
		t.Errorf("%q, %v", text, err)
	}
	if _, err := ChangeFile(path+"x", Add, rand.Reader); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no such file: %v", err)
	}
}

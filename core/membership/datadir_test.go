package membership

import (
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

func open(t *testing.T, path string) *dataDir {
	t.Helper()
	d, err := openDataDir(path, rand.Reader)
	if err != nil {
		t.Fatalf("open %s: %v", path, err)
	}
	t.Cleanup(func() { _ = d.close() })
	return d
}

func TestIdentityOutlivesRestartsAndTheBootCounterRises(t *testing.T) {
	path := filepath.Join(t.TempDir(), "deep", "dir")
	d := open(t, path)
	id := d.id
	for want := uint64(1); want <= 3; want++ {
		epoch, err := d.boot()
		if err != nil || epoch != want {
			t.Fatalf("boot %d: epoch %d, error %v", want, epoch, err)
		}
		if err := d.close(); err != nil {
			t.Fatal(err)
		}
		if d = open(t, path); d.id != id || d.epoch != want {
			t.Fatalf("read back id %v epoch %d, want %v %d", d.id, d.epoch, id, want)
		}
	}
	if _, err := os.Stat(filepath.Join(path, "node.json.tmp")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the temporary file is left behind: %v", err)
	}
	info, err := os.Stat(filepath.Join(path, nodeFile))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("node.json: %v %v, want mode 0600", info, err)
	}
}

func TestWithoutDirectoryEachStartIsANewNode(t *testing.T) {
	a, b := open(t, ""), open(t, "")
	if a.id == b.id || a.id == 0 {
		t.Errorf("ids %v and %v", a.id, b.id)
	}
	if epoch, err := a.boot(); epoch != 1 || err != nil {
		t.Errorf("first epoch %d, %v", epoch, err)
	}
}

func TestDirectoryInUseNamesTheHolder(t *testing.T) {
	path := t.TempDir()
	open(t, path)
	_, err := openDataDir(path, rand.Reader)
	if !errors.Is(err, ErrDataDir) {
		t.Fatalf("second open: %v, want ErrDataDir", err)
	}
	for _, part := range []string{path, "in use by pid " + strconv.Itoa(os.Getpid()), "node.data_dir"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
}

func TestDamagedNodeFileIsNeverReplaced(t *testing.T) {
	for name, text := range map[string]string{
		"empty":        "",
		"cut":          `{"id":"00000000000000`,
		"no id":        `{"epoch":3}`,
		"bad id":       `{"id":"zz","epoch":3}`,
		"no epoch":     `{"id":"00000000000000aa"}`,
		"epoch at end": `{"id":"00000000000000aa","epoch":281474976710655}`,
		"negative":     `{"id":"00000000000000aa","epoch":-1}`,
		"huge":         strings.Repeat(" ", nodeFileSize+1),
	} {
		t.Run(name, func(t *testing.T) {
			path := t.TempDir()
			file := filepath.Join(path, nodeFile)
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := openDataDir(path, rand.Reader)
			if !errors.Is(err, ErrDataDir) || !strings.Contains(err.Error(), file) || !strings.Contains(err.Error(), "remove it to join as a new node") {
				t.Errorf("got %v, want ErrDataDir naming %s and the remedy", err, file)
			}
			if left, _ := os.ReadFile(file); string(left) != text {
				t.Error("the damaged file was changed")
			}
			// The failed start gave the directory back.
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
			open(t, path)
		})
	}
}

func TestUnusableDirectoryIsOneClearError(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	unreadable := t.TempDir()
	if err := os.Mkdir(filepath.Join(unreadable, nodeFile), 0o700); err != nil { // not even root reads it
		t.Fatal(err)
	}
	for path, remedy := range map[string]string{file: "node.data_dir", filepath.Join(file, "below"): "node.data_dir", unreadable: "restore the file"} {
		_, err := openDataDir(path, rand.Reader)
		if !errors.Is(err, ErrDataDir) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), remedy) {
			t.Errorf("%s: %v, want ErrDataDir naming it and %q", path, err, remedy)
		}
	}
}

func TestBootCounterThatCannotBeWrittenStopsTheStart(t *testing.T) {
	path := t.TempDir()
	d := open(t, path)
	if err := os.Mkdir(filepath.Join(path, nodeFile+".tmp"), 0o700); err != nil {
		t.Fatal(err)
	}
	if epoch, err := d.boot(); !errors.Is(err, ErrDataDir) || epoch != 0 {
		t.Errorf("boot: %d, %v, want ErrDataDir", epoch, err)
	}
}

func TestRemedyIsWhatTheDiskNeeds(t *testing.T) {
	for err, want := range map[error]string{
		syscall.ENOSPC: "free some space",
		syscall.EDQUOT: "free some space",
		syscall.EROFS:  "mount it writable",
		syscall.EACCES: "otherwise",
	} {
		if got := diskRemedy(&os.PathError{Op: "write", Path: "lock", Err: err}, "otherwise"); !strings.HasPrefix(got, want) {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
}

// Who changes a data directory from outside and an agent keep each other out.
func TestLockDataDir(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	release, err := LockDataDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := openDataDir(dir, rand.Reader); !errors.Is(err, ErrDataDir) || !strings.Contains(err.Error(), "in use by pid") {
		t.Errorf("an agent opened it: %v", err)
	}
	if err := release(); err != nil {
		t.Fatal(err)
	}
	d, err := openDataDir(dir, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	if _, err := LockDataDir(dir); !errors.Is(err, ErrDataDir) {
		t.Errorf("an agent has it: %v", err)
	}
}

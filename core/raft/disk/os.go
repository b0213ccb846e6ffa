package disk

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/core/durable"
)

// OS is a directory of this host.
type OS struct{ dir string }

// OpenOS returns a directory, which it makes with mode 0700 if it is not there.
func OpenOS(dir string) (*OS, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("disk: %w", err)
	}
	// Its name is to last as well.
	if err := syncDir(filepath.Dir(dir)); err != nil {
		return nil, err
	}
	return &OS{dir: dir}, nil
}

// Create implements FS.
func (o *OS) Create(name string) (File, error) {
	return o.open(name, os.O_RDWR|os.O_CREATE|os.O_EXCL)
}

// Open implements FS.
func (o *OS) Open(name string) (File, error) { return o.open(name, os.O_RDWR) }

func (o *OS) open(name string, flags int) (File, error) {
	f, err := os.OpenFile(filepath.Join(o.dir, name), flags, 0o600)
	if err != nil {
		return nil, fmt.Errorf("disk: %w", err)
	}
	return osFile{f}, nil
}

// Rename implements FS.
func (o *OS) Rename(from, to string) error {
	if err := os.Rename(filepath.Join(o.dir, from), filepath.Join(o.dir, to)); err != nil {
		return fmt.Errorf("disk: %w", err)
	}
	return nil
}

// Remove implements FS.
func (o *OS) Remove(name string) error {
	if err := os.Remove(filepath.Join(o.dir, name)); err != nil {
		return fmt.Errorf("disk: %w", err)
	}
	return nil
}

// List implements FS.
func (o *OS) List() ([]string, error) {
	entries, err := os.ReadDir(o.dir)
	if err != nil {
		return nil, fmt.Errorf("disk: %w", err)
	}
	var names []string
	for _, e := range entries {
		if e.Type().IsRegular() {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	return names, nil
}

// SyncNames implements FS.
func (o *OS) SyncNames() error { return syncDir(o.dir) }

func syncDir(dir string) error {
	if err := durable.SyncNames(dir); err != nil {
		return fmt.Errorf("disk: %w", err)
	}
	return nil
}

// FreeBytes implements FS.
func (o *OS) FreeBytes() (uint64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(o.dir, &st); err != nil {
		return 0, fmt.Errorf("disk: free space of %s: %w", o.dir, err)
	}
	return st.Bavail * uint64(st.Bsize), nil
}

// osFile is a file of the operating system, whose errors name it.
type osFile struct{ *os.File }

func (f osFile) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, fmt.Errorf("disk: %w", err)
	}
	return info.Size(), nil
}

func (f osFile) Allocate(size int64) error {
	err := retry(func() error { return unix.Fallocate(int(f.Fd()), 0, 0, size) })
	if errors.Is(err, unix.EOPNOTSUPP) {
		err = f.File.Truncate(size) // the file system finds room when it is written to
	}
	if err != nil {
		return fmt.Errorf("disk: %d bytes for %s: %w", size, f.Name(), err)
	}
	return nil
}

func (f osFile) Sync() error {
	if err := retry(func() error { return unix.Fdatasync(int(f.Fd())) }); err != nil {
		return fmt.Errorf("disk: fdatasync of %s: %w", f.Name(), err)
	}
	return nil
}

// retry repeats what a signal interrupted; nothing has happened then.
func retry(do func() error) error {
	for {
		if err := do(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

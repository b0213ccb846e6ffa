package scaffold

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Write makes dir if it is not there, and the files in it. If one of them is
// there already it changes nothing and returns an error that wraps ErrExists and
// names it; so it does not replace what somebody else makes meanwhile. After any
// failure it takes back what it made.
func Write(dir string, files []File) (err error) {
	for _, f := range files {
		path := filepath.Join(dir, f.Name)
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%w: %w", ErrExists, whyNot(path, err))
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("%w: %w", ErrExists, err)
	}
	var made []string
	defer func() {
		if err == nil {
			return
		}
		for _, path := range made {
			err = errors.Join(err, os.Remove(path))
		}
	}()
	for _, f := range files {
		path := filepath.Join(dir, f.Name)
		w, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrExists, err)
		}
		made = append(made, path)
		if _, err := w.Write(f.Text); err != nil {
			return errors.Join(fmt.Errorf("%w: %w", ErrExists, err), w.Close())
		}
		if err := w.Close(); err != nil {
			return fmt.Errorf("%w: %w", ErrExists, err)
		}
	}
	return nil
}

// whyNot is what stands in the way at path, where Lstat answered err.
func whyNot(path string, err error) error {
	if err == nil {
		return fmt.Errorf("%s exists: remove it, or give another --dir", path)
	}
	return err
}

// Package durable replaces and reads small files of state: whole, in one step,
// and so that a crash of the process or of the host loses nothing that was
// promised.
package durable

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Replace puts data at path, mode 0600, so that after a crash the file holds
// either the old or the new bytes, and after a return without error the new
// ones. One process at a time may replace a path.
func Replace(path string, data []byte) error {
	tmp := path + ".tmp"
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		if gone := os.Remove(tmp); gone != nil && !errors.Is(gone, os.ErrNotExist) {
			err = errors.Join(err, gone)
		}
		return err
	}
	// The rename is durable only once the directory is.
	return SyncNames(filepath.Dir(path))
}

// SyncNames makes what was created, renamed and removed in a directory outlast a
// crash of the host.
func SyncNames(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Read returns a whole file of at most limit bytes; a larger one is an error.
func Read(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("%s is larger than %d bytes", path, limit)
	}
	return data, nil
}

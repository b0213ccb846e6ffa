package viewer

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// EpochFile keeps the ceiling in a file, replaced in one step.
type EpochFile string

// epochFileBytes is far above what is ever written.
const epochFileBytes = 64

// Load reads the ceiling; 0 if there is no file. A file that holds no number is
// an error: to begin anew would use epochs twice.
func (f EpochFile) Load() (uint64, error) {
	b, err := os.ReadFile(string(f))
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("viewer: the ceiling of epochs cannot be read: %w: make it readable for the agent", err)
	}
	ceiling, err := strconv.ParseUint(strings.TrimSpace(string(b[:min(len(b), epochFileBytes)])), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("viewer: %s is damaged: %w: restore it, or write a number into it that is above any epoch seen so far", f, err)
	}
	return ceiling, nil
}

// Save replaces the file, durably.
func (f EpochFile) Save(ceiling uint64) error {
	if err := f.replace(strconv.FormatUint(ceiling, 10) + "\n"); err != nil {
		return fmt.Errorf("viewer: the ceiling of epochs cannot be written: %w: make the directory writable and free some space", err)
	}
	return nil
}

func (f EpochFile) replace(content string) (err error) {
	dir := filepath.Dir(string(f))
	tmp, err := os.CreateTemp(dir, filepath.Base(string(f))+".tmp*")
	if err != nil {
		return err
	}
	_, err = tmp.WriteString(content)
	err = errors.Join(err, tmp.Sync(), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), string(f))
	}
	if err != nil {
		return errors.Join(err, os.Remove(tmp.Name()))
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

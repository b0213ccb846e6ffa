package viewer

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/core/durable"
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
	if err := durable.Replace(string(f), []byte(strconv.FormatUint(ceiling, 10)+"\n")); err != nil {
		return fmt.Errorf("viewer: the ceiling of epochs cannot be written: %w: make the directory writable and free some space", err)
	}
	return nil
}

package identity

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/fairlead/fairlead/core/durable"
)

// Step is one of the three by which the secrets of a cluster change without an
// outage. Each is done once, and its file brought to every node before the next.
type Step int

// The steps.
const (
	// Add appends a new secret: all nodes believe it, and none signs with it yet.
	Add Step = iota
	// Promote makes the last secret the first one: nodes sign with it.
	Promote
	// Drop removes all but the first secret: who has only those is believed no more.
	Drop
)

// CreateFile makes a secret file with one new secret, for its owner alone. A file
// that is there is an error.
func CreateFile(path string, random io.Reader) error {
	text, err := Generate(random)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	switch {
	case errors.Is(err, fs.ErrExist):
		return fmt.Errorf("identity: %s is there already, and may be the secret of a cluster; name another file, or add a secret to it", path)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("identity: there is no directory for %s: make it first (mkdir -p %s)", path, filepath.Dir(path))
	case err != nil:
		return fmt.Errorf("identity: %w", err)
	}
	_, err = f.WriteString(text + "\n")
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("identity: %w", errors.Join(err, os.Remove(path)))
	}
	return nil
}

// ChangeFile takes one step with a secret file, in one piece, and returns how many
// secrets are in it then. The file keeps its owner.
func ChangeFile(path string, step Step, random io.Reader) (secrets int, err error) {
	// What the name leads to is replaced, not the name.
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrSecret, err)
	}
	before, _, err := ReadFile(real)
	if err != nil {
		return 0, err
	}
	info, err := os.Stat(real)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrSecret, err)
	}
	after, err := change(before, step, random)
	if err != nil {
		return 0, fmt.Errorf("%w: in %s", err, path)
	}
	if slices.Equal(before, after) {
		return len(after), nil
	}
	var text strings.Builder
	for _, s := range after {
		text.WriteString(s.text() + "\n")
	}
	if err := durable.Replace(real, []byte(text.String())); err != nil {
		return 0, fmt.Errorf("identity: %s cannot be replaced: %w", path, err)
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); ok {
		if err := os.Chown(real, int(owner.Uid), int(owner.Gid)); err != nil {
			return 0, fmt.Errorf("identity: %s was changed, but it cannot be given back to its owner: %w", path, err)
		}
	}
	return len(after), nil
}

func change(secrets []Secret, step Step, random io.Reader) ([]Secret, error) {
	switch step {
	case Add:
		if len(secrets) == maxSecrets {
			return nil, fmt.Errorf("%w: there are %d, at most %d are of use: drop the old ones first", ErrSecret, len(secrets), maxSecrets)
		}
		text, err := Generate(random)
		return append(slices.Clone(secrets), secretOf(text)), err
	case Promote:
		last := len(secrets) - 1
		if last == 0 {
			return nil, fmt.Errorf("%w: there is only one: add one first", ErrSecret)
		}
		return append([]Secret{secrets[last]}, secrets[:last]...), nil
	default:
		return secrets[:1], nil
	}
}

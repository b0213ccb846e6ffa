package snap

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Meta says of what a snapshot is.
type Meta struct {
	Cluster     string // whose it is: hexadecimal, at most 64 characters
	Index, Term uint64 // of the last entry in it
	Membership  []byte // who takes part after that entry, in the caller's encoding
}

// ErrNone says that there is no such snapshot.
var ErrNone = errors.New("snap: there is no such snapshot")

// DamageError says that a snapshot is not what was written.
type DamageError struct {
	File   string
	Offset int64
	What   string
}

// Error implements error.
func (e *DamageError) Error() string {
	return fmt.Sprintf("snap: %s is damaged at byte %d: %s", e.File, e.Offset, e.What)
}

const (
	magic      = "FLSNAP1\n"
	suffix     = ".snap"
	pending    = ".snap.new"
	pieceBytes = 1 << 20
	hashBytes  = 32
	digits     = 16
)

func (m Meta) name() string {
	return fmt.Sprintf("%0*x-%0*x%s", digits, m.Term, digits, m.Index, suffix)
}

// parseName reads the name of a snapshot.
func parseName(name string) (m Meta, ok bool) {
	stem, ok := strings.CutSuffix(name, suffix)
	if !ok || len(stem) != 2*digits+1 {
		return Meta{}, false
	}
	term, index, _ := strings.Cut(stem, "-")
	var errs [2]error
	m.Term, errs[0] = strconv.ParseUint(term, 16, 64)
	m.Index, errs[1] = strconv.ParseUint(index, 16, 64)
	return m, errors.Join(errs[:]...) == nil
}

func (m Meta) check() error {
	if _, err := hex.DecodeString(m.Cluster); err != nil || len(m.Cluster) > 64 {
		return fmt.Errorf("snap: %q is no cluster id", m.Cluster)
	}
	return nil
}

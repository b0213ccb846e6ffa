package wal

import (
	"errors"
	"fmt"
)

// Entry is one entry of the Raft log.
type Entry struct {
	Index, Term uint64
	Kind        uint8 // the caller's
	Data        []byte
}

// HardState is what Raft must not forget.
type HardState struct {
	Term, Vote, Commit uint64
}

// Mark says that a snapshot stands for all entries up to an index.
type Mark struct {
	Index, Term uint64
	// Reset says that the snapshot came from elsewhere: entries after it are not
	// of its history and go as well.
	Reset bool
}

// Batch is what is written as a whole: the mark first, then the hard state, then
// the entries.
type Batch struct {
	Mark    *Mark
	Hard    *HardState
	Entries []Entry // with rising indices; they replace those from the first on
}

// Recovered is what a log holds.
type Recovered struct {
	Meta    []byte // as given to Create
	Mark    Mark
	Hard    HardState
	Entries []Entry // after the mark, without a gap
	// CutBytes is how much of a batch that was never confirmed was cut off.
	CutBytes int64
}

// ErrFailed wraps the error of a write after which the log refuses everything.
var ErrFailed = errors.New("wal: the log on disk failed before: restart to go on from what is there")

// ErrNoLog says that there is no log in the directory.
var ErrNoLog = errors.New("wal: there is no log")

// DamageError says that a log is not what was written, and where. Nothing was
// altered.
type DamageError struct {
	File   string
	Offset int64
	What   string
}

// Error implements error.
func (e *DamageError) Error() string {
	return fmt.Sprintf("wal: %s is damaged at byte %d: %s", e.File, e.Offset, e.What)
}

func (h HardState) append(b []byte) []byte { return numbers(b, h.Term, h.Vote, h.Commit) }

func (m Mark) append(b []byte) []byte {
	if m.Reset {
		return numbers(b, m.Index, m.Term, 1)
	}
	return numbers(b, m.Index, m.Term, 0)
}

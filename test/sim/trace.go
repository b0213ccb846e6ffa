package sim

import (
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"
)

// traceLines is how many of the newest lines a Trace keeps.
const traceLines = 5000

// Trace is the record of a run: everything goes into its hash, what a reader
// would like to see is kept as text, the newest lines only.
type Trace struct {
	hash  *xxhash.Digest
	count uint64
	lines []string
	next  int
}

func newTrace() *Trace { return &Trace{hash: xxhash.New()} }

// Sum is the hash of everything so far.
func (t *Trace) Sum() uint64 { return t.hash.Sum64() }

// Count is the number of records so far.
func (t *Trace) Count() uint64 { return t.count }

// Tail returns the last lines, oldest first.
func (t *Trace) Tail(n int) string {
	all := append(append([]string(nil), t.lines[t.next:]...), t.lines[:t.next]...)
	if len(all) > n {
		all = all[len(all)-n:]
	}
	return strings.Join(all, "\n")
}

// record adds bytes to the hash alone.
func (t *Trace) record(at time.Duration, kind byte, who uint64, data []byte) {
	var head [25]byte
	binary.BigEndian.PutUint64(head[0:], uint64(at))
	head[8] = kind
	binary.BigEndian.PutUint64(head[9:], who)
	binary.BigEndian.PutUint64(head[17:], uint64(len(data)))
	_, _ = t.hash.Write(head[:]) // never fails
	_, _ = t.hash.Write(data)
	t.count++
}

// note adds a line.
func (t *Trace) note(at time.Duration, text string) {
	t.record(at, 'n', 0, []byte(text))
	line := fmt.Sprintf("%10.4f  %s", at.Seconds(), text)
	if len(t.lines) < traceLines {
		t.lines = append(t.lines, line)
		return
	}
	t.lines[t.next] = line
	t.next = (t.next + 1) % traceLines
}

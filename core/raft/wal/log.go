package wal

import (
	"fmt"
	"hash/crc32"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/core/raft/disk"
)

// Options are the sizes of a log.
type Options struct {
	// SegmentBytes is how long a segment is made; one holds at least one batch,
	// whatever its size. Default 64 MiB.
	SegmentBytes int64
}

// Log is an open log. One goroutine uses it at a time.
type Log struct {
	fs    disk.FS
	opts  Options
	table *crc32.Table
	meta  []byte

	segments []segment // in order; the last one is written to
	file     disk.File // of the last one
	size     int64     // it is this long
	at       int64     // the next batch goes here
	zeroed   int64     // up to here zeros were written, not only allocated
	crc      uint32    // of the frame before
	batch    uint64    // number of the last one
	hard     HardState
	mark     Mark
	last     uint64 // index of the last entry, or of the mark
	buffer   []byte
	failed   error
}

// segment is one file.
type segment struct {
	name  string
	seq   uint64
	first uint64 // entries before this index are in earlier segments
}

const (
	suffix  = ".wal"
	pending = ".wal.new" // a segment that is being made
	// nameDigits are those of each number in a name.
	nameDigits = 16
)

// Create makes a log in a directory that has none, which goes on from a snapshot
// and a hard state. Meta is what Open returns.
func Create(fs disk.FS, meta []byte, from Mark, hard HardState, o Options) (*Log, error) {
	l := newLog(fs, o)
	l.meta, l.mark, l.hard, l.last = meta, from, hard, from.Index
	if err := l.clear(); err != nil {
		return nil, err
	}
	names, err := fs.List()
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if strings.HasSuffix(name, suffix) {
			return nil, fmt.Errorf("wal: there is a log already: %s", name)
		}
	}
	if err := l.begin(from.Index + 1); err != nil {
		return nil, err
	}
	return l, nil
}

func newLog(fs disk.FS, o Options) *Log {
	if o.SegmentBytes <= 0 {
		o.SegmentBytes = 64 << 20
	}
	return &Log{fs: fs, opts: o, table: table()}
}

// clear removes segments that were not finished.
func (l *Log) clear() error {
	names, err := l.fs.List()
	if err != nil {
		return err
	}
	for _, name := range names {
		if strings.HasSuffix(name, pending) {
			if err := l.fs.Remove(name); err != nil {
				return err
			}
		}
	}
	return nil
}

// Hard is the last hard state on disk.
func (l *Log) Hard() HardState { return l.hard }

// Mark is the last mark on disk.
func (l *Log) Mark() Mark { return l.mark }

// Append writes a batch and returns when it is on disk.
func (l *Log) Append(b Batch) error {
	if l.failed != nil {
		return fmt.Errorf("%w: %w", ErrFailed, l.failed)
	}
	if b.Mark == nil && b.Hard == nil && len(b.Entries) == 0 {
		return nil
	}
	if err := l.check(b); err != nil {
		return err
	}
	if err := l.append(b); err != nil {
		l.failed = err
		return err
	}
	return nil
}

// check refuses what Open could not read again.
func (l *Log) check(b Batch) error {
	last := l.last
	if b.Mark != nil {
		if b.Mark.Index < l.mark.Index {
			return fmt.Errorf("wal: a mark at index %d, after one at %d", b.Mark.Index, l.mark.Index)
		}
		last = max(last, b.Mark.Index)
		if b.Mark.Reset {
			last = b.Mark.Index
		}
	}
	for i, e := range b.Entries {
		switch {
		case i == 0 && (e.Index > last+1 || e.Index <= l.mark.Index || b.Mark != nil && e.Index <= b.Mark.Index):
			return fmt.Errorf("wal: an entry of index %d, where the log has %d to %d", e.Index, l.mark.Index+1, last)
		case i > 0 && e.Index != b.Entries[i-1].Index+1:
			return fmt.Errorf("wal: an entry of index %d behind one of %d", e.Index, b.Entries[i-1].Index)
		case len(e.Data) > maxPayloadBytes/2:
			return fmt.Errorf("wal: an entry of %d bytes: at most %d", len(e.Data), maxPayloadBytes/2)
		}
	}
	return nil
}

func (l *Log) append(b Batch) error {
	w := l.render(b)
	if l.at+int64(len(w.b))+frameHeadBytes > l.size && l.at > l.headBytes() {
		if err := l.begin(l.firstOf(b)); err != nil {
			return err
		}
		w = l.render(b) // on the checksum of the new segment
	}
	if need := l.at + int64(len(w.b)) + frameHeadBytes; need > l.size {
		// A batch larger than a segment. Its room has to last before it does, or a
		// crash could leave a shorter file that looks as if it were whole.
		if err := l.file.Allocate(need); err != nil {
			return err
		}
		if err := l.file.Sync(); err != nil {
			return err
		}
		l.size = need
	}
	if err := l.zero(l.at + int64(len(w.b))); err != nil {
		return err
	}
	if _, err := l.file.WriteAt(w.b, l.at); err != nil {
		return err
	}
	if err := l.file.Sync(); err != nil {
		return err
	}
	l.at += int64(len(w.b))
	l.crc = w.crc
	l.batch++
	l.note(b)
	return nil
}

// zeroAhead is how far zeros are written ahead.
const zeroAhead = 1 << 20

// zero writes zeros where batches after the next one will go, which ends at end.
// What is only allocated has to be noted as written in the file system's journal
// by the fdatasync that follows, which then waits for everybody's: once for each
// zeroAhead bytes that is no matter.
func (l *Log) zero(end int64) error {
	if end <= l.zeroed {
		return nil
	}
	upTo := min(end+zeroAhead, l.size)
	if upTo > end {
		if _, err := l.file.WriteAt(make([]byte, upTo-end), end); err != nil {
			return err
		}
	}
	l.zeroed = upTo
	return nil
}

// render makes the bytes of the next batch.
func (l *Log) render(b Batch) *writer {
	w := &writer{b: l.buffer[:0], crc: l.crc, t: l.table}
	if b.Mark != nil {
		w.frame(kindMark, b.Mark.append)
	}
	if b.Hard != nil {
		w.frame(kindHard, b.Hard.append)
	}
	for _, e := range b.Entries {
		w.frame(kindEntry, func(p []byte) []byte {
			return append(numbers(p, e.Index, e.Term, uint64(e.Kind)), e.Data...)
		})
	}
	w.frame(kindEnd, func(p []byte) []byte { return numbers(p, l.batch+1) })
	l.buffer = w.b
	return w
}

// note remembers what a batch that is on disk said.
func (l *Log) note(b Batch) {
	if b.Mark != nil {
		l.mark = *b.Mark
		l.last = max(l.last, b.Mark.Index)
		if b.Mark.Reset {
			l.last = b.Mark.Index
		}
	}
	if b.Hard != nil {
		l.hard = *b.Hard
	}
	if n := len(b.Entries); n > 0 {
		l.last = b.Entries[n-1].Index
	}
}

// firstOf is the lowest index that a segment beginning with b may hold entries of.
func (l *Log) firstOf(b Batch) uint64 {
	if len(b.Entries) > 0 {
		return b.Entries[0].Index
	}
	return l.last + 1
}

// begin makes a new segment and goes on in it. It gets its name when its head is
// on disk: under a name that ends in .wal there is always a whole head.
func (l *Log) begin(first uint64) error {
	next := segment{first: first}
	if n := len(l.segments); n > 0 {
		next.seq = l.segments[n-1].seq + 1
	}
	next.name = fmt.Sprintf("%0*x-%0*x%s", nameDigits, next.seq, nameDigits, next.first, suffix)
	draft := strings.TrimSuffix(next.name, suffix) + pending
	file, err := l.fs.Create(draft)
	if err != nil {
		return err
	}
	head := l.head()
	size := max(l.opts.SegmentBytes, int64(len(head.b))+frameHeadBytes)
	if err := l.fill(file, head.b, size); err != nil {
		file.Close()
		return err
	}
	if err := l.fs.Rename(draft, next.name); err != nil {
		file.Close()
		return err
	}
	if err := l.fs.SyncNames(); err != nil {
		file.Close()
		return err
	}
	old := l.file
	l.file, l.size, l.at, l.crc = file, size, int64(len(head.b)), head.crc
	l.zeroed = l.at
	l.segments = append(l.segments, next)
	if old != nil {
		return old.Close()
	}
	return nil
}

func (l *Log) fill(file disk.File, head []byte, size int64) error {
	if err := file.Allocate(size); err != nil {
		return err
	}
	if _, err := file.WriteAt(head, 0); err != nil {
		return err
	}
	return file.Sync()
}

// head makes the first frames of a segment: whose log it is, and all that
// segments before it said and that counts on, so that they can go.
func (l *Log) head() *writer {
	w := &writer{t: l.table}
	w.frame(kindMeta, func(p []byte) []byte { return append(numbers(p, 1), l.meta...) })
	w.frame(kindMark, Mark{Index: l.mark.Index, Term: l.mark.Term}.append) // a reset has happened by then
	w.frame(kindHard, l.hard.append)
	w.frame(kindEnd, func(p []byte) []byte { return numbers(p, l.batch) })
	return w
}

func (l *Log) headBytes() int64 { return int64(len(l.head().b)) }

// Forget removes segments that hold nothing but entries up to the mark.
func (l *Log) Forget() (segments int, err error) {
	if l.failed != nil {
		return 0, fmt.Errorf("%w: %w", ErrFailed, l.failed)
	}
	// Of the segments before one that begins with entry f, whatever still counts
	// is before f: a later entry of them was replaced.
	n := len(l.segments) - 1
	for n > 0 && l.segments[n].first > l.mark.Index+1 {
		n--
	}
	for _, s := range l.segments[:n] {
		if err := l.fs.Remove(s.name); err != nil {
			return 0, err
		}
	}
	if n == 0 {
		return 0, nil
	}
	l.segments = slices.Clone(l.segments[n:])
	return n, l.fs.SyncNames()
}

// Bytes returns how much disk the log takes.
func (l *Log) Bytes() int64 { return int64(len(l.segments)-1)*l.opts.SegmentBytes + l.size }

// Close ends the use of the log. What Append returned for is on disk.
func (l *Log) Close() error { return l.file.Close() }

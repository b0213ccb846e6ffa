package wal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/core/raft/disk"
)

// Open reads a log and goes on in it. ErrNoLog if there is none, a *DamageError
// if it is not what was written.
func Open(fs disk.FS, o Options) (*Log, Recovered, error) {
	l := newLog(fs, o)
	names, err := fs.List()
	if err != nil {
		return nil, Recovered{}, err
	}
	for _, name := range names { // in the order of their numbers
		s, ok, err := parseName(name)
		switch {
		case err != nil:
			return nil, Recovered{}, err
		case ok:
			l.segments = append(l.segments, s)
		}
	}
	if len(l.segments) == 0 {
		return nil, Recovered{}, ErrNoLog
	}
	for i, s := range l.segments[1:] {
		if before := l.segments[i]; s.seq != before.seq+1 {
			return nil, Recovered{}, &DamageError{s.name, 0, fmt.Sprintf("the segment after %s is missing", before.name)}
		}
	}
	p := replay{l: l}
	for i, s := range l.segments {
		if err := p.segment(s, i == len(l.segments)-1); err != nil {
			if l.file != nil {
				l.file.Close()
			}
			return nil, Recovered{}, err
		}
	}
	r, err := p.done()
	if err == nil {
		err = l.clear() // only now: a log that is damaged stays as it is
	}
	if err == nil {
		err = fs.SyncNames() // see trim
	}
	if err != nil {
		l.file.Close()
		return nil, Recovered{}, err
	}
	return l, r, nil
}

// parseName reads the name of a segment; ok is false if it is none.
func parseName(name string) (s segment, ok bool, err error) {
	stem, ok := strings.CutSuffix(name, suffix)
	if !ok {
		return segment{}, false, nil
	}
	seq, first, cut := strings.Cut(stem, "-")
	s.name = name
	var errs [2]error
	s.seq, errs[0] = strconv.ParseUint(seq, 16, 64)
	s.first, errs[1] = strconv.ParseUint(first, 16, 64)
	if !cut || errors.Join(errs[:]...) != nil {
		return segment{}, false, &DamageError{name, 0, "this is no name of a segment: take the file away if it does not belong here"}
	}
	return s, true, nil
}

// replay puts together what the segments say.
type replay struct {
	l       *Log
	begun   bool // a segment was read
	entries []Entry
	staged  Batch // of the batch that is being read
	cut     int64
}

// segment reads one file. The last one is kept open, and what a crash cut short
// is cut off there.
func (p *replay) segment(s segment, last bool) (err error) {
	file, err := p.l.fs.Open(s.name)
	if err != nil {
		return err
	}
	if last {
		p.l.file = file
	} else {
		defer func() { err = errors.Join(err, file.Close()) }()
	}
	size, err := file.Size()
	if err != nil {
		return err
	}
	b := make([]byte, size)
	if n, err := file.ReadAt(b, 0); err != nil && !(errors.Is(err, io.EOF) && n == len(b)) {
		return fmt.Errorf("wal: %s: %w", s.name, err)
	}
	r := &reader{b: b, t: p.l.table}
	damage := func(format string, args ...any) error {
		return &DamageError{s.name, int64(r.at), fmt.Sprintf(format, args...)}
	}
	good, crc := 0, uint32(0) // the end of the last whole batch
	head := true
	for {
		kind, payload, err := r.next()
		if err == nil && kind == 0 && !zeros(b[r.at:]) {
			err = errors.New("there is something behind the end")
		}
		if err == nil && kind == 0 && good < r.at {
			err = errors.New("a batch without an end")
		}
		if err == nil && kind != 0 {
			// A record that is whole and makes no sense was written so.
			if err := p.record(kind, payload, head); err != nil {
				return damage("%v", err)
			}
		}
		if err != nil && (head || !last || !torn(b, good, r.at, p.l.batch, p.l.table)) {
			return damage("%v", err)
		}
		if err != nil || kind == 0 {
			break
		}
		if kind == kindEnd {
			good, crc, head = r.at, r.crc, false
		}
	}
	if head {
		return damage("it has no head")
	}
	p.begun = true
	p.staged = Batch{}
	p.l.size, p.l.at, p.l.crc = size, int64(good), crc
	p.l.zeroed = p.l.at
	if last {
		return p.trim(file, b[good:])
	}
	return nil
}

// trim makes zeros of what follows the last whole batch, so that nothing of it
// is taken for a part of what will be written there. Then it syncs, also if there is
// nothing: a process that was killed before it could may have left a batch that the
// kernel has and the disk has not, and what Open returns is promised to others.
func (p *replay) trim(file disk.File, rest []byte) error {
	if end := withoutZeros(rest); end > 0 {
		p.cut = int64(end)
		if _, err := file.WriteAt(make([]byte, end), p.l.at); err != nil {
			return err
		}
	}
	return file.Sync()
}

// record takes in one record.
func (p *replay) record(kind byte, payload []byte, head bool) error {
	switch kind {
	case kindMeta:
		return p.meta(payload, head)
	case kindMark:
		m, reset := Mark{}, uint64(0)
		if _, err := take(payload, &m.Index, &m.Term, &reset); err != nil {
			return err
		}
		m.Reset = reset == 1
		p.staged.Mark = &m
	case kindHard:
		h := HardState{}
		if _, err := take(payload, &h.Term, &h.Vote, &h.Commit); err != nil {
			return err
		}
		p.staged.Hard = &h
	case kindEntry:
		var e Entry
		var kind uint64
		data, err := take(payload, &e.Index, &e.Term, &kind)
		if err != nil {
			return err
		}
		e.Kind, e.Data = uint8(kind), bytes.Clone(data)
		p.staged.Entries = append(p.staged.Entries, e)
	case kindEnd:
		return p.end(payload, head)
	default:
		return fmt.Errorf("a record of kind %d, which this version does not know", kind)
	}
	return nil
}

func (p *replay) meta(payload []byte, head bool) error {
	format := uint64(0)
	meta, err := take(payload, &format)
	switch {
	case err != nil:
		return err
	case format != 1:
		return fmt.Errorf("format %d, this version reads 1", format)
	case !head:
		return fmt.Errorf("a head within the segment")
	case p.l.meta != nil && !bytes.Equal(meta, p.l.meta):
		return fmt.Errorf("it belongs to another log than the segments before")
	}
	p.l.meta = bytes.Clone(meta)
	if p.l.meta == nil {
		p.l.meta = []byte{}
	}
	return nil
}

// end puts a batch into force.
func (p *replay) end(payload []byte, head bool) error {
	number := uint64(0)
	if _, err := take(payload, &number); err != nil {
		return err
	}
	want := p.l.batch + 1
	switch {
	case head && p.begun:
		want = p.l.batch
	case head:
		want = number // the segments before are gone
	}
	if number != want {
		return fmt.Errorf("batch %d, after %d", number, p.l.batch)
	}
	b := p.staged
	p.staged = Batch{}
	if b.Mark != nil && b.Mark.Reset {
		p.entries = nil
	}
	for _, e := range b.Entries {
		if err := p.add(e); err != nil {
			return err
		}
	}
	p.l.batch = number
	p.l.note(b)
	return nil
}

// add replaces the entries from e on by e.
func (p *replay) add(e Entry) error {
	for len(p.entries) > 0 && p.entries[len(p.entries)-1].Index >= e.Index {
		p.entries = p.entries[:len(p.entries)-1]
	}
	if n := len(p.entries); n > 0 && p.entries[n-1].Index+1 != e.Index {
		if p.entries[n-1].Index > p.l.mark.Index || e.Index != p.l.mark.Index+1 {
			return fmt.Errorf("an entry of index %d behind one of %d", e.Index, p.entries[n-1].Index)
		}
		p.entries = nil // the mark stands for them and for what is between
	}
	p.entries = append(p.entries, e)
	return nil
}

// done checks the whole.
func (p *replay) done() (Recovered, error) {
	l := p.l
	for len(p.entries) > 0 && p.entries[0].Index <= l.mark.Index {
		p.entries = p.entries[1:]
	}
	if len(p.entries) > 0 && p.entries[0].Index != l.mark.Index+1 {
		return Recovered{}, &DamageError{l.segments[0].name, 0, fmt.Sprintf("entries %d to %d are missing", l.mark.Index+1, p.entries[0].Index-1)}
	}
	l.last = l.mark.Index
	if n := len(p.entries); n > 0 {
		l.last = p.entries[n-1].Index
	}
	return Recovered{Meta: l.meta, Mark: l.mark, Hard: l.hard, Entries: p.entries, CutBytes: p.cut}, nil
}

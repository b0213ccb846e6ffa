package wal

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/fairlead/fairlead/core/raft/disk"
	"github.com/fairlead/fairlead/core/raft/disk/disktest"
	"github.com/fairlead/fairlead/test/scale"
)

// small makes a handful of batches fill a segment.
func small() Options { return Options{SegmentBytes: 4 << 10} }

// work appends random batches until one fails, and forgets segments. After each
// it tells what the log should hold, and before each what it may hold as well.
type work struct {
	r     *rand.Rand
	done  Recovered // what was confirmed
	maybe Recovered // the same, and the batch under way
}

func (w *work) next() Batch {
	var b Batch
	last := w.done.Mark.Index + uint64(len(w.done.Entries))
	if w.r.IntN(8) == 0 && last > w.done.Mark.Index {
		b.Mark = &Mark{Index: w.done.Mark.Index + 1 + w.r.Uint64N(last-w.done.Mark.Index), Term: w.done.Hard.Term}
	} else if w.r.IntN(30) == 0 {
		b.Mark = &Mark{Index: last + 1 + w.r.Uint64N(5), Term: w.done.Hard.Term, Reset: true}
		last = b.Mark.Index
	}
	if w.r.IntN(3) == 0 {
		b.Hard = &HardState{Term: w.done.Hard.Term + w.r.Uint64N(2), Vote: w.r.Uint64N(3), Commit: w.done.Hard.Commit + 1}
	}
	first := last + 1
	low := w.done.Mark.Index
	if b.Mark != nil {
		low = b.Mark.Index
	}
	if w.r.IntN(6) == 0 && last > low {
		first = low + 1 + w.r.Uint64N(last-low)
	}
	for i := range w.r.Uint64N(6) {
		data := make([]byte, w.r.IntN(900))
		for j := range data {
			data[j] = byte(1 + w.r.IntN(255))
		}
		b.Entries = append(b.Entries, Entry{Index: first + i, Term: w.done.Hard.Term, Kind: uint8(w.r.IntN(3)), Data: data})
	}
	return b
}

// plus is what a log holds with one more batch.
func plus(r Recovered, b Batch) Recovered {
	r.CutBytes = 0
	entries := append([]Entry(nil), r.Entries...)
	if b.Mark != nil {
		for len(entries) > 0 && (b.Mark.Reset || entries[0].Index <= b.Mark.Index) {
			entries = entries[1:]
		}
		r.Mark = Mark{Index: b.Mark.Index, Term: b.Mark.Term}
	}
	if b.Hard != nil {
		r.Hard = *b.Hard
	}
	for _, e := range b.Entries {
		entries = append(entries[:e.Index-r.Mark.Index-1], e)
	}
	r.Entries = entries
	return r
}

// run works until the disk crashes.
func (w *work) run(fs disk.FS) error {
	l, err := Create(fs, []byte("meta"), Mark{}, HardState{}, small())
	if err != nil {
		return err
	}
	w.done.Meta = []byte("meta")
	for range 25 {
		b := w.next()
		w.maybe = plus(w.done, b)
		if err := l.Append(b); err != nil {
			if again := l.Append(b); len(b.Entries) > 0 && !errors.Is(again, ErrFailed) {
				return fmt.Errorf("invariant failed-for-good: after %v: Append says %w", err, again)
			}
			return err
		}
		w.done = w.maybe
		if w.r.IntN(4) == 0 {
			if _, err := l.Forget(); err != nil {
				return err
			}
		}
	}
	return l.Close()
}

// same compares what was read with what was written; empty is as good as none.
func same(got, want Recovered) bool {
	got.CutBytes, want.CutBytes = 0, 0
	got.Mark.Reset, want.Mark.Reset = false, false
	if len(got.Entries) == 0 && len(want.Entries) == 0 {
		got.Entries, want.Entries = nil, nil
	}
	for i := range got.Entries {
		if len(got.Entries[i].Data) == 0 && i < len(want.Entries) && len(want.Entries[i].Data) == 0 {
			got.Entries[i].Data = want.Entries[i].Data
		}
	}
	return reflect.DeepEqual(got, want)
}

// crashAt works up to a step, crashes there, and looks at what is there then, in
// several ways in which that may have ended. It returns false if the work came to
// its end first.
func crashAt(seed uint64, step int, lies ...string) (more bool, err error) {
	fs := disktest.NewCrash()
	for _, lie := range lies {
		fs.Lies = map[string]bool{lie: true}
	}
	fs.StopAt(step)
	w := &work{r: rand.New(rand.NewPCG(seed, 2))}
	if err := w.run(fs); err == nil {
		return false, nil
	} else if !errors.Is(err, disktest.ErrCrashed) {
		return false, err
	}
	writes, names := fs.Unsynced()
	draw := rand.New(rand.NewPCG(seed, uint64(step)))
	for variant := range 5 + 2*min(writes, 2) {
		fate := disktest.Fate{Names: draw.IntN(names + 1)}
		switch variant {
		case 0: // everything got to the disk
			fate.Names = -1
		case 1: // nothing did
			fate.Sector = func(string, int, int) bool { return false }
			fate.Names = 0
		case 2: // it was cut short
			at := draw.IntN(6)
			fate.Sector = func(_ string, _, sector int) bool { return sector < at }
		default: // whatever came first
			coin := rand.New(rand.NewPCG(seed, uint64(variant)))
			fate.Sector = func(string, int, int) bool { return coin.IntN(2) == 0 }
		}
		if err := w.look(fs.After(fate), variant); err != nil {
			return true, fmt.Errorf("seed %d, step %d, variant %d: %w", seed, step, variant, err)
		}
	}
	return true, nil
}

// look opens the log after the crash, and goes on in it: what a crash left is not
// taken for a part of what comes then, however much of it that covers.
func (w *work) look(fs *disktest.Crash, variant int) error {
	l, got, err := Open(fs, small())
	switch {
	case errors.Is(err, ErrNoLog) && w.done.Meta == nil:
		return nil // Create did not return
	case errors.Is(err, ErrNoLog):
		return fmt.Errorf("invariant durable: %w", err)
	case err != nil:
		return fmt.Errorf("invariant torn-is-no-damage: %w", err)
	}
	// Meta is there as soon as Create could have done something.
	done, maybe := w.done, w.maybe
	done.Meta, maybe.Meta = []byte("meta"), []byte("meta")
	if !same(got, done) && !same(got, maybe) {
		return fmt.Errorf("invariant durable: there is %v, want %v or %v", brief(got), brief(done), brief(maybe))
	}
	next := Entry{Index: got.Mark.Index + uint64(len(got.Entries)) + 1, Data: bytes.Repeat([]byte("n"), 1+150*variant)}
	if err := l.Append(Batch{Entries: []Entry{next}}); err != nil {
		return fmt.Errorf("invariant goes-on: %w", err)
	}
	l.Close()
	_, again, err := Open(fs, small())
	if want := plus(got, Batch{Entries: []Entry{next}}); err != nil || !same(again, want) {
		return fmt.Errorf("invariant goes-on: then there is %v, %w, want %v", brief(again), err, brief(want))
	}
	return nil
}

func brief(r Recovered) string {
	return fmt.Sprintf("mark %d, hard %v, %d entries, %d cut", r.Mark.Index, r.Hard, len(r.Entries), r.CutBytes)
}

// enumerate crashes at every step and returns the first finding.
func enumerate(seeds int, lies ...string) (crashes int, err error) {
	for seed := range uint64(seeds) {
		for step := 1; ; step++ {
			more, err := crashAt(seed, step, lies...)
			if err != nil {
				return crashes, err
			}
			if !more {
				break
			}
			crashes++
		}
	}
	return crashes, nil
}

// TestCrashes crashes at each write, sync and change of a name: what was
// confirmed is there, and of the batch under way all or nothing.
func TestCrashes(t *testing.T) {
	crashes, err := enumerate(scale.N(60))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d crashes", crashes)
}

// A process that is killed leaves what the kernel has and the disk has not yet. Open
// promises all that it returns to others, so that the host may crash right after it.
func TestWhatOpenReturnsLasts(t *testing.T) {
	nothing := disktest.Fate{Sector: func(string, int, int) bool { return false }}
	for seed := range uint64(max(scale.N(60), 6)) {
		for step := 1; ; step++ {
			fs := disktest.NewCrash()
			fs.StopAt(step)
			w := &work{r: rand.New(rand.NewPCG(seed, 2))}
			err := w.run(fs)
			if err == nil {
				break
			}
			if !errors.Is(err, disktest.ErrCrashed) {
				t.Fatal(err)
			}
			fs.StopAt(1 << 30) // only the process ended
			l, told, err := Open(fs, small())
			if errors.Is(err, ErrNoLog) {
				continue
			}
			if err != nil {
				t.Fatalf("seed %d, step %d: %v", seed, step, err)
			}
			l.Close()
			l, got, err := Open(fs.After(nothing), small())
			if err != nil {
				t.Fatalf("invariant told-is-durable: seed %d, step %d: %v after Open returned %s", seed, step, err, brief(told))
			}
			l.Close()
			if !same(got, told) {
				t.Fatalf("invariant told-is-durable: seed %d, step %d: there is %s after Open returned %s", seed, step, brief(got), brief(told))
			}
		}
	}
}

// A disk that does not do what Sync or SyncNames promise is what a log looks like
// that forgets to call them: TestCrashes would see it.
func TestCrashesFindAForgottenSync(t *testing.T) {
	for _, lie := range []string{"sync", "names"} {
		if _, err := enumerate(scale.N(60), lie); err == nil {
			t.Errorf("nobody noticed a %s that did nothing", lie)
		} else {
			t.Log(err)
		}
	}
}

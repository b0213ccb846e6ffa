package wal

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/core/raft/disk/disktest"
	"github.com/fairlead/fairlead/test/scale"
)

// written returns a disk with a log of a few segments, and what is in it.
func written(t *testing.T, seed uint64) (*disktest.Crash, Recovered) {
	t.Helper()
	fs := disktest.NewCrash()
	w := &work{r: rand.New(rand.NewPCG(seed, 2))}
	if err := w.run(fs); err != nil {
		t.Fatal(err)
	}
	return fs, w.done
}

// One byte that is another is found, wherever it is, and nothing is lost over it
// but by a refusal that names the file.
func TestDamage(t *testing.T) {
	all := disktest.Fate{Names: -1}
	r := rand.New(rand.NewPCG(1, 1))
	refused := 0
	for seed := range uint64(scale.N(40)) {
		fs, want := written(t, seed)
		names, _ := fs.List()
		for range 300 {
			hurt := fs.After(all)
			name := names[r.IntN(len(names))]
			f, err := hurt.Open(name)
			if err != nil {
				t.Fatal(err)
			}
			size, _ := f.Size()
			at, b := r.Int64N(size), make([]byte, 1)
			if _, err := f.ReadAt(b, at); err != nil {
				t.Fatal(err)
			}
			b[0] ^= 1 << r.IntN(8)
			if err := hurt.Damage(name, at, b); err != nil {
				t.Fatal(err)
			}
			l, got, err := Open(hurt, small())
			var damage *DamageError
			switch {
			case errors.As(err, &damage):
				refused++
				if !strings.Contains(err.Error(), damage.File) || damage.File != name && !strings.HasSuffix(damage.File, suffix) {
					t.Fatalf("seed %d: %s at %d: %v", seed, name, at, err)
				}
			case err != nil:
				t.Fatalf("seed %d: %s at %d: %v", seed, name, at, err)
			default:
				l.Close()
				if !same(got, want) {
					t.Fatalf("invariant damage-is-refused: seed %d: %s at %d of %d: there is %s, want %s", seed, name, at, size, brief(got), brief(want))
				}
			}
		}
	}
	if refused == 0 {
		t.Error("nothing was refused")
	}
}

// A segment that is gone is missed, unless the log can do without.
func TestMissingSegment(t *testing.T) {
	missed := 0
	for seed := range uint64(20) {
		fs, want := written(t, seed)
		names, _ := fs.List()
		for i, name := range names[:len(names)-1] {
			hurt := fs.After(disktest.Fate{Names: -1})
			if err := hurt.Remove(name); err != nil {
				t.Fatal(err)
			}
			l, got, err := Open(hurt, small())
			var damage *DamageError
			if errors.As(err, &damage) {
				missed++
				continue
			}
			if err != nil {
				t.Fatalf("seed %d, without %s: %v", seed, name, err)
			}
			l.Close()
			if i != 0 || !same(got, want) {
				t.Errorf("invariant nothing-is-missing: seed %d, without %s of %d: %s, want %s", seed, name, len(names), brief(got), brief(want))
			}
		}
	}
	if missed == 0 {
		t.Error("no missing segment was found out")
	}
}

func TestRefusals(t *testing.T) {
	fs := disktest.NewCrash()
	if _, _, err := Open(fs, Options{}); !errors.Is(err, ErrNoLog) {
		t.Errorf("no log: %v", err)
	}
	l, err := Create(fs, []byte("meta"), Mark{}, HardState{}, small())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Create(fs, nil, Mark{}, HardState{}, small()); err == nil {
		t.Error("a second log in one directory")
	}
	entries := func(indices ...uint64) Batch {
		var b Batch
		for _, i := range indices {
			b.Entries = append(b.Entries, Entry{Index: i})
		}
		return b
	}
	if err := l.Append(entries(1, 2, 3)); err != nil {
		t.Fatal(err)
	}
	if err := l.Append(Batch{Mark: &Mark{Index: 2}}); err != nil {
		t.Fatal(err)
	}
	before := fs.Steps()
	for name, b := range map[string]Batch{
		"a gap":              entries(5),
		"a gap within":       entries(4, 6),
		"before the mark":    entries(2),
		"a mark that falls":  {Mark: &Mark{Index: 1}},
		"before its mark":    {Mark: &Mark{Index: 3}, Entries: []Entry{{Index: 3}}},
		"a reset with a gap": {Mark: &Mark{Index: 9, Reset: true}, Entries: []Entry{{Index: 11}}},
		"too large":          {Entries: []Entry{{Index: 4, Data: make([]byte, maxPayloadBytes/2+1)}}},
	} {
		if err := l.Append(b); err == nil || errors.Is(err, ErrFailed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := l.Append(Batch{}); err != nil || fs.Steps() != before {
		t.Errorf("nothing to write: %v, %d steps", err, fs.Steps()-before)
	}
	if err := l.Append(entries(4)); err != nil {
		t.Errorf("after refusals: %v", err)
	}
	// One batch may be larger than a segment.
	if err := l.Append(Batch{Entries: []Entry{{Index: 5, Data: make([]byte, 3*small().SegmentBytes)}}}); err != nil {
		t.Fatal(err)
	}
	l.Close()
	_, got, err := Open(fs.After(disktest.Fate{Names: -1}), small())
	if err != nil || len(got.Entries) != 3 || got.Mark.Index != 2 {
		t.Errorf("%s, %v", brief(got), err)
	}
}

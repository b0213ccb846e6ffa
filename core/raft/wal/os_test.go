package wal

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/fairlead/fairlead/core/raft/disk"
)

// The same work on a real file system.
func TestOnADisk(t *testing.T) {
	for seed := range uint64(5) {
		fs, err := disk.OpenOS(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		w := &work{r: rand.New(rand.NewPCG(seed, 2))}
		if err := w.run(fs); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			l, got, err := Open(fs, small())
			if err != nil || !same(got, w.done) || got.CutBytes != 0 {
				t.Fatalf("%s, want %s, %v", brief(got), brief(w.done), err)
			}
			l.Close()
		}
	}
}

// BenchmarkAppend writes batches of entries of 256 bytes to the disk of the
// temporary directory.
func BenchmarkAppend(b *testing.B) {
	for _, n := range []int{1, 64} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			fs, err := disk.OpenOS(b.TempDir())
			if err != nil {
				b.Fatal(err)
			}
			l, err := Create(fs, nil, Mark{}, HardState{}, Options{})
			if err != nil {
				b.Fatal(err)
			}
			defer l.Close()
			next := uint64(1)
			b.ReportAllocs()
			for b.Loop() {
				batch := Batch{Entries: make([]Entry, n)}
				for i := range batch.Entries {
					batch.Entries[i] = Entry{Index: next, Data: make([]byte, 256)}
					next++
				}
				if err := l.Append(batch); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

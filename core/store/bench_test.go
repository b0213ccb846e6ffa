package store

import (
	"fmt"
	"testing"
)

// filled returns a machine with n keys of 256 bytes.
func filled(b *testing.B, n int) *Machine {
	b.Helper()
	m := NewMachine()
	for i := range n {
		m.Apply(uint64(i+1), 1, []Command{benchPut(i)})
	}
	return m
}

func benchPut(i int) Command {
	return Command{Space: User, Op: &Op{Put: &PutOp{Key: fmt.Sprintf("key-%07d", i), Value: make([]byte, 256)}}}
}

// BenchmarkPut overwrites keys one by one; a view is taken after every 16th, as
// after a batch.
func BenchmarkPut(b *testing.B) {
	for _, n := range []int{1_000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			m := filled(b, n)
			commands := make([]Command, 1)
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				commands[0] = benchPut(i * 7919 % n)
				m.Apply(uint64(n+i), 1, commands)
				if i++; i%16 == 0 {
					m.View()
				}
				if i%100_000 == 0 { // history is not what is measured
					m.Apply(uint64(n+i), 1, []Command{{Space: User, Compact: &Compact{Revision: m.user.revision}}})
				}
			}
		})
	}
}

// BenchmarkGet reads one key.
func BenchmarkGet(b *testing.B) {
	v := filled(b, 100_000).View()
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		i++
		if r, err := v.Range(User, RangeOp{Range: Range{Key: "key-0012345"}}); err != nil || len(r.KVs) != 1 {
			b.Fatal(r, err)
		}
	}
}

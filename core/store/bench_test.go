package store

import (
	"fmt"
	"runtime"
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

// BenchmarkLoad fills a machine as a log does, in the order of keys and in none, and
// says how many bytes a key takes that has 20 itself, and 256 of value.
func BenchmarkLoad(b *testing.B) {
	const n = 1_000_000
	for _, order := range []struct {
		name string
		step int
	}{{"in-order", 1}, {"random", 7_919_317}} {
		b.Run(order.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				before := live()
				b.StartTimer()
				m := NewMachine()
				value := make([]byte, 256)
				for i := range n {
					put := PutOp{Key: fmt.Sprintf("key-%016d", i*order.step%n), Value: value}
					commands, err := DecodeCommands(EncodeCommands([]Command{{Space: User, Op: &Op{Put: &put}}}))
					if err != nil {
						b.Fatal(err)
					}
					m.Apply(uint64(i+1), 1, commands)
					if i%16 == 0 {
						m.View()
					}
				}
				b.StopTimer()
				b.ReportMetric(float64(live()-before)/n, "B/key")
				runtime.KeepAlive(m)
				b.StartTimer()
			}
		})
	}
}

// live is how many bytes are in use.
func live() int64 {
	var s runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&s)
	return int64(s.HeapAlloc)
}

// BenchmarkTxn compares a key and writes it and another one.
func BenchmarkTxn(b *testing.B) {
	const n = 100_000
	m := filled(b, n)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		one, other := benchPut(i*7919%n).Op, benchPut(i*104_729%n).Op
		if one.Put.Key == other.Put.Key {
			continue
		}
		txn := TxnOp{
			Compares: []Compare{{Range: Range{Key: one.Put.Key}, Target: TargetVersion, Relation: Greater}},
			Then:     []Op{*one, *other},
		}
		if r := m.Apply(uint64(n+i), 1, []Command{{Space: User, Op: &Op{Txn: &txn}}}); r[0].Err != nil {
			b.Fatal(r[0].Err)
		}
		if i%16 == 0 {
			m.View()
		}
		if i%50_000 == 49_999 { // history is not what is measured
			m.Apply(uint64(n+i), 1, []Command{{Space: User, Compact: &Compact{Revision: m.user.revision}}})
		}
	}
}

// BenchmarkRange reads 1,000 keys in a row.
func BenchmarkRange(b *testing.B) {
	v := filled(b, 100_000).View()
	b.ReportAllocs()
	for b.Loop() {
		if r, err := v.Range(User, RangeOp{Range: Range{Key: "key-0012000", End: "key-0013000"}}); err != nil || len(r.KVs) != 1000 {
			b.Fatal(r, err)
		}
	}
}

// BenchmarkSince reads what a watch of one key of a hundred is told of 1,000 writes.
func BenchmarkSince(b *testing.B) {
	m := filled(b, 100_000)
	for i := range 1000 {
		m.Apply(uint64(100_001+i), 1, []Command{benchPut(i)})
	}
	v := m.View()
	from := v.Stats(User).Revision - 999
	b.ReportAllocs()
	for b.Loop() {
		n := 0
		if err := v.Since(User, WithPrefix("key-000012"), from, func(Event) bool { n++; return true }); err != nil || n != 10 {
			b.Fatal(n, err)
		}
	}
}

// BenchmarkCompact replaces each of 100,000 keys once and compacts, time and again.
func BenchmarkCompact(b *testing.B) {
	const n = 100_000
	m := filled(b, n)
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		for i := range n {
			m.Apply(1, 1, []Command{benchPut(i * 7919 % n)})
		}
		m.View()
		b.StartTimer()
		m.Apply(1, 1, []Command{{Space: User, Compact: &Compact{Revision: m.user.revision}}})
	}
	b.ReportMetric(float64(live())/n, "B/key")
}

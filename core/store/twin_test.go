package store

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/test/scale"
)

// twin is a keyspace as dumb as it gets: all of every revision.
type twin struct {
	states    []map[string]KeyValue // by revision, from 1 on
	events    [][]Event             // by revision
	leases    map[LeaseID]int64
	compacted int64
}

func newTwin() *twin {
	return &twin{states: []map[string]KeyValue{nil, {}}, events: [][]Event{nil, nil}, leases: map[LeaseID]int64{}}
}

func (w *twin) revision() int64 { return int64(len(w.states) - 1) }

func (w *twin) now() map[string]KeyValue { return w.states[w.revision()] }

// write runs edit on a copy of the state and keeps it if something was written.
func (w *twin) write(edit func(state map[string]KeyValue, put func(KeyValue), drop func(string))) {
	next, revision := maps.Clone(w.now()), w.revision()+1
	var events []Event
	note := func(kv KeyValue) {
		e := Event{KV: kv}
		if old, ok := next[kv.Key]; ok {
			e.Prev = &old
		}
		events = append(events, e)
	}
	edit(next, func(kv KeyValue) {
		kv.Create, kv.Mod, kv.Version = revision, revision, 1
		if old, ok := next[kv.Key]; ok {
			kv.Create, kv.Version = old.Create, old.Version+1
		}
		note(kv)
		next[kv.Key] = kv
	}, func(key string) {
		note(KeyValue{Key: key, Mod: revision})
		delete(next, key)
	})
	if len(events) > 0 {
		w.states, w.events = append(w.states, next), append(w.events, events)
	}
}

func (w *twin) keys(state map[string]KeyValue, r Range) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(state)), func(k string) bool { return !r.Contains(k) })
}

// simulate draws commands, applies them to both and compares after each.
func simulate(t *testing.T, seed uint64, steps int) {
	r := rand.New(rand.NewPCG(seed, 1))
	m, w := NewMachine(), newTwin()
	var views []seen // old ones, which must stay what they were
	key := func() string { return string(rune('a' + r.IntN(8))) }
	keys := func() Range {
		switch r.IntN(4) {
		case 0:
			return Range{Key: key()}
		case 1:
			return Range{Key: key(), End: FromKey}
		}
		return Range{Key: key(), End: key()}
	}
	lease := func() LeaseID { return LeaseID(r.IntN(5)) }
	for step := range steps {
		var c Command
		c.Space = User
		want := Result{}
		switch n := r.IntN(100); {
		case n < 45:
			put := PutOp{Key: key(), Value: []byte(fmt.Sprint(r.IntN(5))), Lease: lease(), Prev: r.IntN(2) == 0}
			if r.IntN(10) == 0 {
				put.KeepValue, put.Value = true, nil
			}
			c.Op = &Op{Put: &put}
			old, there := w.now()[put.Key]
			_, leased := w.leases[put.Lease]
			switch {
			case put.Lease != 0 && !leased:
				want.Err = ErrLeaseNotFound
			case put.KeepValue && !there:
				want.Err = ErrKeyNotFound
			default:
				value := put.Value
				if put.KeepValue {
					value = old.Value
				}
				w.write(func(_ map[string]KeyValue, p func(KeyValue), _ func(string)) {
					p(KeyValue{Key: put.Key, Value: value, Lease: put.Lease})
				})
				want.Op.Put = &PutResult{}
				if put.Prev && there {
					want.Op.Put.Prev = &old
				}
			}
		case n < 60:
			del := DeleteOp{Range: keys(), Prev: r.IntN(2) == 0}
			c.Op = &Op{Delete: &del}
			want.Op.Delete = &DeleteResult{}
			w.write(func(state map[string]KeyValue, _ func(KeyValue), drop func(string)) {
				for _, k := range w.keys(state, del.Range) {
					want.Op.Delete.Deleted++
					if del.Prev {
						want.Op.Delete.Prev = append(want.Op.Delete.Prev, state[k])
					}
					drop(k)
				}
			})
		case n < 70:
			id := LeaseID(1 + r.IntN(4))
			c.Grant = &Grant{ID: id, TTLSeconds: 10}
			if _, ok := w.leases[id]; ok {
				want.Err = ErrLeaseExists
			} else {
				w.leases[id] = 10
			}
		case n < 75:
			id := LeaseID(1 + r.IntN(4))
			c.Revoke = &Revoke{ID: id}
			if _, ok := w.leases[id]; !ok {
				want.Err = ErrLeaseNotFound
				break
			}
			delete(w.leases, id)
			w.write(func(state map[string]KeyValue, _ func(KeyValue), drop func(string)) {
				for _, k := range w.keys(state, Range{Key: "a", End: FromKey}) {
					if state[k].Lease == id {
						drop(k)
					}
				}
			})
		case n < 80:
			at := w.compacted + int64(r.IntN(12)) - 1
			c.Compact = &Compact{Revision: at}
			switch {
			case at <= w.compacted:
				want.Err = ErrCompacted
			case at > w.revision():
				want.Err = ErrFutureRevision
			default:
				w.compacted = at
			}
		default:
			one, other := key(), key()
			cmp := Compare{Range: Range{Key: key()}, Target: TargetVersion, Relation: Relation(r.IntN(4)), Number: int64(r.IntN(3))}
			txn := TxnOp{
				Compares: []Compare{cmp},
				Then:     []Op{{Put: &PutOp{Key: one, Value: []byte("then")}}, {Range: &RangeOp{Range: Range{Key: "a", End: FromKey}}}},
				Else:     []Op{{Delete: &DeleteOp{Range: Range{Key: one}}}, {Put: &PutOp{Key: other, Value: []byte("else")}}},
			}
			c.Op = &Op{Txn: &txn}
			if one == other {
				want.Err = ErrDuplicateKey
				break
			}
			version := w.now()[cmp.Key].Version
			holds := map[Relation]bool{Equal: version == cmp.Number, Greater: version > cmp.Number, Less: version < cmp.Number, NotEqual: version != cmp.Number}[cmp.Relation]
			out := &TxnResult{Succeeded: holds}
			w.write(func(state map[string]KeyValue, put func(KeyValue), drop func(string)) {
				if holds {
					put(KeyValue{Key: one, Value: []byte("then")})
					all := &RangeResult{}
					for _, k := range w.keys(state, Range{Key: "a", End: FromKey}) {
						all.KVs, all.Count = append(all.KVs, state[k]), all.Count+1
					}
					out.Results = []OpResult{{Put: &PutResult{}}, {Range: all}}
					return
				}
				gone := &DeleteResult{}
				if _, ok := state[one]; ok {
					gone.Deleted = 1
					drop(one)
				}
				put(KeyValue{Key: other, Value: []byte("else")})
				out.Results = []OpResult{{Delete: gone}, {Put: &PutResult{}}}
			})
			want.Op.Txn = out
		}
		text := EncodeCommands([]Command{c})
		commands, err := DecodeCommands(text)
		if err != nil || !reflect.DeepEqual(commands, []Command{c}) {
			t.Fatalf("seed %d, step %d: %+v was read back as %+v, %v", seed, step, c, commands, err)
		}
		got := m.Apply(uint64(step+1), 1, commands)[0]
		want.Revision = w.revision()
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("seed %d, step %d: %+v gave\n%+v, want\n%+v", seed, step, c, got, want)
		}
		if back, err := DecodeResult(EncodeResult(got)); err != nil || !reflect.DeepEqual(back, got) {
			t.Fatalf("seed %d, step %d: %+v was read back as %+v, %v", seed, step, got, back, err)
		}
		view := m.View()
		sameAs(t, view, w, fmt.Sprintf("seed %d, step %d", seed, step))
		if step%17 == 0 {
			m = restored(t, view)
			sameAs(t, m.View(), w, fmt.Sprintf("seed %d, step %d, restored", seed, step))
		}
		if step%29 == 0 {
			views = append(views, seen{view, everything(t, view)})
		}
	}
	for _, v := range views {
		if d := restored(t, v.View).View().Digest(); d != v.Digest() || everything(t, v.View) != v.text {
			t.Fatalf("invariant views-stay: seed %d: the view of entry %d changed", seed, v.index)
		}
	}
}

// seen is a view, and what it said when it was taken.
type seen struct {
	*View
	text string
}

// everything is all that a view says of the keys and leases of the user.
func everything(t *testing.T, v *View) string {
	t.Helper()
	all := Range{Key: "a", End: FromKey}
	r, err := v.Range(User, RangeOp{Range: all})
	if err != nil {
		t.Fatal(err)
	}
	var events []Event
	if err := v.Since(User, all, v.Stats(User).Compacted, func(e Event) bool { events = append(events, e); return true }); err != nil {
		t.Fatal(err)
	}
	out := fmt.Sprintf("%+v\n%s", r, describe(events))
	v.Leases(User, func(id LeaseID, _ int64) bool {
		info, _ := v.Lease(User, id)
		out += fmt.Sprintf("%+v\n", info)
		return true
	})
	return out
}

// restored sends a view through a snapshot.
func restored(t *testing.T, v *View) *Machine {
	t.Helper()
	var b bytes.Buffer
	if err := v.Encode(func(p []byte) error { _, err := b.Write(p); return err }); err != nil {
		t.Fatal(err)
	}
	m, err := Decode(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if got, want := m.View().Digest(), v.Digest(); got != want {
		t.Fatalf("invariant snapshot-is-the-state: the digest of the snapshot is %v, want %v", got, want)
	}
	return m
}

// sameAs compares all that a view can be asked for.
func sameAs(t *testing.T, v *View, w *twin, when string) {
	t.Helper()
	all := Range{Key: "a", End: FromKey}
	for at := int64(1); at <= w.revision()+1; at++ {
		got, err := v.Range(User, RangeOp{Range: all, Revision: at})
		switch {
		case at > w.revision():
			if err != ErrFutureRevision {
				t.Fatalf("%s: revision %d: %v", when, at, err)
			}
			continue
		case at < w.compacted:
			if err != ErrCompacted {
				t.Fatalf("%s: revision %d: %v", when, at, err)
			}
			continue
		case err != nil:
			t.Fatalf("%s: revision %d: %v", when, at, err)
		}
		var want []KeyValue
		for _, k := range w.keys(w.states[at], all) {
			want = append(want, w.states[at][k])
		}
		if !reflect.DeepEqual(got.KVs, want) {
			t.Fatalf("invariant past: %s: at revision %d there is\n%v, want\n%v", when, at, got.KVs, want)
		}
	}
	var got []Event
	if err := v.Since(User, all, w.compacted, func(e Event) bool { got = append(got, e); return true }); err != nil {
		t.Fatalf("%s: %v", when, err)
	}
	var want []Event
	for at := max(w.compacted, 1); at <= w.revision(); at++ {
		for _, e := range w.events[at] {
			if at == w.compacted && e.Prev != nil {
				e.Prev = nil // it is compacted
			}
			want = append(want, e)
		}
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("invariant history: %s: since %d there was\n%v, want\n%v", when, w.compacted, describe(got), describe(want))
	}
	for id := LeaseID(1); id < 5; id++ {
		info, there := v.Lease(User, id)
		if _, want := w.leases[id]; there != want {
			t.Fatalf("%s: lease %d: %v, want %v", when, id, there, want)
		}
		var keys []string
		for _, k := range w.keys(w.now(), all) {
			if w.now()[k].Lease == id {
				keys = append(keys, k)
			}
		}
		if there && !slices.Equal(info.Keys, keys) {
			t.Fatalf("%s: lease %d has the keys %v, want %v", when, id, info.Keys, keys)
		}
	}
	bytesThere(t, v.user, when)
}

// bytesThere counts what the space says that it holds.
func bytesThere(t *testing.T, s *space, when string) {
	t.Helper()
	fresh := newSpace()
	s.leases.Scan(func(id LeaseID, l *lease) bool { fresh.addLease(id, l.ttlSeconds); return true })
	s.eachVersion(func(key string, v version) bool { fresh.count(key, v); return true })
	if fresh.bytes != s.bytes || fresh.digest != s.digest {
		t.Fatalf("%s: %d bytes, digest %v; counted anew %d, %v", when, s.bytes, s.digest, fresh.bytes, fresh.digest)
	}
}

func describe(events []Event) string {
	var b strings.Builder
	for _, e := range events {
		fmt.Fprintf(&b, "%+v", e.KV)
		if e.Prev != nil {
			fmt.Fprintf(&b, " after %+v", *e.Prev)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// TestTwin compares the machine with one that keeps every state whole.
func TestTwin(t *testing.T) {
	for seed := range uint64(scale.N(400)) {
		simulate(t, seed, 120)
	}
}

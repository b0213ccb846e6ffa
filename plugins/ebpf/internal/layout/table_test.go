package layout

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/test/scale"
)

// world is a table, its twin, and the services that should be there.
type world struct {
	t        *testing.T
	r        *rand.Rand
	kernel   *twin
	table    *Table
	services map[dataplane.Key]*dataplane.Service
}

func newWorld(t *testing.T, seed uint64, size Size) *world {
	k := newTwin(size)
	return &world{t: t, r: rand.New(rand.NewPCG(seed, 7)), kernel: k, table: NewTable(k, size), services: make(map[dataplane.Key]*dataplane.Service)}
}

// generation changes some services, as a delta does: services may take what others
// leave in the same generation. What cannot be done leaves the service as it was.
func (w *world) generation() {
	next := make(map[dataplane.Key]*dataplane.Service)
	owner := make(map[dataplane.Binding]dataplane.Key)
	for k, svc := range w.services {
		next[k] = svc
	}
	var changed []dataplane.Key
	for range 1 + w.r.IntN(4) {
		k := key(w.r.IntN(6))
		if !slices.Contains(changed, k) {
			changed = append(changed, k)
			delete(next, k)
		}
	}
	for k, svc := range next {
		for _, f := range svc.Frontends {
			owner[f.Binding()] = k
		}
	}
	for _, k := range changed {
		if w.r.IntN(4) == 0 {
			continue // removed
		}
		svc := randomService(w.r, k, func(b dataplane.Binding) bool { _, taken := owner[b]; return !taken })
		for _, f := range svc.Frontends {
			owner[f.Binding()] = k
		}
		next[k] = svc
	}
	together := w.r.IntN(2) == 0
	var sets []*dataplane.Service
	for _, k := range changed {
		w.somebodyConnects()
		switch {
		case next[k] == nil:
			w.table.Remove(k)
			delete(w.services, k)
		case together:
			sets = append(sets, next[k])
		default:
			w.set(next[k])
		}
	}
	w.setAll(sets)
	w.somebodyConnects()
	if _, err := w.table.Finish(); err != nil && !errors.Is(err, errKernel) {
		w.t.Fatal(err)
	}
}

func (w *world) set(svc *dataplane.Service) {
	e := w.entry(svc)
	_, err := w.table.Set(e.Key, e.Plan, e.Has)
	w.was(svc, err)
}

// setAll also holds that each service is answered for once.
func (w *world) setAll(list []*dataplane.Service) {
	var entries []Entry
	for _, svc := range list {
		entries = append(entries, w.entry(svc))
	}
	answers := make([]int, len(list))
	w.table.SetAll(entries, func(i int, c Change, err error) {
		answers[i]++
		if err == nil && c.ID != w.table.ID(list[i].Key) {
			w.t.Fatalf("%s has id %d, was told %d", list[i].Key, w.table.ID(list[i].Key), c.ID)
		}
		w.was(list[i], err)
	})
	if slices.ContainsFunc(answers, func(n int) bool { return n != 1 }) {
		w.t.Fatalf("answers for each of %d services: %v", len(list), answers)
	}
}

func (w *world) entry(svc *dataplane.Service) Entry {
	plan, problem := Compile(svc)
	if problem != nil && problem.Status != dataplane.StatusPartial {
		w.t.Fatalf("%+v", problem)
	}
	return Entry{svc.Key, plan, ids(svc)}
}

// was notes how it went.
func (w *world) was(svc *dataplane.Service, err error) {
	switch {
	case err == nil:
		for k, other := range w.services { // what it took from others is not theirs any more
			if k != svc.Key {
				w.services[k] = without(other, svc)
			}
		}
		w.services[svc.Key] = svc
	case !errors.Is(err, errKernel) && !errors.Is(err, ErrFull):
		w.t.Fatal(err)
	}
}

// without returns a service less the frontends of another.
func without(svc, taker *dataplane.Service) *dataplane.Service {
	left := slices.DeleteFunc(slices.Clone(svc.Frontends), func(f dataplane.Frontend) bool {
		return slices.ContainsFunc(taker.Frontends, func(o dataplane.Frontend) bool { return o.Binding() == f.Binding() })
	})
	if len(left) == len(svc.Frontends) {
		return svc
	}
	smaller := *svc
	smaller.Frontends = left
	return &smaller
}

func (w *world) somebodyConnects() {
	for range 3 {
		w.kernel.start(randomBinding(w.r), Scope(w.r.IntN(2)))
	}
	if w.kernel.broken != nil {
		w.t.Fatal(w.kernel.broken)
	}
}

func (w *world) check(when string) {
	w.t.Helper()
	if w.kernel.broken != nil {
		w.t.Fatal(when, w.kernel.broken)
	}
	compare(w.t, when, w.kernel.answers(), wanted(w.services))
	if w.table.Len() != len(w.services) {
		w.t.Fatalf("%s: the table has %d services, want %d", when, w.table.Len(), len(w.services))
	}
}

// TestMapsEqualModel: 10k random generations, map content equals the model exactly,
// while programs run that saw older content.
func TestMapsEqualModel(t *testing.T) {
	roomy := Size{Frontends: [Families]uint32{43, 21}, Services: 16, Slots: [Families]uint32{512, 512}}
	for seed := range uint64(10) {
		t.Run(fmt.Sprint("seed", seed), func(t *testing.T) {
			w := newWorld(t, seed, roomy)
			for n := range scale.N(1000) {
				w.generation()
				w.check(fmt.Sprint("generation ", n))
			}
			if w.kernel.graces == 0 {
				t.Error("nothing was ever used again")
			}
		})
	}
}

// TestFailuresLeaveServicesAsTheyWere: no room, and a kernel that refuses.
func TestFailuresLeaveServicesAsTheyWere(t *testing.T) {
	tight := Size{Frontends: [Families]uint32{6, 3}, Services: 5, Slots: [Families]uint32{48, 24}}
	for seed := range uint64(10) {
		t.Run(fmt.Sprint("seed", seed), func(t *testing.T) {
			w := newWorld(t, seed, tight)
			for n := range scale.N(1000) {
				failing := w.r.IntN(2) == 0
				w.kernel.refuse = func() bool { return failing && w.r.IntN(4) == 0 }
				w.generation()
				failing = false
				if _, err := w.table.Finish(); err != nil {
					t.Fatal(err)
				}
				w.check(fmt.Sprint("generation ", n))
			}
		})
	}
}

// TestAdoptGoesOn: a process that finds the maps knows all that the one before knew.
func TestAdoptGoesOn(t *testing.T) {
	size := Size{Frontends: [Families]uint32{43, 21}, Services: 16, Slots: [Families]uint32{512, 512}}
	for seed := range uint64(10) {
		w := newWorld(t, seed, size)
		for n := range scale.N(300) {
			w.generation()
			if n%10 != 9 {
				continue
			}
			before := w.table
			var err error
			if w.table, err = Adopt(w.kernel, size, w.kernel.dump()); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			if _, err := w.table.Finish(); err != nil {
				t.Fatal(err)
			}
			w.check(fmt.Sprint("adopted ", n))
			if w.table.Len() != before.Len() || len(w.table.Frontends()) != len(before.Frontends()) {
				t.Fatalf("seed %d: adopted %d services, %d frontends; before %d, %d", seed, w.table.Len(), len(w.table.Frontends()), before.Len(), len(before.Frontends()))
			}
			for _, svc := range w.services {
				plan, _ := Compile(svc)
				if c, err := w.table.Set(svc.Key, plan, ids(svc)); err != nil || c.Operations != 0 && len(svc.Frontends) > 0 {
					t.Fatalf("seed %d: told the same, the adopted table made %d operations (%v)", seed, c.Operations, err)
				}
			}
		}
	}
}

// TestCopyAnswersTheSame: the maps made anew, with other sizes, say the same.
func TestCopyAnswersTheSame(t *testing.T) {
	w := newWorld(t, 3, Size{Frontends: [Families]uint32{43, 21}, Services: 16, Slots: [Families]uint32{512, 512}})
	for range scale.N(300) {
		w.generation()
		size := Size{Frontends: [Families]uint32{86, 42}, Services: 32, Slots: [Families]uint32{256, 1024}}
		fresh := newTwin(size)
		copied, err := w.table.CopyTo(fresh, size)
		if err != nil {
			t.Fatal(err)
		}
		old := w.table
		w.kernel, w.table = fresh, copied
		w.check("copied")
		old.MoveHits(copied)
		var was, is uint64
		for v := range old.Services {
			was += v.Hits.Total
		}
		for v := range copied.Services {
			is += v.Hits.Total
		}
		if was != is {
			t.Fatalf("%d hits before the copy, %d after", was, is)
		}
	}
}

// TestHitsOnlyRise over sets that come and go.
func TestHitsOnlyRise(t *testing.T) {
	w := newWorld(t, 5, Size{Frontends: [Families]uint32{43, 21}, Services: 16, Slots: [Families]uint32{64, 64}})
	before := make(map[uint32]uint64)
	for range scale.N(2000) {
		w.generation()
		for v := range w.table.Services {
			id := w.table.ID(v.Key)
			if v.Hits.Total < before[id] {
				t.Fatalf("hits of %s fell from %d to %d", v.Key, before[id], v.Hits.Total)
			}
			before[id] = v.Hits.Total
		}
	}
}

func TestSetTellsWhoVanished(t *testing.T) {
	w := newWorld(t, 1, Size{Frontends: [Families]uint32{3, 1}, Services: 4, Slots: [Families]uint32{64, 64}})
	svc := randomService(w.r, key(1), func(dataplane.Binding) bool { return false })
	svc.Frontends = []dataplane.Frontend{{Addr: randomBinding(w.r).Addr, Protocol: dataplane.TCP, Kind: dataplane.FrontendVIP}}
	set := func(states ...dataplane.EndpointState) Change {
		var list []dataplane.Endpoint
		for i, s := range states {
			if s == 99 {
				continue
			}
			addr := svc.Frontends[0].Addr.Addr().Next().Next()
			list = append(list, dataplane.Endpoint{ID: uint64(i + 1), Weight: 1, State: s, Addr: addrPort(addr, 8000+i)})
		}
		next := *svc
		next.Endpoints = dataplane.NewEndpoints(list...)
		plan, _ := Compile(&next)
		c, err := w.table.Set(next.Key, plan, ids(&next))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	const gone = 99
	if c := set(0, 0, 0); len(c.Vanished) != 0 || c.ID == 0 {
		t.Errorf("at first %+v", c)
	}
	if c := set(0, dataplane.Draining, 0); len(c.Vanished) != 0 {
		t.Errorf("one drains: %+v, it is still the service's", c)
	}
	if c := set(0, dataplane.Draining, gone); !slices.Equal(c.Vanished, []uint64{3}) {
		t.Errorf("one gone: %+v", c)
	}
	if c := w.table.Remove(svc.Key); !slices.Equal(c.Vanished, []uint64{1}) {
		t.Errorf("removed: %+v", c)
	}
}

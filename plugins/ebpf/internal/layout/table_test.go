package layout

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
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
	for _, k := range changed {
		w.somebodyConnects()
		switch {
		case next[k] == nil:
			w.table.Remove(k)
			delete(w.services, k)
		default:
			w.set(next[k])
		}
	}
	w.somebodyConnects()
	w.table.Finish()
}

func (w *world) set(svc *dataplane.Service) {
	plan, problem := Compile(svc)
	if problem != nil && problem.Status != dataplane.StatusPartial {
		w.t.Fatalf("%+v", problem)
	}
	_, err := w.table.Set(svc.Key, plan, ids(svc))
	w.was(svc, err)
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
	if err := w.table.Check(); err != nil {
		w.t.Fatal(when, err)
	}
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
				w.table.Finish()
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
			if w.table, err = Adopt(w.kernel, size); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			w.table.Finish()
			w.check(fmt.Sprint("adopted ", n))
			if w.table.Len() != before.Len() || len(w.table.frontends) != len(before.frontends) {
				t.Fatalf("seed %d: adopted %d services, %d frontends; before %d, %d", seed, w.table.Len(), len(w.table.frontends), before.Len(), len(before.frontends))
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
		w.somebodyConnects() // to what is in the old maps
		old := tallies(w.table)
		w.kernel, w.table = fresh, copied.Table()
		w.check("copied")
		w.somebodyConnects()
		fresh.hits = 0
		before := sum(tallies(w.table))
		copied.CatchUp()
		for k, was := range old {
			is := tallies(w.table)[k]
			for id, n := range was.Endpoint {
				if is.Endpoint[id] < n {
					t.Fatalf("%d hits of %v/%d before the copy, %d after", n, k, id, is.Endpoint[id])
				}
			}
		}
		if is := sum(tallies(w.table)); is < before || is < sum(old) {
			t.Fatalf("%d in the old maps, %d in the new before they caught up, %d after", sum(old), before, is)
		}
	}
}

// tallies are what is counted of each service.
func tallies(t *Table) map[dataplane.Key]Tally {
	out := make(map[dataplane.Key]Tally)
	for v := range t.Services {
		out[v.Key] = v.Hits
	}
	return out
}

// sum is all that was counted of services.
func sum(all map[dataplane.Key]Tally) (n uint64) {
	for _, y := range all {
		n += y.Total
		for c, m := range y.Count {
			if Count(c) != Past { // which is in the total
				n += m
			}
		}
	}
	return n
}

// TestNoCountIsLost over sets that come and go, and processes: no count of a service
// that stays falls, nor of an endpoint that stays in it, but for one that takes no
// connections when another process goes on: that begins anew.
func TestNoCountIsLost(t *testing.T) {
	size := Size{Frontends: [Families]uint32{43, 21}, Services: 16, Slots: [Families]uint32{64, 64}}
	for seed := range uint64(5) {
		w := newWorld(t, seed, size)
		before, numbers := make(map[dataplane.Key]Tally), make(map[dataplane.Key]uint32)
		removed := uint64(0)
		for n := range scale.N(2000) {
			w.generation()
			adopted := n%7 == 6
			robbed := make(map[dataplane.Key]bool)
			if adopted { // another process goes on
				for k, rec := range w.table.services {
					for f := range rec.places() {
						robbed[k] = robbed[k] || !slices.ContainsFunc(w.services[k].Frontends, func(fe dataplane.Frontend) bool { return FamilyOf(fe.Addr.Addr()) == f })
					}
				}
				if _, err := w.table.reclaim(); err != nil {
					t.Fatal(err)
				}
				var err error
				if w.table, err = Adopt(w.kernel, size); err != nil {
					t.Fatal(err)
				}
			}
			now := tallies(w.table)
			for k, was := range before {
				if w.table.ID(k) != numbers[k] {
					removed += sum(map[dataplane.Key]Tally{k: was})
					continue
				}
				if adopted && robbed[k] {
					continue // nothing leads to its set any more
				}
				is := now[k]
				for id, n := range was.Endpoint {
					if still := slices.Contains(ids(w.services[k]), id); still && !adopted && is.Endpoint[id] < n {
						t.Fatalf("seed %d: hits of endpoint %d of %s fell from %d to %d", seed, id, k, n, is.Endpoint[id])
					}
				}
				if is.Total < was.Total || is.Count[EmptyRefused] < was.Count[EmptyRefused] {
					t.Fatalf("seed %d: %s fell from %+v to %+v", seed, k, was, is)
				}
			}
			before = now
			clear(numbers)
			for k := range now {
				numbers[k] = w.table.ID(k)
			}
		}
		// What was counted is there, but for services that went since they were last
		// looked at: no more than those counted in one generation each.
		if there := sum(before); there+removed > w.kernel.hits || there == 0 {
			t.Errorf("seed %d: %d counted, of which %d are there and %d were of services that went", seed, w.kernel.hits, there, removed)
		}
	}
}

// TestReplacedSetHandsItsHitsOn exactly: nothing is lost, nothing twice.
func TestReplacedSetHandsItsHitsOn(t *testing.T) {
	w := newWorld(t, 1, Size{Frontends: [Families]uint32{3, 1}, Services: 4, Slots: [Families]uint32{64, 64}})
	svc := &dataplane.Service{Key: key(1), Frontends: []dataplane.Frontend{{Addr: netip.MustParseAddrPort("10.0.0.1:80"), Protocol: dataplane.TCP, Kind: dataplane.FrontendVIP}}}
	set := func(ids ...uint64) {
		t.Helper()
		var list []dataplane.Endpoint
		for _, id := range ids {
			list = append(list, dataplane.Endpoint{ID: id, Weight: 1, Addr: netip.AddrPortFrom(netip.MustParseAddr("192.168.0.1"), uint16(id))})
		}
		next := *svc
		next.Endpoints = dataplane.NewEndpoints(list...)
		w.set(&next)
		w.table.Finish()
	}
	connect := func() { w.kernel.start(svc.Frontends[0].Binding(), Home) }
	set(1, 2, 3)
	for range 60 {
		connect()
	}
	entry, _ := w.kernel.find(svc.Frontends[0].Binding())
	word := w.kernel.word(V4, entry, Home)
	set(2, 3, 4)
	w.kernel.Slots(V4, word.Set()+1, 1)[hitsWord(V4)] += 5 // of endpoint 2, by a program that began before
	check := func(when string, total uint64, endpoints map[uint64]uint64, refused uint64) {
		t.Helper()
		got := tallies(w.table)[svc.Key]
		if got.Total != total || !maps.Equal(got.Endpoint, endpoints) || got.Count[EmptyRefused] != refused {
			t.Errorf("%s: %+v, want %d %v, %d refused", when, got, total, endpoints, refused)
		}
	}
	check("replaced", 65, map[uint64]uint64{2: 25, 3: 20}, 0)
	if _, err := w.table.reclaim(); err != nil {
		t.Fatal(err)
	}
	check("after a grace", 65, map[uint64]uint64{2: 25, 3: 20}, 0)
	set(3)
	set(2, 3)
	check("away for a while, and removed in between", 65, map[uint64]uint64{3: 20}, 0)
	rest := func(ids ...uint64) {
		t.Helper()
		plan := Plan{Frontends: svc.Frontends}
		plan.Needs[V4], plan.Shared[V4] = true, true
		if _, err := w.table.Set(svc.Key, plan, ids); err != nil {
			t.Fatal(err)
		}
	}
	rest(2, 3)
	check("they take no connections", 65, map[uint64]uint64{3: 20}, 0)
	connect()
	connect()
	set(3)
	check("one is back", 65, map[uint64]uint64{3: 20}, 2)
	connect()
	check("and in use", 66, map[uint64]uint64{3: 21}, 2)
	var err error
	if w.table, err = Adopt(w.kernel, w.table.size); err != nil {
		t.Fatal(err)
	}
	check("by the next process", 66, map[uint64]uint64{3: 21}, 2)
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

// TestServiceIDsAreNotUsedAgain, not by the next process either, when the last service
// has gone: sockets remember the id.
func TestServiceIDsAreNotUsedAgain(t *testing.T) {
	size := Size{Frontends: [Families]uint32{3, 1}, Services: 4, Slots: [Families]uint32{8, 8}}
	k := newTwin(size)
	table := NewTable(k, size)
	var last uint32
	for range 5 {
		c, err := table.Set(key(1), Plan{}, nil)
		if err != nil || c.ID <= last {
			t.Fatalf("id %d after %d, %v", c.ID, last, err)
		}
		last = c.ID
		table.Remove(key(1))
		table.Finish()
		if table, err = Adopt(k, size); err != nil {
			t.Fatal(err)
		}
	}
}

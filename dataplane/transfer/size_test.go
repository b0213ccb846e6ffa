package transfer

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/fairlead/fairlead/dataplane"
	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
)

// What a generation may take on the wire, encoded, without the framing of gRPC.
const (
	maxUnchanged = 200       // Begin and Commit
	maxFlip      = 512       // one endpoint's state
	maxChurn     = 40 << 10  // a hundredth of 10,000 × 10 endpoints changed
	maxHeld      = 7_500_000 // memory of an assembler with 10,000 × 10 endpoints

	maxDeltaGarbage = 64 << 10 // what one flip allocates beside 10,000 services
)

func deltaOf(t testing.TB, e *Encoder, from, to *dataplane.Snapshot) wire {
	t.Helper()
	d := dataplane.Diff(from, to, func(dataplane.Key, dataplane.Endpoint) dataplane.Removal {
		return dataplane.Removal{Reason: dataplane.RemovedDead, SuspectedSince: time.Unix(1_700_000_000, 123_456_789)}
	})
	return encoded(t, Begin(to, from.Generation, false), e.Delta(d))
}

// TestSizesOfAFleet measures what 10,000 services with 10 endpoints each take,
// in memory and on the wire.
func TestSizesOfAFleet(t *testing.T) {
	s := fleet(10_000, 10)
	e, a := NewEncoder(), NewAssembler(dataplane.Limits{})
	whole := encoded(t, Begin(s, 0, false), e.Snapshot(s))
	t.Logf("10,000 × 10: %d bytes in %d messages", whole.size(), len(whole.changes)+1)
	before := heap()
	whole.apply(t, a)
	held := heap() - before
	t.Logf("10,000 × 10 held: %.2f MB", float64(held)/1e6)
	if held > maxHeld {
		t.Errorf("%d bytes are held, %d at most", held, maxHeld)
	}
	// Told again as another generation it takes no more.
	s.Generation++
	whole.begin = encoded(t, Begin(s, 0, false), slices.Values([]*pb.Change(nil))).begin
	if d := whole.apply(t, a); len(d.Changes) != 0 {
		t.Errorf("the same again changes %d services", len(d.Changes))
	}
	if later := heap() - before; float64(later) > 1.1*float64(held) {
		t.Errorf("%d bytes after another snapshot, %d after the first", later, held)
	}

	unchanged := encoded(t, Begin(s, s.Generation, false), slices.Values([]*pb.Change(nil)))
	if n := unchanged.size(); n > maxUnchanged {
		t.Errorf("unchanged takes %d bytes, %d at most", n, maxUnchanged)
	} else {
		t.Logf("unchanged: %d bytes", n)
	}

	flipped := edited(s, func(e *dataplane.Editor) { flip(e, dataplane.Key{Namespace: "default", Name: "service-5000"}) })
	w := deltaOf(t, e, s, flipped)
	if n := w.size(); n > maxFlip {
		t.Errorf("one flip takes %d bytes, %d at most", n, maxFlip)
	} else {
		t.Logf("one flip: %d bytes", n)
	}
	if d := w.apply(t, a); len(d.Changes) != 1 || d.Changes[0].Upserted.Len() != 1 || d.Changes[0].Definition() {
		t.Errorf("one flip arrives as %v", plain(d))
	}

	// A node dies: a hundredth of all endpoints is gone.
	const lost = 1000
	churned := edited(flipped, func(e *dataplane.Editor) {
		for i := range lost {
			svc := *e.Service(dataplane.Key{Namespace: "default", Name: fmt.Sprintf("service-%d", i*10)})
			svc.Endpoints = dataplane.NewEndpoints(svc.Endpoints.Slice()[1:]...)
			e.Set(&svc)
		}
	})
	w = deltaOf(t, e, flipped, churned)
	if n := w.size(); n > maxChurn {
		t.Errorf("%d endpoints gone take %d bytes, %d at most", lost, n, maxChurn)
	} else {
		t.Logf("%d endpoints gone: %d bytes", lost, n)
	}
	if d := w.apply(t, a); len(d.Changes) != lost {
		t.Errorf("%d changes arrive", len(d.Changes))
	}
	// Another node is suspected, and half of its endpoints come up elsewhere.
	moved := edited(churned, func(e *dataplane.Editor) {
		for i := range lost {
			svc := *e.Service(dataplane.Key{Namespace: "default", Name: fmt.Sprintf("service-%d", i*10)})
			list := svc.Endpoints.Slice()
			list[0].State = dataplane.Suspect
			svc.Endpoints = dataplane.NewEndpoints(list...)
			e.Set(&svc)
		}
	})
	w = deltaOf(t, e, churned, moved)
	if n := w.size(); n > maxChurn/2 {
		t.Errorf("%d endpoints suspected take %d bytes, %d at most", lost, n, maxChurn/2)
	} else {
		t.Logf("%d endpoints suspected: %d bytes", lost, n)
	}
	w.apply(t, a)
	replaced := edited(moved, func(e *dataplane.Editor) {
		for i := range lost / 2 {
			svc := *e.Service(dataplane.Key{Namespace: "default", Name: fmt.Sprintf("service-%d", i*10)})
			list := svc.Endpoints.Slice()
			list[0].ID += 1 << 40
			list[0].Addr = address(10, 9, 99, byte(i), 20000)
			svc.Endpoints = dataplane.NewEndpoints(list...)
			e.Set(&svc)
		}
	})
	w = deltaOf(t, e, moved, replaced)
	if n := w.size(); n > maxChurn {
		t.Errorf("%d endpoints replaced take %d bytes, %d at most", lost/2, n, maxChurn)
	} else {
		t.Logf("%d endpoints replaced: %d bytes", lost/2, n)
	}
	moved = replaced
	w.apply(t, a)
	if diff := difference(tableOf(a.Given()), tableOf(moved)); diff != "" {
		t.Error(diff)
	}
}

// TestASmallDeltaLeavesLittleGarbage: it does not pay for the services that it
// leaves alone.
func TestASmallDeltaLeavesLittleGarbage(t *testing.T) {
	const deltas = 20
	s := fleet(10_000, 1)
	e, a := NewEncoder(), NewAssembler(dataplane.Limits{})
	encoded(t, Begin(s, 0, false), e.Snapshot(s)).apply(t, a)
	var flips []wire
	for range deltas {
		next := edited(s, func(e *dataplane.Editor) { flip(e, fleetService(5000, 0).Key) })
		flips = append(flips, deltaOf(t, e, s, next))
		s = next
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for _, w := range flips {
		w.apply(t, a)
	}
	runtime.ReadMemStats(&after)
	if n := (after.TotalAlloc - before.TotalAlloc) / deltas; n > maxDeltaGarbage {
		t.Errorf("one flip allocates %d bytes, %d at most", n, maxDeltaGarbage)
	}
}

func TestMessagesAreBounded(t *testing.T) {
	long := strings.Repeat("x", dataplane.MaxEndpointTextBytes)
	edit := (&dataplane.Snapshot{}).Edit()
	for i := range 3 {
		svc := fleetService(i, 400)
		list := svc.Endpoints.Slice()
		for j := range list {
			list[j].Name, list[j].Zone = long, ""
		}
		svc.Endpoints = dataplane.NewEndpoints(list...)
		for len(svc.Hosts) < 4 {
			svc.Hosts = append(svc.Hosts, strings.Repeat("h", 60<<10))
		}
		if p := svc.Check(); p != nil {
			t.Fatal(p.Message)
		}
		edit.Set(svc)
	}
	// The longest definitions that pass, made of the shortest parts.
	for i, fill := range []func(*dataplane.Service){
		func(s *dataplane.Service) { s.Hosts = slices.Repeat([]string{""}, 8100) },
		func(s *dataplane.Service) { s.Routes = slices.Repeat([]dataplane.Route{{}}, 8100) },
		func(s *dataplane.Service) {
			s.Routes = []dataplane.Route{{Methods: slices.Repeat([]string{"G"}, 7800)}}
		},
		func(s *dataplane.Service) {
			h := map[string]string{}
			for i := range 7000 {
				h[fmt.Sprint(i)] = "v"
			}
			s.Routes = []dataplane.Route{{Headers: h}}
		},
		func(s *dataplane.Service) {
			for i := range 8100 {
				f := fleetService(3, 0).Frontends[0]
				f.Addr = address(10, 99, byte(i>>8), byte(i), 80)
				s.Frontends = append(s.Frontends, f)
			}
		},
	} {
		svc := &dataplane.Service{Key: dataplane.Key{Namespace: "long", Name: fmt.Sprint(i)}}
		fill(svc)
		if p := svc.Check(); p != nil {
			t.Fatal(p.Message)
		}
		edit.Set(svc)
	}
	s := edit.Done()
	s.Session, s.Generation, s.Completeness = dataplane.Session{AgentID: "a", BootEpoch: 1}, 1, dataplane.Exchanged
	n, most := 0, 0
	w := encoded(t, Begin(s, 0, false), func(yield func(*pb.Change) bool) {
		for c := range NewEncoder().Snapshot(s) {
			n, most = n+1, max(most, proto.Size(c))
			if !yield(c) {
				return
			}
		}
	})
	if most > MaxChangeBytes || most < MaxChangeBytes/2 {
		t.Errorf("%d messages of at most %d bytes, %d is the bound", n, most, MaxChangeBytes)
	}
	if n > 2+2*w.size()/MaxChangeBytes {
		t.Errorf("%d messages for %d bytes", n, w.size())
	}
	a := NewAssembler(dataplane.Limits{})
	w.apply(t, a)
	if diff := difference(tableOf(a.Given()), tableOf(s)); diff != "" {
		t.Error(diff)
	}
	// The same as a delta, and back to nothing.
	next := edited(s, func(e *dataplane.Editor) {
		for svc := range s.Services() {
			e.Delete(svc.Key)
		}
	})
	e := NewEncoder()
	for range e.Snapshot(s) { // gives out handles
	}
	w = encoded(t, Begin(next, 1, true), e.Delta(dataplane.Diff(s, next, nil)))
	if w.size() > 1024 {
		t.Errorf("the end of %d services takes %d bytes", s.Len(), w.size())
	}
	w.apply(t, a)
	if a.Given().Len() != 0 {
		t.Errorf("%d services are left", a.Given().Len())
	}
}

func TestHandlesAreNotReused(t *testing.T) {
	e := NewEncoder()
	name := map[uint32]string{}
	handle := map[string]uint32{}
	s := fleet(0, 0)
	for round := range 50 {
		next := edited(s, func(ed *dataplane.Editor) {
			for i := range 100 {
				if (i+round)%3 == 0 {
					ed.Delete(fleetService(i, 0).Key)
				} else {
					ed.Set(fleetService(i+round%7*100, 1))
				}
			}
		})
		changes := e.Delta(dataplane.Diff(s, next, nil))
		if round%5 == 0 {
			changes = e.Snapshot(next)
		}
		for c := range changes {
			for _, svc := range objects(c).Services {
				k := DecodeKey(svc.Key).String()
				if was, used := name[svc.Handle]; svc.Handle == 0 || used && was != k {
					t.Fatalf("handle %d of %s was %q", svc.Handle, k, was)
				}
				if was, had := handle[k]; had && was != svc.Handle {
					t.Fatalf("%s has handle %d and had %d", k, svc.Handle, was)
				}
				name[svc.Handle], handle[k] = k, svc.Handle
			}
		}
		s = next
	}
	// The table does not grow with every service that ever was.
	for i := range 100 {
		for range e.Snapshot(edited(fleet(0, 0), func(ed *dataplane.Editor) {
			for j := range 100 {
				ed.Set(fleetService(10_000+100*i+j, 1))
			}
		})) {
		}
	}
	if len(e.handles) > 2000 {
		t.Errorf("the encoder remembers %d services of 100", len(e.handles))
	}
	highest := slices.Max(slices.Collect(maps.Values(e.handles)))
	if int(highest) < 10_000 {
		t.Errorf("the highest handle is %d after 10,000 services", highest)
	}
}

// TestADeltaCanBeSentAgain covers a generation that a provider did not take:
// the host computes the way from the same base anew.
func TestADeltaCanBeSentAgain(t *testing.T) {
	s := fleet(3, 1)
	e, a := NewEncoder(), NewAssembler(dataplane.Limits{})
	encoded(t, Begin(s, 0, false), e.Snapshot(s)).apply(t, a)
	next := edited(s, func(ed *dataplane.Editor) {
		ed.Delete(fleetService(0, 0).Key)
		ed.Set(fleetService(7, 1))
	})
	if g, err := deltaOf(t, e, s, next).open(a); err != nil {
		t.Fatal(err)
	} else if _, _, _, err := g.Commit(); err != nil { // and no Accept
		t.Fatal(err)
	}
	later := edited(next, func(ed *dataplane.Editor) { ed.Delete(fleetService(7, 0).Key) })
	deltaOf(t, e, s, later).apply(t, a)
	if diff := difference(tableOf(a.Given()), tableOf(later)); diff != "" {
		t.Error(diff)
	}
	// The answer was lost: the host tells the generation again.
	deltaOf(t, e, s, later).apply(t, a)
	// A host that stops in the middle of a message loop leaves the encoder usable.
	for range e.Snapshot(fleet(5000, 10)) {
		break
	}
	for range e.Delta(dataplane.Diff(later, fleet(5000, 10), nil)) {
		break
	}
	deltaOf(t, e, later, edited(later, func(ed *dataplane.Editor) { ed.Set(fleetService(9, 2)) })).apply(t, a)
	if svc := a.Given().Service(fleetService(9, 0).Key); svc == nil || svc.Endpoints.Len() != 2 {
		t.Errorf("given %v", svc)
	}
}

package table

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/fairlead/fairlead/contrib/plugins/nftables/internal/netspace"
	"github.com/fairlead/fairlead/contrib/plugins/nftables/internal/plan"
	"github.com/fairlead/fairlead/dataplane"
)

// randomPlace is one of a few, so that they are taken, left and taken again.
func randomPlace(r *rand.Rand) plan.Place {
	ip := netip.AddrFrom4([4]byte{198, 18, 0, byte(r.IntN(6))})
	if r.IntN(3) == 0 {
		ip = netip.MustParseAddr(fmt.Sprintf("2001:db8::%d", r.IntN(3)))
	}
	p := plan.Place{Binding: dataplane.Binding{Addr: netip.AddrPortFrom(ip, 80), Protocol: dataplane.TCP}, Side: plan.Side(r.IntN(2))}
	if r.IntN(4) == 0 {
		p.Protocol = dataplane.UDP
	}
	return p
}

func randomEntry(r *rand.Rand, at plan.Place) *plan.Entry {
	if r.IntN(4) == 0 {
		return nil
	}
	e := &plan.Entry{Service: dataplane.Key{Namespace: "default", Name: fmt.Sprint(r.IntN(5))}}
	ip := netip.MustParseAddr("198.19.0.1")
	if at.Addr.Addr().Is6() {
		ip = netip.MustParseAddr("2001:db8:1::1")
	}
	for id := range uint64(6) {
		if r.IntN(2) == 0 {
			continue
		}
		e.Endpoints = append(e.Endpoints, plan.Endpoint{ID: id + 1, Addr: netip.AddrPortFrom(ip, uint16(8000+r.IntN(3)))})
		for range 1 + r.IntN(3) {
			e.Slots = append(e.Slots, id+1)
		}
	}
	if len(e.Slots) > 0 && r.IntN(3) == 0 {
		e.Sticky = time.Duration(1+r.IntN(2)) * time.Minute
	}
	return e
}

// TestKernelIsTheModel: after each of many random updates, some of which the tables
// did not see coming, the kernel holds what it should and nothing else.
func TestKernelIsTheModel(t *testing.T) {
	netspace.Require(t)
	seed := netspace.Seed()
	t.Logf("FAIRLEAD_TEST_SEED=%d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	tables := New(Options{Instance: "model"})
	defer func() {
		tables.Close()
		found, err := Find()
		if err != nil {
			t.Error(err)
		}
		for _, f := range found {
			if err := f.Remove(append(f.Tables, f.Keep...)); err != nil {
				t.Error(err)
			}
		}
	}()
	model, counts := make(map[plan.Place]*plan.Entry), make(map[dataplane.Key]int)
	var was Mark
	for step := range netspace.N(1000) {
		u := Update{Was: was, Is: Mark{Instance: "model", State: dataplane.State{Generation: uint64(step + 1)}}}
		u.Is.State.Session.AgentID = "agent"
		touched := make(map[plan.Place]bool)
		for range r.IntN(4) {
			at := randomPlace(r)
			if touched[at] {
				continue
			}
			touched[at] = true
			now := randomEntry(r, at)
			u.Changes = append(u.Changes, Change{At: at, Old: model[at], New: now})
			if now == nil {
				delete(model, at)
			} else {
				model[at] = now
			}
		}
		k := dataplane.Key{Namespace: "default", Name: fmt.Sprint(step % 5)}
		s := ServiceChange{Key: k, Old: -1, New: r.IntN(4) - 1}
		if n, there := counts[k]; there {
			s.Old = n
		}
		u.Services = append(u.Services, s)
		if counts[k] = s.New; s.New < 0 {
			delete(counts, k)
		}
		if r.IntN(8) == 0 { // a process that comes later, and knows nothing
			tables.Close()
			tables = New(Options{Instance: "model"})
			found, err := tables.Load()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tables.Sync(t.Context(), found, model, counts, u.Is); err != nil {
				t.Fatalf("step %d: %v", step, err)
			}
		} else if _, err := tables.Apply(t.Context(), u); err != nil {
			t.Fatalf("step %d: %v", step, err)
		}
		was = u.Is
		if err := tables.Check(); err != nil {
			t.Fatalf("step %d: %v", step, err)
		}
		look := New(Options{Instance: "model"})
		c, err := look.Load()
		look.Close()
		look.Close()
		if err != nil || c == nil {
			t.Fatalf("step %d: %v, %v", step, c, err)
		}
		if c.Mark.State.Generation != was.State.Generation || !maps.Equal(c.Services, counts) || !maps.EqualFunc(c.Entries, model, (*plan.Entry).Equal) {
			t.Fatalf("step %d: the kernel holds\n%+v\n%v\nwant\n%+v\n%v", step, c.Entries, c.Services, model, counts)
		}
		for v6, o := range look.orphans {
			if len(o.chains)+len(o.sets) > 0 {
				t.Fatalf("step %d: IPv6 %t: nobody uses %v", step, v6, o)
			}
		}
		want := make(elements)
		for at, e := range model {
			want.render(at, e)
		}
		for id, set := range c.raw {
			if id.kind <= slots && len(set) != len(want[id]) {
				t.Fatalf("step %d: set %s holds %d elements, want %d", step, id.name(), len(set), len(want[id]))
			}
		}
	}
}

package table

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"reflect"
	"testing"
	"time"

	"github.com/fairlead/fairlead/contrib/plugins/nftables/internal/netspace"
	"github.com/fairlead/fairlead/contrib/plugins/nftables/internal/plan"
	"github.com/fairlead/fairlead/dataplane"
)

func TestMain(m *testing.M) { os.Exit(netspace.Main(m)) }

func place(n int) plan.Place {
	return plan.Place{Binding: dataplane.Binding{Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 18, byte(n >> 8), byte(n)}), 80), Protocol: dataplane.TCP}}
}

func entry(n, count int) *plan.Entry {
	e := &plan.Entry{Service: dataplane.Key{Namespace: "default", Name: fmt.Sprintf("web-%d", n)}}
	for i := range count {
		e.Endpoints = append(e.Endpoints, plan.Endpoint{ID: uint64(i + 1), Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 19, byte(n >> 8), byte(n)}), uint16(8000+i))})
		e.Slots = append(e.Slots, uint64(i+1))
	}
	return e
}

func TestWhatIsAppliedIsFoundAgain(t *testing.T) {
	netspace.Require(t)
	tables := New(Options{Instance: "found"})
	v6 := plan.Place{Binding: dataplane.Binding{Addr: netip.MustParseAddrPort("[2001:db8::1]:53"), Protocol: dataplane.UDP}, Side: plan.Foreign}
	sticky := &plan.Entry{
		Service: dataplane.Key{Namespace: "a", Name: "b"}, Sticky: time.Minute, Slots: []uint64{9, 9, 1 << 63},
		Endpoints: []plan.Endpoint{{ID: 9, Addr: netip.MustParseAddrPort("[2001:db8::9]:5353")}, {ID: 1 << 63, Addr: netip.MustParseAddrPort("[2001:db8::a]:5353")}},
	}
	mark := Mark{Instance: "found", State: dataplane.State{Session: dataplane.Session{AgentID: "agent ü", BootEpoch: 7}, Generation: 12, Digest: []byte{1, 2}, Complete: true}}
	u := Update{
		Changes:  []Change{{At: place(1), New: entry(1, 3)}, {At: place(2), New: entry(2, 0)}, {At: v6, New: sticky}},
		Services: []ServiceChange{{Key: entry(1, 0).Service, Old: -1, New: 3}, {Key: sticky.Service, Old: -1, New: 2}},
		Is:       mark,
	}
	if _, err := tables.Apply(t.Context(), u); err != nil {
		t.Fatal(err)
	}
	if err := tables.Check(); err != nil {
		t.Error(err)
	}
	other := New(Options{Instance: "found"})
	c, err := other.Load()
	if err != nil || c == nil {
		t.Fatalf("Load = %v, %v", c, err)
	}
	if !reflect.DeepEqual(c.Mark, mark) {
		t.Errorf("mark %+v, want %+v", c.Mark, mark)
	}
	for _, ch := range u.Changes {
		if !c.Entries[ch.At].Equal(ch.New) {
			t.Errorf("at %v there is %+v, want %+v", ch.At, c.Entries[ch.At], ch.New)
		}
	}
	if len(c.Entries) != 3 || c.Services[sticky.Service] != 2 || len(c.Services) != 2 {
		t.Errorf("%d entries, services %v", len(c.Entries), c.Services)
	}
	// What is the same costs nothing.
	want := map[plan.Place]*plan.Entry{place(1): entry(1, 3), place(2): entry(2, 0), v6: sticky}
	if ops, err := other.Sync(t.Context(), c, want, c.Services, mark); ops != 0 || err != nil {
		t.Errorf("Sync of the same: %d operations, %v", ops, err)
	}
	found, err := Find()
	if err != nil || len(found) != 1 || found[0].Mark.Instance != "found" {
		t.Fatalf("Find = %+v, %v", found, err)
	}
	if err := found[0].Remove(found[0].Tables); err != nil {
		t.Fatal(err)
	}
	if found, err = Find(); err != nil || len(found) != 0 {
		t.Fatalf("left %+v, %v", found, err)
	}
}

func BenchmarkChange(b *testing.B) {
	netspace.Require(b)
	const services, each = 10_000, 5
	tables := New(Options{Instance: "bench"})
	var u Update
	for n := range services {
		u.Changes = append(u.Changes, Change{At: place(n), New: entry(n, each)})
		u.Services = append(u.Services, ServiceChange{Key: entry(n, 0).Service, Old: -1, New: each})
	}
	start := time.Now()
	if _, err := tables.Apply(context.Background(), u); err != nil {
		b.Fatal(err)
	}
	fill := time.Since(start)
	small, large := entry(77, each-1), entry(77, each)
	for b.Loop() {
		if _, err := tables.Apply(context.Background(), Update{Changes: []Change{{At: place(77), Old: large, New: small}}}); err != nil {
			b.Fatal(err)
		}
		small, large = large, small
	}
	start = time.Now()
	c, err := New(Options{Instance: "bench"}).Load()
	if err != nil || c == nil {
		b.Fatalf("%v %v", c, err)
	}
	b.ReportMetric(float64(time.Since(start).Milliseconds()), "ms/load")
	b.ReportMetric(float64(fill.Milliseconds()), "ms/fill")
	found, _ := Find()
	for _, f := range found {
		if err := f.Remove(f.Tables); err != nil {
			b.Error(err)
		}
	}
}

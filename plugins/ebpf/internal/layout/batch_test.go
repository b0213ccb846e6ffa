package layout

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"github.com/fairlead/fairlead/dataplane"
)

// entries are services with one frontend and one endpoint each; two of them may
// have the same frontend.
func entries(frontends ...int) (out []Entry) {
	for i, f := range frontends {
		addr := netip.AddrFrom4([4]byte{10, 1, byte(f >> 8), byte(f)})
		svc := &dataplane.Service{
			Key:       key(i),
			Frontends: []dataplane.Frontend{{Addr: netip.AddrPortFrom(addr, 80), Protocol: dataplane.TCP, Kind: dataplane.FrontendVIP}},
			Endpoints: dataplane.NewEndpoints(dataplane.Endpoint{ID: 1, Addr: netip.AddrPortFrom(addr.Next(), 8000), Weight: 1}),
		}
		plan, _ := Compile(svc)
		out = append(out, Entry{svc.Key, plan, ids(svc)})
	}
	return out
}

// TestSetAllSharesCalls: new services take two calls for each batch.
func TestSetAllSharesCalls(t *testing.T) {
	const n = 2*batchSize + 10
	size := Size{Frontends: [Families]uint32{n, 1}, Services: n, Slots: [Families]uint32{2 * n, 1}}
	k := newTwin(size)
	var numbers []int
	for i := range n {
		numbers = append(numbers, i)
	}
	table := NewTable(k, size)
	table.SetAll(entries(numbers...), func(i int, _ Change, err error) {
		if err != nil {
			t.Fatalf("service %d: %v", i, err)
		}
	})
	if k.batches != 6 || len(k.frontends) != n || len(k.names) != n {
		t.Errorf("%d batches for %d frontends and %d names, want 6 for %d", k.batches, len(k.frontends), len(k.names), n)
	}
}

// TestSetAllOfOneFrontend: of two that claim it in one go the later one has it, as
// with Set, and no id is lost.
func TestSetAllOfOneFrontend(t *testing.T) {
	size := Size{Frontends: [Families]uint32{2, 0}, Services: 4, Slots: [Families]uint32{16, 1}}
	k := newTwin(size)
	table := NewTable(k, size)
	table.SetAll(entries(7, 8, 7), func(i int, _ Change, err error) {
		if err != nil {
			t.Fatalf("service %d: %v", i, err)
		}
	})
	shared := fmt.Sprint(entries(7)[0].Plan.Frontends[0].Binding(), Home)
	if owner := k.answers()[shared].service; owner != key(2) || len(k.frontends) != 2 {
		t.Errorf("of %d frontends %s belongs to %s, want 2 and %s", len(k.frontends), shared, owner, key(2))
	}
}

// TestSetAllNamesWhoFails: one that the kernel refuses by itself, and one without
// room, leave the others alone.
func TestSetAllNamesWhoFails(t *testing.T) {
	size := Size{Frontends: [Families]uint32{3, 0}, Services: 8, Slots: [Families]uint32{64, 1}}
	k := newTwin(size)
	calls := 0
	k.refuse = func() bool { calls++; return calls == 1 || calls == 4 } // the batch, then the second one's name
	table := NewTable(k, size)
	var refused, full int
	table.SetAll(entries(0, 1, 2, 3), func(i int, _ Change, err error) {
		switch {
		case errors.Is(err, errKernel):
			refused++
		case errors.Is(err, ErrFull):
			full++
		case err != nil:
			t.Errorf("service %d: %v", i, err)
		}
	})
	if refused != 1 || full != 1 || len(k.answers()) != 2*int(Scopes) || table.Len() != 2 {
		t.Errorf("%d refused, %d without room, %d services, answers %v", refused, full, table.Len(), k.answers())
	}
}

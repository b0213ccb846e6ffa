package sdk

import (
	"fmt"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/fake"
)

func TestLargeGenerationsAreTold(t *testing.T) {
	h := configured(t, fake.New())
	told := 0
	h.service.afterLarge = func() { told++ }
	var many []*dataplane.Service
	for i := range largeChange {
		many = append(many, &dataplane.Service{
			Key: dataplane.Key{Namespace: "default", Name: fmt.Sprint("s", i)},
			Frontends: []dataplane.Frontend{{
				Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 200, byte(i >> 8), byte(i)}), 80), Protocol: dataplane.TCP, Kind: dataplane.FrontendVIP,
			}},
		})
	}
	few := gen(1, many[1:]...)
	must(h.snapshot(few, false))(t)
	if told != 0 {
		t.Errorf("told of %d changes", largeChange-1)
	}
	none := gen(2)
	must(h.snapshot(none, true))(t)
	all := gen(3, many...)
	must(h.delta(none, all))(t)
	must(h.tick(all))(t)
	if told != 1 {
		t.Errorf("told %d times of one large generation", told)
	}
}

func TestRestartWaitsForTheLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int32 // the clock's goroutines count
		again, stop := restart(time.Second, func() { runs.Add(1) })
		pass := func(d time.Duration) {
			<-time.After(d)
			synctest.Wait()
		}
		pass(2 * time.Hour)
		for range 3 {
			again()
			pass(999 * time.Millisecond)
		}
		if runs.Load() != 0 {
			t.Errorf("it ran %d times before the end", runs.Load())
		}
		pass(time.Millisecond)
		if runs.Load() != 1 {
			t.Errorf("it ran %d times, want 1", runs.Load())
		}
		again()
		stop()
		pass(time.Minute)
		if runs.Load() != 1 {
			t.Errorf("it ran after the stop")
		}
	})
}

package agent

import (
	"runtime"
	"runtime/debug"
	rt "runtime/metrics"
	"testing"
)

func TestPercentOf(t *testing.T) {
	for live, want := range map[uint64]uint64{0: 100, 20 << 20: 100, 48 << 20: 100, 96 << 20: 50, 320 << 20: 15, 480 << 20: 10, 4 << 30: 10} {
		if got := percentOf(live); got != want {
			t.Errorf("of %d MiB in use: %d, want %d", live>>20, got, want)
		}
	}
}

// A heap that is large is collected before it is twice as large, and one that
// became small is not collected more often than others.
func TestBoundGarbage(t *testing.T) {
	before := debug.SetGCPercent(defaultPercent)
	t.Cleanup(func() { debug.SetGCPercent(before) })
	large := make([]byte, 400<<20)
	runtime.GC()
	boundGarbage()
	if got := gcPercent(); got > 20 {
		t.Errorf("with %d MiB in use it is %d", len(large)>>20, got)
	}
	runtime.KeepAlive(large)
	runtime.GC()
	boundGarbage()
	if got := gcPercent(); got < 90 {
		t.Errorf("with nothing in use it is %d", got)
	}
}

func gcPercent() uint64 {
	s := []rt.Sample{{Name: "/gc/gogc:percent"}}
	rt.Read(s)
	return s[0].Value.Uint64()
}

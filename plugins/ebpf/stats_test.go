package ebpf

import (
	"testing"

	"github.com/fairlead/fairlead/dataplane"
)

// counters are those of services and endpoints that are not 0, as
// SERVICE[/ENDPOINT] NAME.
func (w *world) counters() map[string]uint64 {
	w.t.Helper()
	out := make(map[string]uint64)
	err := w.provider.Stats(w.t.Context(), func(c dataplane.Counter) bool {
		if c.Service == (dataplane.Key{}) || c.Name == dataplane.GaugeEndpoints || c.Value == 0 {
			return true
		}
		key := c.Service.Name + " " + c.Name
		if c.Endpoint != 0 {
			key = c.Service.Name + "/" + string(rune('0'+c.Endpoint)) + " " + c.Name
		}
		out[key] = c.Value
		return true
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return out
}

// TestCountersGoOn: what was counted of a service and its endpoints, and how often it
// could not be what was asked of it, outlives its sets, the maps and the process.
func TestCountersGoOn(t *testing.T) {
	w := newWorld(t)
	endpoint := listenTCP(t, "127.0.0.1:0", "a")
	own := listenTCP(t, "127.0.0.1:0", "own")
	both := append(vip("10.200.6.1:80", dataplane.TCP), intercept(own.String(), dataplane.TCP)...)
	want := make(map[string]uint64)
	check := func(when string) {
		t.Helper()
		got := w.counters()
		for key, n := range want {
			if got[key] != n {
				t.Errorf("%s: %s is %d, want %d", when, key, got[key], n)
			}
		}
		if len(got) != len(want) {
			t.Errorf("%s: there are %v, want %v", when, got, want)
		}
	}
	ask3 := func() {
		for range 3 {
			_, _ = ask("tcp", "10.200.6.1:80")
			_, _ = ask("tcp", own.String())
		}
	}
	full := service("both", both, endpoint)
	w.good(w.apply(full))
	ask3()
	want["both forwarded"], want["both/1 forwarded"] = 6, 6
	check("led")
	w.good(w.apply(service("both", both)))
	ask3()
	delete(want, "both/1 forwarded") // it is not the service's any more
	want["both empty_refused"], want["both empty_passed"] = 3, 3
	check("without endpoints")
	w.good(w.apply(service("both", both, endpoint, endpoint)))
	ask3()
	got := w.counters()
	if one, two := got["both/1 forwarded"], got["both/2 forwarded"]; one+two != 6 {
		t.Errorf("%d and %d of 6 are counted of two endpoints", one, two)
	}
	w.good(w.apply(service("both", both, endpoint, endpoint)))
	want = w.counters()
	if want["both forwarded"] != 12 || want["both empty_refused"] != 3 {
		t.Errorf("with two endpoints there are %v", want)
	}
	if err := w.provider.data.Grow(w.provider.settings.larger(w.provider.data.Table())); err != nil {
		t.Fatal(err)
	}
	check("in other maps")
	if err := w.provider.Shutdown(t.Context(), dataplane.ShutdownKeep); err != nil {
		t.Fatal(err)
	}
	w.provider = New("test")
	w.configure()
	check("by the next process")
	ask3()
	if got := w.counters()["both forwarded"]; got != 18 {
		t.Errorf("the next process counts on to %d, want 18", got)
	}
}

package ebpf

import (
	"strings"
	"testing"

	"github.com/fairlead/fairlead/dataplane"
)

// TestVerdictsAreCounted: the sum of the reasons is the traffic.
func TestVerdictsAreCounted(t *testing.T) {
	w := newWorld(t)
	w.good(w.apply(
		service("live", vip("10.200.2.2:80", dataplane.TCP), listenTCP(t, "127.0.0.1:0", "a")), service("empty", vip("10.200.2.3:80", dataplane.TCP)),
		service("pass", intercept("127.0.0.1:8009", dataplane.TCP)),
	))
	before := verdicts(t, w)
	for _, addr := range []string{"10.200.2.2:80", "10.200.2.3:80", "127.0.0.1:8009", "127.0.0.1:9"} {
		_, _ = ask("tcp", addr)
	}
	after := verdicts(t, w)
	for name, want := range map[string]uint64{"forwarded": 1, "empty_refused": 1, "empty_passed": 1, "no_frontend": 1, "peer": 1} {
		if got := after[name] - before[name]; got != want {
			t.Errorf("%s was counted %d times, want %d", name, got, want)
		}
	}
}

func verdicts(t *testing.T, w *world) map[string]uint64 {
	t.Helper()
	out := make(map[string]uint64)
	err := w.provider.Stats(t.Context(), func(c dataplane.Counter) bool {
		if reason, ok := strings.CutPrefix(c.Name, "verdict_"); ok {
			out[reason] = c.Value
		}
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

package proxy

import (
	"fmt"
	"log/slog"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/plugins/l7/internal/settings"
	"github.com/fairlead/fairlead/test/scale"
)

// Taking services away takes a time in proportion to their number, and leaves no
// series behind: the end of a proxy that knew ten thousand is no exception.
func TestServicesLeaveNoSeries(t *testing.T) {
	registry := prometheus.NewRegistry()
	p, err := New(settings.Default(), registry, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	n := scale.N(20_000)
	for i := range n {
		target := p.Target(dataplane.Key{Namespace: "default", Name: fmt.Sprintf("s%d", i)})
		s := target.series()
		s.code(200).Inc()
		s.retries.inc(ReasonConnectRefused)
		s.failures.inc(ReasonNoEndpoint)
		s.failures.inc(ReasonClientAbort)
	}
	if got := labelled(t, registry); got < 11*n {
		t.Fatalf("%d series of services, want %d at least", got, 11*n)
	}
	begun := computed(t)
	late := p.Target(dataplane.Key{Namespace: "default", Name: "s0"}).series()
	p.Close()
	if took, most := computed(t)-begun, time.Duration(n)*500*time.Microsecond; took > most {
		t.Errorf("%d services were taken away in %v, want %v at most", n, took, most)
	}
	late.failures.inc(ReasonSlowHead) // of a request that was under way
	if got := labelled(t, registry); got != 0 {
		t.Errorf("%d series of services are left", got)
	}
}

// computed is how long this process has computed so far, however busy the machine is.
func computed(t *testing.T) time.Duration {
	t.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		t.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// labelled counts the series that belong to a service.
func labelled(t *testing.T, registry *prometheus.Registry) (n int) {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "service" && strings.HasPrefix(l.GetValue(), "default/") {
					n++
				}
			}
		}
	}
	return n
}

package metric

import (
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

func gauge(name string) prometheus.Collector {
	return prometheus.NewGauge(prometheus.GaugeOpts{Name: name})
}

func TestAllOrNone(t *testing.T) {
	r := prometheus.NewRegistry()
	if err := Register(r, gauge("taken")); err != nil {
		t.Fatal(err)
	}
	names := func() (names []string) {
		families, err := r.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			names = append(names, f.GetName())
		}
		return names
	}
	set := []prometheus.Collector{gauge("a"), gauge("b"), gauge("taken"), gauge("c")}
	var already prometheus.AlreadyRegisteredError
	if err := Register(r, set...); !errors.As(err, &already) {
		t.Fatalf("got %v", err)
	}
	if got := names(); len(got) != 1 {
		t.Fatalf("a refusal left %v", got)
	}
	free := append(set[:2:2], set[3])
	if err := Register(r, free...); err != nil {
		t.Fatal(err)
	}
	if got := names(); len(got) != 4 {
		t.Fatalf("registered are %v", got)
	}
	Unregister(r, free...)
	if got := names(); len(got) != 1 {
		t.Fatalf("left are %v", got)
	}
}

// A part that is given no registry has no metrics.
func TestNoRegistry(t *testing.T) {
	if err := Register(nil, gauge("a")); err != nil {
		t.Fatal(err)
	}
	Unregister(nil, gauge("a"))
}

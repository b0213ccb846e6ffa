package observe

import (
	"fmt"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/core/metric"
)

// Metrics is every metric of this package; docs/metrics.md explains them.
type Metrics struct {
	watching prometheus.Gauge
	flows    *prometheus.CounterVec // provider, verdict
	lost     *prometheus.CounterVec // reason
}

// NewMetrics returns metrics that belong to no registry yet.
func NewMetrics() *Metrics {
	return &Metrics{
		watching: prometheus.NewGauge(prometheus.GaugeOpts{Name: "fairlead_observe_observers", Help: "Observers of flows; without one nothing is asked of data planes."}),
		flows:    prometheus.NewCounterVec(prometheus.CounterOpts{Name: "fairlead_observe_flows_total", Help: "Flows that data planes told of, after their sampling."}, []string{"provider", "verdict"}),
		lost:     prometheus.NewCounterVec(prometheus.CounterOpts{Name: "fairlead_observe_lost_total", Help: "Flows that an observer wanted and was not given."}, []string{"reason"}),
	}
}

func (m *Metrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.watching, m.flows, m.lost}
}

// Register adds all metrics to r, or none.
func (m *Metrics) Register(r prometheus.Registerer) error {
	if err := metric.Register(r, m.all()...); err != nil {
		return fmt.Errorf("observe: register metrics: %w", err)
	}
	return nil
}

// Unregister removes all metrics from r.
func (m *Metrics) Unregister(r prometheus.Registerer) {
	metric.Unregister(r, m.all()...)
}

// Verdicts are the words that a flow's verdict may be; another one is a later
// version's.
func Verdicts() []string { return []string{"forwarded", "refused", "denied", "passed"} }

// flow counts one. A provider's own word would be a series of its own each.
func (m *Metrics) flow(provider, verdict string) {
	if !slices.Contains(Verdicts(), verdict) {
		verdict = "other"
	}
	m.flows.WithLabelValues(provider, verdict).Inc()
}

func (m *Metrics) gone(l Lost) {
	for reason, n := range map[string]uint64{"slow": l.Slow, "rate": l.OverRate, "provider": l.Provider} {
		if n > 0 {
			m.lost.WithLabelValues(reason).Add(float64(n))
		}
	}
}

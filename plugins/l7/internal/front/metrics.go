package front

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics is every metric of this package; docs/metrics.md explains them.
type metrics struct {
	clients   prometheus.Gauge
	most      prometheus.Gauge
	refused   prometheus.Counter
	reclaimed prometheus.Counter
}

func newMetrics(registry prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		clients:   prometheus.NewGauge(prometheus.GaugeOpts{Name: "fairlead_l7_client_connections", Help: "Connections of clients open now, at all listeners."}),
		most:      prometheus.NewGauge(prometheus.GaugeOpts{Name: "fairlead_l7_client_connections_max", Help: "Connections of clients that each listener takes at most."}),
		refused:   prometheus.NewCounter(prometheus.CounterOpts{Name: "fairlead_l7_client_connections_refused_total", Help: "Connections turned away with 503, or closed, because a listener had as many as it takes."}),
		reclaimed: prometheus.NewCounter(prometheus.CounterOpts{Name: "fairlead_l7_client_connections_reclaimed_total", Help: "Connections without a request that were closed to make room for others."}),
	}
	for _, c := range []prometheus.Collector{m.clients, m.most, m.refused, m.reclaimed} {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("l7: register metrics: %w", err)
		}
	}
	return m, nil
}

package viewer

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/core/metric"
	"github.com/fairlead/fairlead/core/view"
)

// metrics is every metric of this package; docs/metrics.md explains them.
type metrics struct {
	epoch     prometheus.Gauge
	complete  prometheus.Gauge
	nodes     *prometheus.GaugeVec // role
	services  prometheus.Gauge
	endpoints prometheus.Gauge
	views     prometheus.Counter
	resets    prometheus.Counter
}

func newMetrics() *metrics {
	return &metrics{
		epoch:     prometheus.NewGauge(prometheus.GaugeOpts{Name: "fairlead_view_epoch", Help: "Epoch of the current view."}),
		complete:  prometheus.NewGauge(prometheus.GaugeOpts{Name: "fairlead_view_complete", Help: "1 once what the view lacks is taken for gone."}),
		nodes:     prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "fairlead_view_nodes", Help: "Nodes in the view, by role."}, []string{"role"}),
		services:  prometheus.NewGauge(prometheus.GaugeOpts{Name: "fairlead_view_services", Help: "Services in the view."}),
		endpoints: prometheus.NewGauge(prometheus.GaugeOpts{Name: "fairlead_view_endpoints", Help: "Endpoints in the view."}),
		views:     prometheus.NewCounter(prometheus.CounterOpts{Name: "fairlead_view_published_total", Help: "Views published."}),
		resets:    prometheus.NewCounter(prometheus.CounterOpts{Name: "fairlead_view_resets_total", Help: "Times the viewer fell behind the events of membership and read the whole table."}),
	}
}

func (m *metrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.epoch, m.complete, m.nodes, m.services, m.endpoints, m.views, m.resets}
}

// register adds all metrics to r, or none.
func (m *metrics) register(r prometheus.Registerer) error {
	if err := metric.Register(r, m.all()...); err != nil {
		return fmt.Errorf("viewer: register metrics: %w", err)
	}
	return nil
}

func (m *metrics) unregister(r prometheus.Registerer) {
	metric.Unregister(r, m.all()...)
}

func (m *metrics) show(v *view.View) {
	m.views.Inc()
	m.epoch.Set(float64(v.Epoch))
	m.services.Set(float64(v.Len()))
	m.endpoints.Set(float64(v.EndpointCount()))
	if v.Completeness != view.Incomplete {
		m.complete.Set(1)
	}
	by := make(map[view.Role]int)
	for n := range v.Nodes() {
		by[n.Role]++
	}
	for role := range view.Roles() {
		m.nodes.WithLabelValues(role.String()).Set(float64(by[role]))
	}
}

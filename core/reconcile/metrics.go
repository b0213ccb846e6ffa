package reconcile

import (
	"fmt"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/core/metric"
	"github.com/fairlead/fairlead/dataplane"
)

// Metrics is every metric of this package, of all providers; docs/metrics.md
// explains them.
type Metrics struct {
	calls      *prometheus.CounterVec   // provider, kind, result
	seconds    *prometheus.HistogramVec // provider, kind
	resyncs    *prometheus.CounterVec   // provider, reason
	drifts     *prometheus.CounterVec   // provider, repaired
	work       *prometheus.CounterVec   // provider
	up         *prometheus.GaugeVec     // provider
	generation *prometheus.GaugeVec     // provider
	epoch      *prometheus.GaugeVec     // provider
	services   *prometheus.GaugeVec     // provider, status
}

// NewMetrics returns metrics that belong to no registry yet.
func NewMetrics() *Metrics {
	return &Metrics{
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "fairlead_reconcile_calls_total", Help: "Calls of Reconcile, by what was sent and what became of it."}, []string{"provider", "kind", "result"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "fairlead_reconcile_seconds", Help: "Time of one call of Reconcile.",
			Buckets: []float64{0.0003, 0.001, 0.002, 0.005, 0.02, 0.05, 0.15, 0.5, 1, 5},
		}, []string{"provider", "kind"}),
		resyncs:    prometheus.NewCounterVec(prometheus.CounterOpts{Name: "fairlead_reconcile_resyncs_total", Help: "Whole snapshots that an answer made necessary."}, []string{"provider", "reason"}),
		drifts:     prometheus.NewCounterVec(prometheus.CounterOpts{Name: "fairlead_reconcile_drifts_total", Help: "Times that a provider found the system not as it had left it."}, []string{"provider", "repaired"}),
		work:       prometheus.NewCounterVec(prometheus.CounterOpts{Name: "fairlead_reconcile_operations_total", Help: "Changes that providers made to the system."}, []string{"provider"}),
		up:         prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "fairlead_reconcile_connected", Help: "1 while the provider is connected; of (follow), how many follow."}, []string{"provider"}),
		generation: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "fairlead_reconcile_generation", Help: "Generation that the provider has."}, []string{"provider"}),
		epoch:      prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "fairlead_reconcile_epoch", Help: "Epoch of the view that this generation shows."}, []string{"provider"}),
		services:   prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "fairlead_reconcile_services", Help: "Services that are not simply programmed, by status."}, []string{"provider", "status"}),
	}
}

func (m *Metrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.calls, m.seconds, m.resyncs, m.drifts, m.work, m.up, m.generation, m.epoch, m.services}
}

// Register adds all metrics to r, or none.
func (m *Metrics) Register(r prometheus.Registerer) error {
	if err := metric.Register(r, m.all()...); err != nil {
		return fmt.Errorf("reconcile: register metrics: %w", err)
	}
	return nil
}

// Unregister removes all metrics from r.
func (m *Metrics) Unregister(r prometheus.Registerer) {
	metric.Unregister(r, m.all()...)
}

func (m *Metrics) call(provider, kind, result string, took time.Duration) {
	m.calls.WithLabelValues(provider, kind, result).Inc()
	m.seconds.WithLabelValues(provider, kind).Observe(took.Seconds())
}

func (m *Metrics) resync(provider, reason string) { m.resyncs.WithLabelValues(provider, reason).Inc() }

func (m *Metrics) drift(provider string, repaired bool) {
	m.drifts.WithLabelValues(provider, strconv.FormatBool(repaired)).Inc()
}

func (m *Metrics) operations(provider string, n int) {
	m.work.WithLabelValues(provider).Add(float64(n))
}

func (m *Metrics) connected(provider string, yes bool) {
	switch up := m.up.WithLabelValues(provider); {
	case provider == followLabel && yes:
		up.Inc()
	case provider == followLabel:
		up.Dec()
	case yes:
		up.Set(1)
	default:
		up.Set(0)
	}
}

// applied and statuses are not of those that follow: many share one series.
func (m *Metrics) applied(provider string, s Status) {
	if provider == followLabel {
		return
	}
	m.generation.WithLabelValues(provider).Set(float64(s.Generation))
	m.epoch.WithLabelValues(provider).Set(float64(s.Epoch))
}

func (m *Metrics) statuses(provider string, all map[dataplane.Key]dataplane.ServiceStatus) {
	if provider == followLabel {
		return
	}
	var by [dataplane.StatusUnsupported + 1]int
	for _, st := range all {
		by[min(st.Status, dataplane.StatusUnsupported)]++
	}
	for st := dataplane.StatusPartial; st <= dataplane.StatusUnsupported; st++ {
		m.services.WithLabelValues(provider, st.String()).Set(float64(by[st]))
	}
}

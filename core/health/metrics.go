package health

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/core/metric"
)

// metrics is every metric of this package; docs/metrics.md explains them.
type metrics struct {
	checks       *prometheus.GaugeVec // state
	instances    *prometheus.GaugeVec // state
	running      prometheus.Gauge
	probes       *prometheus.CounterVec   // kind, result
	seconds      *prometheus.HistogramVec // kind
	transitions  *prometheus.CounterVec   // to
	saveFailures prometheus.Counter

	// Looked up once: a probe costs little more than a label's look-up.
	of [GRPC + 1]struct {
		results [results]prometheus.Counter
		seconds prometheus.Observer
	}
}

func newMetrics() *metrics {
	m := &metrics{
		checks:       prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "fairlead_health_checks", Help: "Checks of instances on this node, by state."}, []string{"state"}),
		instances:    prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "fairlead_health_instances", Help: "Instances on this node, by state."}, []string{"state"}),
		running:      prometheus.NewGauge(prometheus.GaugeOpts{Name: "fairlead_health_probes_running", Help: "Probes under way."}),
		probes:       prometheus.NewCounterVec(prometheus.CounterOpts{Name: "fairlead_health_probes_total", Help: "Probes that ended, by kind and result."}, []string{"kind", "result"}),
		seconds:      prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "fairlead_health_probe_seconds", Help: "How long probes took, by kind.", Buckets: []float64{0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.01, 0.05, 0.25, 1, 5}}, []string{"kind"}),
		transitions:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "fairlead_health_transitions_total", Help: "Instances that became passing or critical."}, []string{"to"}),
		saveFailures: prometheus.NewCounter(prometheus.CounterOpts{Name: "fairlead_health_save_failures_total", Help: "Times the file of passing checks could not be written."}),
	}
	for kind := HTTP; kind <= GRPC; kind++ {
		of := &m.of[kind]
		of.seconds = m.seconds.WithLabelValues(kind.String())
		for r := range results {
			of.results[r] = m.probes.WithLabelValues(kind.String(), r.String())
		}
	}
	return m
}

func (m *metrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.checks, m.instances, m.running, m.probes, m.seconds, m.transitions, m.saveFailures}
}

// register adds all metrics to r, or none.
func (m *metrics) register(r prometheus.Registerer) error {
	if err := metric.Register(r, m.all()...); err != nil {
		return fmt.Errorf("health: register metrics: %w", err)
	}
	return nil
}

func (m *metrics) unregister(r prometheus.Registerer) {
	metric.Unregister(r, m.all()...)
}

func (m *metrics) probed(kind Kind, out outcome) {
	m.of[kind].results[out.result].Inc()
	m.of[kind].seconds.Observe(out.took.Seconds())
}

// show sets the gauges and counts what changed.
func (m *metrics) show(t *table, ch changes) {
	if ch.toPassing > 0 {
		m.transitions.WithLabelValues("passing").Add(float64(ch.toPassing))
	}
	if ch.toCritical > 0 {
		m.transitions.WithLabelValues("critical").Add(float64(ch.toCritical))
	}
	if !ch.checks {
		return
	}
	m.checks.WithLabelValues("passing").Set(float64(t.passingChecks))
	m.checks.WithLabelValues("critical").Set(float64(t.checks - t.passingChecks))
	m.instances.WithLabelValues("passing").Set(float64(t.passingInstances))
	m.instances.WithLabelValues("critical").Set(float64(len(t.instances) - t.passingInstances))
}

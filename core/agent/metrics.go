package agent

import (
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are this package's; docs/metrics.md describes them.
type metrics struct {
	build   *prometheus.GaugeVec
	reloads *prometheus.CounterVec
}

// newMetrics is the table of this package's metrics.
func newMetrics(version string) *metrics {
	m := &metrics{
		build: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "fairlead_build_info",
			Help: "1, with the version of the agent and of Go as labels.",
		}, []string{"version", "go_version"}),
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fairlead_agent_reloads_total",
			Help: "Reloads of the configuration by result: applied, restart_needed (some changed keys have to wait for it), failed.",
		}, []string{"result"}),
	}
	m.build.WithLabelValues(version, runtime.Version()).Set(1)
	for _, result := range []string{reloadApplied, reloadRestartNeeded, reloadFailed} {
		m.reloads.WithLabelValues(result) // so that a rate exists before the first
	}
	return m
}

func (m *metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.build, m.reloads}
}

package agent

import (
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are this package's; docs/metrics.md describes them.
type metrics struct {
	build   *prometheus.GaugeVec
	reloads *prometheus.CounterVec
	records prometheus.Counter
	files   *prometheus.GaugeVec
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
		records: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "fairlead_agent_records_total",
			Help: "Records of what runs on this node that the cluster was told.",
		}),
		files: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "fairlead_agent_service_files",
			Help: "Files of services_dir: used as they are, or wrong so that what they said before stays.",
		}, []string{"state"}),
	}
	m.showFiles(nil)
	m.build.WithLabelValues(version, runtime.Version()).Set(1)
	for _, result := range []string{reloadApplied, reloadRestartNeeded, reloadFailed} {
		m.reloads.WithLabelValues(result) // so that a rate exists before the first
	}
	return m
}

func (m *metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.build, m.reloads, m.records, m.files}
}

func (m *metrics) showFiles(files []serviceFile) {
	wrong := 0
	for _, f := range files {
		if f.bad {
			wrong++
		}
	}
	m.files.WithLabelValues("used").Set(float64(len(files) - wrong))
	m.files.WithLabelValues("wrong").Set(float64(wrong))
}

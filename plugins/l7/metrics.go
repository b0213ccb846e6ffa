package l7

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// Results of a reload.
const (
	reloadApplied = "applied"
	reloadFailed  = "failed"
)

// newMetrics registers what concerns the process. The proxy has its own.
func newMetrics(r prometheus.Registerer, version string) (*prometheus.CounterVec, error) {
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "fairlead_l7_build_info", Help: "Always 1.",
	}, []string{"version"})
	build.WithLabelValues(version).Set(1)
	reloads := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "fairlead_l7_reloads_total", Help: "Reloads of the configuration by SIGHUP.",
	}, []string{"result"})
	reloads.WithLabelValues(reloadApplied)
	reloads.WithLabelValues(reloadFailed)
	var errs []error
	for _, c := range []prometheus.Collector{build, reloads, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})} {
		errs = append(errs, r.Register(c))
	}
	return reloads, errors.Join(errs...)
}

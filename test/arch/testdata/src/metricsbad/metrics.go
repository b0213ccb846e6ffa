package metricsbad

import "github.com/prometheus/client_golang/prometheus"

var _ = prometheus.NewCounter(prometheus.CounterOpts{ // want `metrics.go declares a metric, but holds no name that begins with fairlead_`
	Namespace: "fairlead", // want `Namespace in metrics.go: write names in full`
	Subsystem: "bad",      // want `Subsystem in metrics.go: write names in full`
	Name:      "sent_total",
})

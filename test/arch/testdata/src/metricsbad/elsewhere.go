package metricsbad

import "github.com/prometheus/client_golang/prometheus"

var _ = prometheus.NewCounter(prometheus.CounterOpts{Name: "fairlead_x"}) // want `NewCounter outside of metrics.go`

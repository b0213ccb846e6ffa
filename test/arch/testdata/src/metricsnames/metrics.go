package metricsnames

import "github.com/prometheus/client_golang/prometheus"

var _ = prometheus.NewCounter(prometheus.CounterOpts{Name: "fairlead_sentTotal"}) // want `metric "fairlead_sentTotal": names are words`

package metricsgood

import "github.com/prometheus/client_golang/prometheus"

func table() []prometheus.Counter {
	counter := func(name string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name})
	}
	_ = prometheus.NewDesc("fairlead_good_up", "help", nil, nil)
	return []prometheus.Counter{counter("fairlead_good_sent_total"), counter("fairlead_good_lost_total")}
}

package metricsgood

import "github.com/prometheus/client_golang/prometheus"

func collect(d *prometheus.Desc) { prometheus.MustNewConstMetric(d, 0, 1) }

package follow

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/core/metric"
)

// metrics is every metric of this package; docs/metrics.md explains them.
type metrics struct {
	revision, keys, connected prometheus.Gauge
	age                       prometheus.GaugeFunc
	left                      *prometheus.CounterVec // reason
	reads                     prometheus.Counter
	events                    prometheus.Counter
	writes                    *prometheus.CounterVec // result
}

func newMetrics(age func() (time.Duration, bool)) *metrics {
	m := &metrics{
		revision:  prometheus.NewGauge(prometheus.GaugeOpts{Name: "fairlead_follow_revision", Help: "Revision of this agent's copy of the system keyspace; 0 if there is none."}),
		keys:      prometheus.NewGauge(prometheus.GaugeOpts{Name: "fairlead_follow_keys", Help: "Keys in the copy."}),
		connected: prometheus.NewGauge(prometheus.GaugeOpts{Name: "fairlead_follow_connected", Help: "1 while a server is followed."}),
		age: prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "fairlead_follow_age_seconds", Help: "Time since the copy was last known to be current; -1 if it never was."}, func() float64 {
			if d, known := age(); known {
				return d.Seconds()
			}
			return -1
		}),
		left:   prometheus.NewCounterVec(prometheus.CounterOpts{Name: "fairlead_follow_left_total", Help: "Servers that were left, or not followed at all, by reason."}, []string{"reason"}),
		reads:  prometheus.NewCounter(prometheus.CounterOpts{Name: "fairlead_follow_reads_total", Help: "Times that the whole keyspace was read."}),
		events: prometheus.NewCounter(prometheus.CounterOpts{Name: "fairlead_follow_events_total", Help: "Changes of keys that were applied to the copy."}),
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "fairlead_follow_writes_total", Help: "Writes of the copy to disk by result."}, []string{"result"}),
	}
	for _, reason := range []string{leftBroken, leftLeaderless, leftBehind, leftOther, leftRewritten, leftSilent} {
		m.left.WithLabelValues(reason) // so that a rate exists before the first
	}
	for _, result := range []string{writeOK, writeFailed} {
		m.writes.WithLabelValues(result)
	}
	return m
}

// The values of labels.
const (
	leftBroken     = "broken"
	leftLeaderless = "no-leader"
	leftBehind     = "behind"
	leftOther      = "other-cluster"
	leftRewritten  = "other-history"
	leftSilent     = "silent"

	writeOK     = "ok"
	writeFailed = "failed"
)

func (m *metrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.revision, m.keys, m.connected, m.age, m.left, m.reads, m.events, m.writes}
}

// register adds all metrics to r, or none.
func (m *metrics) register(r prometheus.Registerer) error {
	if err := metric.Register(r, m.all()...); err != nil {
		return fmt.Errorf("follow: register metrics: %w", err)
	}
	return nil
}

func (m *metrics) unregister(r prometheus.Registerer) {
	metric.Unregister(r, m.all()...)
}

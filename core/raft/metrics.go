package raft

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/core/metric"
	"github.com/fairlead/fairlead/core/raft/replica"
)

// metrics is every metric of this package; docs/metrics.md explains them.
type metrics struct {
	registry  prometheus.Registerer
	term      prometheus.Gauge
	leads     prometheus.Gauge
	hasLeader prometheus.Gauge
	elections prometheus.Counter
	forgotten prometheus.Counter
	applied   prometheus.Counter
	appends   prometheus.Histogram
	entries   prometheus.Counter
	snapshots *prometheus.CounterVec // event
	lost      *prometheus.CounterVec // reason

	readsWaiting prometheus.Gauge
	free         prometheus.Gauge

	all []prometheus.Collector
}

func newMetrics(registry prometheus.Registerer, h *Host) (*metrics, error) {
	m := &metrics{registry: registry}
	gauge := func(name, help string) prometheus.Gauge {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
		m.all = append(m.all, g)
		return g
	}
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
		m.all = append(m.all, c)
		return c
	}
	vector := func(name, help, label string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
		m.all = append(m.all, c)
		return c
	}
	m.term = gauge("fairlead_raft_term", "Term of this server.")
	m.leads = gauge("fairlead_raft_is_leader", "1 while this server leads.")
	m.hasLeader = gauge("fairlead_raft_has_leader", "1 while this server knows a leader.")
	m.elections = counter("fairlead_raft_elections_total", "Terms that this server began to lead.")
	m.forgotten = counter("fairlead_raft_leaders_gone_total", "Leaders of which the process was found gone before they were silent for an election timeout.")
	m.applied = counter("fairlead_raft_applied_commands_total", "Commands applied to the state machine.")
	m.entries = counter("fairlead_raft_appended_entries_total", "Entries written to the log on disk.")
	m.appends = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "fairlead_raft_append_seconds", Help: "Time of a write to the log, fdatasync included.",
		Buckets: prometheus.ExponentialBuckets(0.0001, 2, 16),
	})
	m.snapshots = vector("fairlead_raft_snapshots_total", "Snapshots made, sent and installed.", "event")
	m.lost = vector("fairlead_raft_lost_messages_total", "Messages of other servers that were not taken.", "reason")
	m.readsWaiting = gauge("fairlead_raft_reads_waiting", "Linearizable reads that wait for the leader's word or an entry.")
	m.free = gauge("fairlead_raft_disk_free_bytes", "Free space of the file system that the log is on.")
	m.all = append(m.all, m.appends, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "fairlead_raft_applied_index", Help: "Index of the last entry applied.",
	}, func() float64 { index, _ := h.View().Applied(); return float64(index) }), prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "fairlead_raft_joint_seconds", Help: "How long a change of the servers is under way already of which the old ones still count; 0: none is.",
	}, func() float64 {
		if at := h.JointSince(); !at.IsZero() {
			return time.Since(at).Seconds()
		}
		return 0
	}))
	return m, m.register()
}

// register adds all metrics, or none.
func (m *metrics) register() error {
	if err := metric.Register(m.registry, m.all...); err != nil {
		return fmt.Errorf("raft: register metrics: %w", err)
	}
	return nil
}

func (m *metrics) unregister() {
	metric.Unregister(m.registry, m.all...)
}

func (m *metrics) state(s replica.State) {
	m.term.Set(float64(s.Term))
	set(m.leads, s.Leads())
	set(m.hasLeader, s.Leader != 0)
	if s.Leads() {
		m.elections.Inc()
	}
}

// set makes a gauge 1 or 0.
func set(g prometheus.Gauge, on bool) {
	if on {
		g.Set(1)
	} else {
		g.Set(0)
	}
}

// timeAppend returns what is called when a write is done, with its entries.
func (m *metrics) timeAppend() func(entries int) {
	began := time.Now()
	return func(entries int) {
		m.appends.Observe(time.Since(began).Seconds())
		m.entries.Add(float64(entries))
	}
}

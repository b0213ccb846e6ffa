package transport

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/core/metric"
)

// set is the metrics of one part; docs/metrics.md explains them.
type set struct {
	registry prometheus.Registerer
	all      []prometheus.Collector
}

func (s *set) counter(name, help string) prometheus.Counter {
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	s.all = append(s.all, c)
	return c
}

func (s *set) vector(name, help string, labels ...string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	s.all = append(s.all, c)
	return c
}

// register adds all metrics, or none.
func (s *set) register() error {
	if err := metric.Register(s.registry, s.all...); err != nil {
		return fmt.Errorf("transport: register metrics: %w", err)
	}
	return nil
}

func (s *set) unregister() {
	metric.Unregister(s.registry, s.all...)
}

// metrics is every metric of a Transport.
type metrics struct {
	set
	sent      *prometheus.CounterVec // channel
	sentBytes *prometheus.CounterVec // channel
	lost      *prometheus.CounterVec // channel, reason
	opened    *prometheus.CounterVec // channel
	received  prometheus.Counter
	refused   prometheus.Counter
	questions prometheus.Counter
	asks      prometheus.Counter
}

func newMetrics(registry prometheus.Registerer, t *Transport) (*metrics, error) {
	m := &metrics{set: set{registry: registry}}
	m.sent = m.vector("fairlead_raft_transport_sent_messages_total", "Messages sent to other servers.", "channel")
	m.sentBytes = m.vector("fairlead_raft_transport_sent_bytes_total", "Bytes of messages and snapshots sent to other servers.", "channel")
	m.lost = m.vector("fairlead_raft_transport_lost_messages_total", "Messages that were not sent.", "channel", "reason")
	m.opened = m.vector("fairlead_raft_transport_streams_total", "Streams of messages and snapshots opened to other servers.", "channel")
	m.received = m.counter("fairlead_raft_transport_received_messages_total", "Messages of other servers received.")
	m.refused = m.counter("fairlead_raft_transport_refused_total", "Streams and calls of others that were refused.")
	m.questions = m.counter("fairlead_raft_transport_questions_total", "Questions put to the leader.")
	m.asks = m.counter("fairlead_raft_transport_asks_total", "Calls that carried questions to the leader.")
	m.all = append(m.all, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "fairlead_raft_transport_queued_bytes", Help: "Bytes of messages that wait to be sent.",
	}, func() float64 { return float64(t.queued()) }))
	return m, m.register()
}

// portMetrics is every metric of a Port.
type portMetrics struct {
	set
	handshakes *prometheus.CounterVec // result
}

func newPortMetrics(registry prometheus.Registerer) (*portMetrics, error) {
	m := &portMetrics{set: set{registry: registry}}
	m.handshakes = m.vector("fairlead_port_handshakes_total", "Connections to the agents' port.", "result")
	return m, m.register()
}

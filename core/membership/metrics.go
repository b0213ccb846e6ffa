package membership

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/core/metric"
	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/swim"
	"github.com/fairlead/fairlead/core/swim/wire"
)

// metrics is every metric of this package; docs/metrics.md explains them.
type metrics struct {
	packets     *prometheus.CounterVec // direction, socket
	bytes       *prometheus.CounterVec // direction, socket
	rejected    *prometheus.CounterVec // reason
	dropped     *prometheus.CounterVec // reason
	streams     *prometheus.CounterVec // direction, result
	streamsOpen *prometheus.GaugeVec   // direction
	members     *prometheus.GaugeVec   // state
	events      *prometheus.CounterVec // kind
	pulls       *prometheus.CounterVec // result
	rumours     prometheus.Gauge
	definitions prometheus.Gauge
	silent      prometheus.Gauge
	held        prometheus.Gauge

	udpIn, udpOut, tcpIn, tcpOut traffic
	counters                     atomic.Pointer[swim.Counters]
	all                          []prometheus.Collector
}

// traffic is one direction of one kind of socket.
type traffic struct{ packets, bytes prometheus.Counter }

func (t traffic) add(bytes int) {
	t.packets.Inc()
	t.bytes.Add(float64(bytes))
}

func newMetrics() *metrics {
	m := &metrics{}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
		m.all = append(m.all, c)
		return c
	}
	gauges := func(name, help string, labels ...string) *prometheus.GaugeVec {
		g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
		m.all = append(m.all, g)
		return g
	}
	gauge := func(name, help string) prometheus.Gauge { return gauges(name, help).WithLabelValues() }

	m.packets = counter("fairlead_membership_packets_total", "Gossip packets: datagrams (udp) and frames of streams (tcp).", "direction", "socket")
	m.bytes = counter("fairlead_membership_bytes_total", "Payload bytes of those packets.", "direction", "socket")
	m.rejected = counter("fairlead_membership_rejected_total", "Packets and frames received and not used, by reason.", "reason")
	m.dropped = counter("fairlead_membership_dropped_total", "Packets lost on this host, by reason.", "reason")
	m.streams = counter("fairlead_membership_streams_total", "Streams that ended, by result.", "direction", "result")
	m.streamsOpen = gauges("fairlead_membership_streams_open", "Streams open now.", "direction")
	m.members = gauges("fairlead_membership_members", "Members known, by state, this node included.", "state")
	m.events = counter("fairlead_membership_events_total", "Changes of the member table, by kind.", "kind")
	m.pulls = counter("fairlead_membership_pulls_total", "Definitions pulled from other members, by result.", "result")
	m.rumours = gauge("fairlead_membership_rumours", "Rumours that wait to be sent.")
	m.protocol(func(c swim.Counters) uint64 { return c.Probes }, "fairlead_membership_probes_total", "Pings of this node's own, of whatever purpose.")
	m.protocol(func(c swim.Counters) uint64 { return c.IndirectProbes }, "fairlead_membership_probes_indirect_total", "Probes that had to ask helpers.")
	m.protocol(func(c swim.Counters) uint64 { return c.FailedProbes }, "fairlead_membership_probes_failed_total", "Probes without any answer.")
	m.protocol(func(c swim.Counters) uint64 { return c.LateAcks }, "fairlead_membership_acks_late_total", "Acks to nothing that was under way.")
	m.protocol(func(c swim.Counters) uint64 { return c.Implausible }, "fairlead_membership_claims_implausible_total", "Claims too far ahead to be honest.")
	m.protocol(func(c swim.Counters) uint64 { return c.MembersRefused }, "fairlead_membership_members_refused_total", "Introductions of members beyond the most that are learned.")
	m.protocol(func(c swim.Counters) uint64 { return c.RumoursDropped }, "fairlead_membership_rumours_dropped_total", "Rumours beyond the queue's bytes; their subjects spread by exchange.")
	m.protocol(func(c swim.Counters) uint64 { return c.Pauses }, "fairlead_membership_pauses_total", "Times this process did not run when it should have.")
	m.definitions = gauge("fairlead_membership_definition_bytes", "Memory of the definitions held.")
	m.held = gauge("fairlead_membership_held", "Members that announced a restart and are not accused meanwhile, this node included.")
	m.silent = gauge("fairlead_membership_silent", "1 while this node does not speak: see the log for the reason.")

	m.udpIn, m.udpOut = m.traffic("in", "udp"), m.traffic("out", "udp")
	m.tcpIn, m.tcpOut = m.traffic("in", "tcp"), m.traffic("out", "tcp")
	return m
}

// protocol shows one counter of the node, as of the last look inside.
func (m *metrics) protocol(pick func(swim.Counters) uint64, name, help string) {
	m.all = append(m.all, prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: name, Help: help,
	}, func() float64 {
		if c := m.counters.Load(); c != nil {
			return float64(pick(*c))
		}
		return 0
	}))
}

// inside keeps a look inside the node for the next scrape.
func (m *metrics) inside(in swim.Inspection) {
	m.counters.Store(&in.Counters)
	m.rumours.Set(float64(len(in.Rumours)))
}

func (m *metrics) traffic(direction, socket string) traffic {
	return traffic{m.packets.WithLabelValues(direction, socket), m.bytes.WithLabelValues(direction, socket)}
}

// register adds all metrics to r, or none.
func (m *metrics) register(r prometheus.Registerer) error {
	if err := metric.Register(r, m.all...); err != nil {
		return fmt.Errorf("membership: register metrics: %w", err)
	}
	return nil
}

func (m *metrics) unregister(r prometheus.Registerer) {
	metric.Unregister(r, m.all...)
}

func (m *metrics) reject(err error) { m.rejected.WithLabelValues(rejectReason(err)).Inc() }

// rejectReason is the label of a refused packet or frame.
func rejectReason(err error) string {
	switch {
	case errors.Is(err, wire.ErrChecksum):
		return "checksum"
	case errors.Is(err, wire.ErrVersion):
		return "version"
	case errors.Is(err, wire.ErrMalformed):
		return "malformed"
	case errors.Is(err, wire.ErrTooLarge), errors.Is(err, errFrameLength):
		return "too-large"
	case errors.Is(err, swim.ErrSilent), errors.Is(err, errMute):
		return "silent"
	case errors.Is(err, errTooManyFrames):
		return "too-many-frames"
	}
	return "unexpected"
}

// table shows a snapshot.
func (m *metrics) table(s *Snapshot) {
	var by [model.StateLeft + 1]int
	held := 0
	for i := range s.Members {
		if state := s.Members[i].Value.State; int(state) < len(by) {
			by[state]++
		}
		if !s.Members[i].HeldUntil.IsZero() {
			held++
		}
	}
	for state, n := range by {
		m.members.WithLabelValues(model.State(state).String()).Set(float64(n))
	}
	m.held.Set(float64(held))
	silent := 0.0
	if s.Silent != "" {
		silent = 1
	}
	m.silent.Set(silent)
}

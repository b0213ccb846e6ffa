package swim

import (
	"time"

	"github.com/fairlead/fairlead/core/model"
)

// Counters count what happened since the start. They only rise.
type Counters struct {
	Probes         uint64 // pings of our own, of whatever purpose
	IndirectProbes uint64 // probes that had to ask helpers
	FailedProbes   uint64 // probes without any answer
	LateAcks       uint64 // acks to nothing that is under way
	RelaysRefused  uint64 // ping-reqs beyond Config.RelayMax
	Exchanges      uint64 // full exchanges that we asked for
	Implausible    uint64 // claims too far ahead to be honest
	MembersRefused uint64 // strangers beyond Config.MembersMax
	TellsDropped   uint64 // answers to stale claims beyond the bound
	RumoursDropped uint64 // rumours beyond Config.QueueBytes
	Pauses         uint64 // times this process did not run when it should
}

// Inspection is the inside of a Node, for metrics, for `fairlead debug` and
// for the invariants that simulations assert.
type Inspection struct {
	Counters     Counters
	Suspicions   []Suspicion
	Rumours      []Rumour
	RumourBytes  int
	RumourLimit  int // sends of one rumour
	Probes       int // under way
	Relays       int
	Streams      int // asked for and not ended
	Live, Graves int // other members
}

// Suspicion is a suspect's clock.
type Suspicion struct {
	Subject         model.NodeID
	Since, Deadline time.Time
	Least, Longest  time.Duration // bounds of Deadline - Since as of now
	Accusers        []model.NodeID
}

// Rumour is a piece of news that waits to be sent.
type Rumour struct {
	Subject model.NodeID
	Record  bool // of the record class
	Sends   int
}

// Counters returns the counters.
func (n *Node) Counters() Counters { return n.counters }

// Inspect returns a copy of the inside.
func (n *Node) Inspect() Inspection {
	in := Inspection{
		Counters:    n.counters,
		RumourLimit: n.cfg.retransmitLimit(n.liveCount()),
		Probes:      len(n.probes),
		Relays:      len(n.relays),
		Streams:     len(n.streams),
		Live:        len(n.live.list),
		Graves:      len(n.graves.list),
	}
	least, longest := n.cfg.suspicionBounds(n.liveCount())
	for _, m := range n.live.list {
		if m.value.State == model.StateSuspect {
			in.Suspicions = append(in.Suspicions, Suspicion{
				Subject: m.id, Since: m.suspectedAt, Deadline: m.deadline, Least: least, Longest: longest,
				Accusers: append([]model.NodeID(nil), m.accusers.List()...),
			})
		}
	}
	for c := range n.queues {
		in.RumourBytes += n.queues[c].bytes
		for _, level := range n.queues[c].bySends {
			for _, r := range level {
				in.Rumours = append(in.Rumours, Rumour{Subject: r.subject.id, Record: r.class == classRecord, Sends: r.sends})
			}
		}
	}
	return in
}

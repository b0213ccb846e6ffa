package membership

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/swim"
	"github.com/fairlead/fairlead/core/swim/wire"
)

// Snapshot is the member table at one moment. It is immutable: share it, do
// not write to it.
type Snapshot struct {
	// Version rises with each published snapshot of this process.
	Version uint64

	// Seq is the sequence number of the last event that is included; 0 before
	// the first. Events after it lead from this snapshot to the next.
	Seq uint64

	// Members holds every known member, this node and tombstones included,
	// sorted by name, then id.
	Members []Member

	// Self is this node's own entry.
	Self Member

	// Exchanged reports whether the whole table of another member was heard
	// since the start.
	Exchanged bool

	// Unheard counts those who could tell of members that are missing here:
	// entries of the join list, and members of the last run that are not known
	// to be dead. With 0 there is nobody to wait for.
	Unheard int

	// Silent says why this node does not speak; empty while it does.
	Silent string
}

// Member is what this node knows of one member.
type Member struct {
	ID    model.NodeID
	Name  string
	Addr  netip.AddrPort
	Value model.Value
	Since time.Time // when the state last changed, on this node's clock
	Self  bool

	// HeldUntil is when the hold of a restart that it announced ends, on this
	// node's clock; zero if none is in force.
	HeldUntil time.Time

	// The newest node record; RecordEpoch is 0 before the first. Vector and
	// Definition are shared: do not write to them.
	RecordEpoch uint64
	RecordSeq   uint64
	Vector      []byte    // nil until pulled, if it is
	VectorHash  wire.Hash // of the vector, if it is too long for a rumour, else zero
	Hash        wire.Hash // of the definition; zero if the node has none
	Definition  []byte    // nil until pulled
}

// RecordHere reports whether all of the newest record is here, and nothing of
// it has still to be pulled.
func (m *Member) RecordHere() bool {
	return (m.Hash == (wire.Hash{}) || m.Definition != nil) && (m.VectorHash == (wire.Hash{}) || m.Vector != nil)
}

// Live counts the members that are alive or suspect, this node included.
func (s *Snapshot) Live() int {
	n := 0
	for i := range s.Members {
		if s.Members[i].Value.State.Live() {
			n++
		}
	}
	return n
}

// Find returns the member with this id.
func (s *Snapshot) Find(id model.NodeID) (Member, bool) {
	for i := range s.Members {
		if s.Members[i].ID == id {
			return s.Members[i], true
		}
	}
	return Member{}, false
}

// memberOf joins a member with its definition and its vector, if they are here.
func memberOf(m swim.Member, kept func(wire.Hash) []byte) Member {
	out := Member{ID: m.ID, Name: m.Name, Addr: m.Addr, Value: m.Value, Since: m.Since, Self: m.Self, HeldUntil: m.HeldUntil}
	if p, ok := splitRecord(m.Record); ok {
		out.RecordEpoch, out.RecordSeq = m.Record.Epoch, m.Record.Seq
		out.Hash, out.Definition = p.definition, kept(p.definition)
		if out.VectorHash, out.Vector = p.pulled, p.vector; p.pulled != (wire.Hash{}) {
			out.Vector = kept(p.pulled)
		}
	}
	return out
}

// newSnapshot builds the sorted table.
func newSnapshot(members []swim.Member, kept func(wire.Hash) []byte) *Snapshot {
	s := &Snapshot{Members: make([]Member, 0, len(members))}
	for _, m := range members {
		s.Members = append(s.Members, memberOf(m, kept))
		if m.Self {
			s.Self = s.Members[len(s.Members)-1]
		}
	}
	slices.SortFunc(s.Members, func(a, b Member) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
	})
	return s
}

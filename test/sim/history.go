package sim

import (
	"net/netip"

	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/swim"
	"github.com/fairlead/fairlead/core/swim/wire"
)

// History is what the owners of ids really did, seen from outside of the
// protocol: what others may at most believe of them.
type History struct {
	owners map[model.NodeID]*owner
	// proof holds who did not get an answer from whom.
	proof map[verdict]bool
	// asked holds which subject a ping-req is about, by asker and number.
	asked map[request]model.NodeID
}

// owner is the life of one id over all its processes.
type owner struct {
	spoken     model.Value // the greatest word; State is not used
	left       map[model.Value]bool
	held       map[model.Value]bool  // at which words it announced a restart
	identities map[uint64][]identity // by epoch; one each, unless an old directory was used again
	records    map[recordKey][]string
	reused     bool // an old or copied directory was used
}

type identity struct {
	name string
	addr netip.AddrPort
}

type recordKey struct{ epoch, seq uint64 }

type verdict struct{ subject, accuser model.NodeID }

type request struct {
	asker netip.AddrPort
	seq   uint32
}

func newHistory() *History {
	return &History{owners: map[model.NodeID]*owner{}, proof: map[verdict]bool{}, asked: map[request]model.NodeID{}}
}

func (h *History) of(id model.NodeID) *owner {
	o := h.owners[id]
	if o == nil {
		o = &owner{left: map[model.Value]bool{}, held: map[model.Value]bool{}, identities: map[uint64][]identity{}, records: map[recordKey][]string{}}
		h.owners[id] = o
	}
	return o
}

// restored notes that the directory of id is an old or a copied one, so that
// epochs may be spoken twice.
func (h *History) restored(id model.NodeID) { h.of(id).reused = true }

// spoke notes the owner's own row.
func (h *History) spoke(self *swim.Member) {
	o := h.of(self.ID)
	if self.Value.CompareWord(o.spoken) > 0 {
		o.spoken = self.Value
	}
	if self.Value.State == model.StateLeft {
		o.left[self.Value] = true
	}
	if !self.HeldUntil.IsZero() {
		o.held[self.Value] = true
	}
	who := identity{self.Name, self.Addr}
	if !o.was(self.Value.Epoch, who) {
		o.identities[self.Value.Epoch] = append(o.identities[self.Value.Epoch], who)
	}
	if r := self.Record; r != nil && !o.said(r.Epoch, r.Seq, r.Payload) {
		k := recordKey{r.Epoch, r.Seq}
		o.records[k] = append(o.records[k], string(r.Payload))
	}
}

// was reports whether the owner had this identity in the epoch.
func (o *owner) was(epoch uint64, who identity) bool {
	for _, i := range o.identities[epoch] {
		if i == who {
			return true
		}
	}
	return false
}

// ever reports whether the owner had this identity in the epoch or before.
func (o *owner) ever(epoch uint64, who identity) bool {
	for e, all := range o.identities {
		if e <= epoch {
			for _, i := range all {
				if i == who {
					return true
				}
			}
		}
	}
	return false
}

// said reports whether the owner published this record.
func (o *owner) said(epoch, seq uint64, payload []byte) bool {
	for _, p := range o.records[recordKey{epoch, seq}] {
		if p == string(payload) {
			return true
		}
	}
	return false
}

// sends notes what a packet that p sends proves.
func (h *History) sends(p *Process, to netip.AddrPort, m *wire.Message) {
	switch m.Type {
	case wire.PingReq:
		h.asked[request{p.Addr, m.Seq}] = m.Subject
	case wire.Nack:
		if subject, known := h.asked[request{to, m.Seq}]; known && m.Reason == wire.NackNoAnswer {
			h.proof[verdict{subject, p.Disk.ID}] = true
		}
	}
}

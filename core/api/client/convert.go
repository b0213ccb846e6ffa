package client

import (
	"github.com/fairlead/fairlead/core/api/fairleadv1"
	"github.com/fairlead/fairlead/core/model"
)

func member(m *fairleadv1.Member) Member {
	v := value(m.GetValue())
	out := Member{
		ID:          model.NodeID(m.GetId()),
		Name:        m.GetName(),
		Addr:        m.GetAddr(),
		State:       v.State,
		Epoch:       v.Epoch,
		Incarnation: v.Incarnation,
		Since:       m.GetSince().AsTime(),
		Self:        m.GetSelf(),
		Role:        m.GetRole(),
	}
	if m.GetHeldUntil() != nil {
		out.HeldUntil = m.GetHeldUntil().AsTime()
	}
	return out
}

func members(in []*fairleadv1.Member) []Member {
	out := make([]Member, len(in))
	for i, m := range in {
		out[i] = member(m)
	}
	return out
}

func event(r *fairleadv1.EventsResponse) Event {
	if rs := r.GetResync(); rs != nil {
		return Event{Seq: rs.GetSeq(), Resync: true, Members: members(rs.GetMembers())}
	}
	e := r.GetEvent()
	return Event{
		Seq:    e.GetSeq(),
		At:     e.GetAt().AsTime(),
		Kind:   e.GetKind(),
		Member: member(e.GetMember()),
		Was:    value(e.GetWas()),
		From:   e.GetFrom(),
		Detail: e.GetDetail(),
	}
}

// value undoes the shift of core/api: the API's 0 is no state. A state of a
// newer agent, unknown here, keeps its number and prints as such.
func value(v *fairleadv1.Value) model.Value {
	return model.Value{
		Epoch:       v.GetEpoch(),
		Incarnation: v.GetIncarnation(),
		State:       model.State(v.GetState() - fairleadv1.State_STATE_ALIVE),
	}
}

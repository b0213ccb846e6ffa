package api

import (
	"net/netip"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/fairlead/fairlead/core/api/fairleadv1"
	"github.com/fairlead/fairlead/core/model"
)

func memberToProto(m Member) *fairleadv1.Member {
	out := &fairleadv1.Member{
		Id:    uint64(m.ID),
		Name:  m.Name,
		Addr:  addrText(m.Addr),
		Value: valueToProto(m.Value),
		Since: timestamppb.New(m.Since),
		Self:  m.Self,
		Role:  m.Role,
	}
	if !m.HeldUntil.IsZero() {
		out.HeldUntil = timestamppb.New(m.HeldUntil)
	}
	return out
}

func membersToProto(members []Member) []*fairleadv1.Member {
	out := make([]*fairleadv1.Member, len(members))
	for i, m := range members {
		out[i] = memberToProto(m)
	}
	return out
}

func eventToProto(e Event) *fairleadv1.EventsResponse {
	if e.Resync {
		return &fairleadv1.EventsResponse{Item: &fairleadv1.EventsResponse_Resync{
			Resync: &fairleadv1.Resync{Seq: e.Seq, Members: membersToProto(e.Members)},
		}}
	}
	return &fairleadv1.EventsResponse{Item: &fairleadv1.EventsResponse_Event{
		Event: &fairleadv1.Event{
			Seq:    e.Seq,
			At:     timestamppb.New(e.At),
			Kind:   e.Kind,
			Member: memberToProto(e.Member),
			Was:    valueToProto(e.Was),
			From:   addrText(e.From),
			Detail: e.Detail,
		},
	}}
}

// valueToProto shifts the state by one: on the API, unlike in gossip, a
// missing field must not read as alive.
func valueToProto(v model.Value) *fairleadv1.Value {
	return &fairleadv1.Value{
		Epoch:       v.Epoch,
		Incarnation: v.Incarnation,
		State:       fairleadv1.State(v.State) + fairleadv1.State_STATE_ALIVE,
	}
}

func addrText(a netip.AddrPort) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}

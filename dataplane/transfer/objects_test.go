package transfer

import (
	"math"
	"net/netip"

	"google.golang.org/protobuf/proto"

	"github.com/fairlead/fairlead/dataplane"
	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
)

// What goes over the wire straight from bytes to lists, by way of generated
// code: the oracle of the former.

func encodeEndpoint(e dataplane.Endpoint) *pb.Endpoint {
	out := &pb.Endpoint{
		Id: e.ID, Address: encodeAddr(e.Addr), State: pb.EndpointState(e.State), Zone: e.Zone, Name: e.Name, DrainUntil: encodeTime(e.DrainUntil),
	}
	if !e.Addr.IsValid() {
		out.Address = []byte{0} // no address, where none would mean the one before
	}
	if e.AddrForeign.IsValid() && e.AddrForeign != e.Addr {
		out.AddressForeign = encodeAddr(e.AddrForeign)
	}
	if e.Weight != 1 {
		w := uint32(e.Weight)
		out.Weight = &w
	}
	return out
}

// encodeUpsert returns the wire form of an endpoint of a service that was
// known as old. What only changes its state needs no more than that: the most
// frequent change, and one that comes for all endpoints of a node at once.
func encodeUpsert(old *dataplane.Service, e dataplane.Endpoint) *pb.Endpoint {
	if old != nil && e.Addr.IsValid() {
		was, known := old.Endpoints.Get(e.ID)
		was.State, was.DrainUntil = e.State, e.DrainUntil
		if known && was.Equal(e) {
			return &pb.Endpoint{Id: e.ID, State: pb.EndpointState(e.State), DrainUntil: encodeTime(e.DrainUntil)}
		}
	}
	return encodeEndpoint(e)
}

// decodeUpsert reads an endpoint of a service that is known as old. Without an
// address it says the state of one that is known.
func decodeUpsert(old dataplane.Endpoints, e *pb.Endpoint) dataplane.Endpoint {
	if len(e.GetAddress()) == 0 {
		if was, known := old.Get(e.GetId()); known {
			was.State, was.DrainUntil = enum[dataplane.EndpointState](e.GetState()), decodeTime(e.GetDrainUntil())
			return was
		}
	}
	return decodeEndpoint(e)
}

func decodeEndpoint(e *pb.Endpoint) dataplane.Endpoint {
	out := dataplane.Endpoint{
		ID: e.GetId(), Name: e.GetName(), Addr: ParseAddr(e.GetAddress()), State: enum[dataplane.EndpointState](e.GetState()),
		Weight: 1, Zone: e.GetZone(), DrainUntil: decodeTime(e.GetDrainUntil()),
	}
	if b := e.GetAddressForeign(); len(b) > 0 {
		if out.AddrForeign = ParseAddr(b); !out.AddrForeign.IsValid() {
			out.AddrForeign = netip.AddrPortFrom(netip.IPv6Unspecified(), 0) // not absent: Check refuses it
		}
	}
	if e.Weight != nil {
		out.Weight = uint16(min(e.GetWeight(), math.MaxUint16))
	}
	return out
}

// objects is a Change, encoded or not, as generated code reads it.
func objects(c *pb.Change) *pb.Change {
	out := &pb.Change{}
	b, err := proto.Marshal(c)
	if err == nil {
		err = proto.Unmarshal(b, out)
	}
	if err != nil {
		panic(err) // the encoder made it
	}
	return out
}

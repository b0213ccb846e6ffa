package transfer

import (
	"encoding/binary"
	"math"
	"net/netip"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/fairlead/fairlead/dataplane"
	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
)

// unknownValue stands for a value of a later version. Service.Check finds it.
const unknownValue = math.MaxUint8

// AppendAddr appends the wire form of an address: 4 or 16 bytes of IP and 2 of
// port.
func AppendAddr(b []byte, a netip.AddrPort) []byte {
	switch ip := a.Addr().Unmap(); {
	case ip.Is4():
		v4 := ip.As4()
		b = append(b, v4[:]...)
	case ip.Is6():
		v6 := ip.As16()
		b = append(b, v6[:]...)
	}
	return binary.BigEndian.AppendUint16(b, a.Port())
}

// ParseAddr reads what AppendAddr wrote; anything else is the zero AddrPort,
// which no check lets pass.
func ParseAddr(b []byte) netip.AddrPort {
	if len(b) < 2 {
		return netip.AddrPort{}
	}
	ip, ok := netip.AddrFromSlice(b[:len(b)-2])
	if !ok {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(ip.Unmap(), binary.BigEndian.Uint16(b[len(b)-2:]))
}

func encodeAddr(a netip.AddrPort) []byte {
	if !a.IsValid() {
		return nil
	}
	return AppendAddr(make([]byte, 0, 18), a)
}

// enum narrows a value of the wire. Later versions may send larger ones.
func enum[To ~uint8, From ~int32](v From) To {
	if v < 0 || v >= unknownValue {
		return unknownValue
	}
	return To(v)
}

// EncodeKey returns the wire form of a service's key.
func EncodeKey(k dataplane.Key) *pb.ServiceKey {
	return &pb.ServiceKey{Namespace: k.Namespace, Name: k.Name}
}

// DecodeKey reads what EncodeKey wrote.
func DecodeKey(k *pb.ServiceKey) dataplane.Key {
	return dataplane.Key{Namespace: k.GetNamespace(), Name: k.GetName()}
}

func encodeService(handle uint32, s *dataplane.Service) *pb.Service {
	out := &pb.Service{
		Handle: handle, Key: EncodeKey(s.Key), Balance: pb.Balance(s.Balance), Hosts: s.Hosts, SinceUnixMs: s.Since,
	}
	for _, f := range s.Frontends {
		out.Frontends = append(out.Frontends, &pb.Frontend{
			Address: encodeAddr(f.Addr), Protocol: pb.Protocol(f.Protocol), Kind: pb.FrontendKind(f.Kind), OnEmpty: pb.OnEmpty(f.OnEmpty),
		})
	}
	if s.Affinity.ByClient {
		out.Affinity = &pb.Affinity{Kind: pb.AffinityKind_AFFINITY_KIND_CLIENT, Ttl: durationpb.New(s.Affinity.TTL)}
	}
	for _, r := range s.Routes {
		out.Routes = append(out.Routes, &pb.Route{Host: r.Host, PathPrefix: r.PathPrefix, Headers: r.Headers, Methods: r.Methods})
	}
	if s.DrainTime != 0 {
		out.DrainTime = durationpb.New(s.DrainTime)
	}
	return out
}

// decodeService reads a definition; its endpoints are empty.
func decodeService(s *pb.Service) *dataplane.Service {
	out := &dataplane.Service{
		Key: DecodeKey(s.GetKey()), Balance: enum[dataplane.Balance](s.GetBalance()), Hosts: s.GetHosts(),
		DrainTime: s.GetDrainTime().AsDuration(), Since: s.GetSinceUnixMs(),
	}
	if n := len(s.GetFrontends()); n > 0 {
		out.Frontends = make([]dataplane.Frontend, 0, n)
	}
	for _, f := range s.GetFrontends() {
		out.Frontends = append(out.Frontends, dataplane.Frontend{
			Addr: ParseAddr(f.GetAddress()), Protocol: enum[dataplane.Protocol](f.GetProtocol()),
			Kind: enum[dataplane.FrontendKind](f.GetKind()), OnEmpty: enum[dataplane.OnEmpty](f.GetOnEmpty()),
		})
	}
	switch a := s.GetAffinity(); a.GetKind() {
	case pb.AffinityKind_AFFINITY_KIND_UNSPECIFIED:
	case pb.AffinityKind_AFFINITY_KIND_CLIENT:
		out.Affinity = dataplane.Affinity{ByClient: true, TTL: a.GetTtl().AsDuration()}
	default:
		out.Balance = unknownValue // not understood: the service is refused as a whole
	}
	for _, r := range s.GetRoutes() {
		out.Routes = append(out.Routes, dataplane.Route{Host: r.GetHost(), PathPrefix: r.GetPathPrefix(), Headers: r.GetHeaders(), Methods: r.GetMethods()})
	}
	return out
}

func encodeTime(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

func decodeTime(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}

func encodeSession(s dataplane.Session) *pb.Session {
	return &pb.Session{AgentId: s.AgentID, BootEpoch: s.BootEpoch}
}

func decodeSession(s *pb.Session) dataplane.Session {
	return dataplane.Session{AgentID: s.GetAgentId(), BootEpoch: s.GetBootEpoch()}
}

package record

import (
	"encoding/binary"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/fairlead/fairlead/core/model"
)

// Encode returns the bytes of a definition, always the same for the same
// value. The error wraps ErrRecord and names the bound that was passed.
func Encode(d Definition) ([]byte, error) {
	if err := d.check(); err != nil {
		return nil, err
	}
	var b []byte
	b = appendBytes(b, 1, d.Advertise.Unmap().AsSlice())
	b = appendBytes(b, 2, d.Zone)
	for i := range d.Services {
		b = appendPart(b, 3, appendService(nil, &d.Services[i]))
	}
	for i := range d.Instances {
		b = appendPart(b, 4, appendInstance(nil, &d.Instances[i]))
	}
	if d.Server != nil {
		b = appendPart(b, 5, appendServer(nil, d.Server))
	}
	if len(b) > MaxBytes {
		return nil, fmt.Errorf("%w: the definition has %d bytes, at most %d: run fewer instances on this node, or shorten their routes", ErrRecord, len(b), MaxBytes)
	}
	return b, nil
}

func appendService(b []byte, s *model.Service) []byte {
	b = appendBytes(b, 1, s.Key.Namespace)
	b = appendBytes(b, 2, s.Key.Name)
	for _, p := range s.Ports {
		port := appendNumber(nil, 1, uint64(p.Port))
		b = appendPart(b, 3, appendNumber(port, 2, uint64(p.Protocol)))
	}
	b = appendBytes(b, 4, s.VIP.Unmap().AsSlice())
	for _, a := range s.Intercept {
		b = appendAddr(b, 5, a)
	}
	b = appendNumber(b, 6, uint64(s.OnEmpty))
	b = appendNumber(b, 7, uint64(s.Balance))
	b = appendNumber(b, 8, uint64(s.Affinity))
	for _, h := range s.Hosts {
		b = appendPart(b, 9, []byte(h))
	}
	for i := range s.Routes {
		b = appendPart(b, 10, appendRoute(nil, &s.Routes[i]))
	}
	b = appendNumber(b, 11, uint64(s.DrainTime))
	return appendNumber(b, 12, protowire.EncodeZigZag(s.Registered))
}

func appendInstance(b []byte, in *model.Instance) []byte {
	b = appendBytes(b, 1, in.ID)
	b = appendBytes(b, 2, in.Service.Namespace)
	b = appendBytes(b, 3, in.Service.Name)
	b = appendAddr(b, 4, in.Addr)
	b = appendNumber(b, 5, uint64(in.HostPort))
	if in.Weight != 1 {
		b = appendNumber(b, 6, uint64(in.Weight)+1)
	}
	return b
}

func appendServer(b []byte, s *Server) []byte {
	b = appendNumber(b, 1, s.ID)
	b = appendNumber(b, 2, s.Group)
	b = appendAddr(b, 3, s.RPC)
	if s.API.IsValid() {
		b = appendAddr(b, 4, s.API)
	}
	b = appendNumber(b, 5, uint64(s.Expect))
	b = appendNumber(b, 6, s.Term)
	if s.Learner {
		b = appendNumber(b, 7, 1)
	}
	return b
}

func appendRoute(b []byte, r *model.Route) []byte {
	b = appendBytes(b, 1, r.Host)
	b = appendBytes(b, 2, r.PathPrefix)
	for _, k := range slices.Sorted(maps.Keys(r.Headers)) {
		header := appendBytes(nil, 1, k)
		b = appendPart(b, 3, appendBytes(header, 2, r.Headers[k]))
	}
	for _, m := range r.Methods {
		b = appendPart(b, 4, []byte(m))
	}
	return b
}

// appendPart appends an element of a list, which may be empty.
func appendPart(b []byte, field protowire.Number, part []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), part)
}

func appendBytes[T string | []byte](b []byte, field protowire.Number, v T) []byte {
	if len(v) == 0 {
		return b
	}
	return appendPart(b, field, []byte(v))
}

func appendNumber(b []byte, field protowire.Number, v uint64) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), v)
}

func appendAddr(b []byte, field protowire.Number, a netip.AddrPort) []byte {
	return appendPart(b, field, binary.BigEndian.AppendUint16(a.Addr().Unmap().AsSlice(), a.Port()))
}

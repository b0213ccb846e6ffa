package record

import (
	"encoding/binary"
	"fmt"
	"math"
	"net/netip"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/fairlead/fairlead/core/model"
)

// Decode reads what Encode wrote, on this node or another. Nothing of the
// result shares memory with b. The error wraps ErrRecord.
func Decode(b []byte) (Definition, error) {
	var d Definition
	if len(b) > MaxBytes {
		return d, fmt.Errorf("%w: the definition has %d bytes, at most %d", ErrRecord, len(b), MaxBytes)
	}
	err := fields(b, func(f field) error {
		switch f.number {
		case 1:
			d.Advertise = f.ip()
		case 2:
			d.Zone = f.text()
		case 3:
			if len(d.Services) == MaxServices {
				return f.many("services", MaxServices)
			}
			d.Services = append(d.Services, model.Service{})
			return f.into(service(&d.Services[len(d.Services)-1]))
		case 4:
			if len(d.Instances) == MaxInstances {
				return f.many("instances", MaxInstances)
			}
			d.Instances = append(d.Instances, model.Instance{Weight: 1})
			return f.into(instance(&d.Instances[len(d.Instances)-1]))
		case 5:
			d.Server = &Server{}
			return f.into(server(d.Server))
		}
		return nil
	})
	if err == nil {
		err = d.check()
	}
	if err != nil {
		return Definition{}, err
	}
	return d, nil
}

func service(s *model.Service) func(field) error {
	return func(f field) error {
		switch f.number {
		case 1:
			s.Key.Namespace = f.text()
		case 2:
			s.Key.Name = f.text()
		case 3:
			if len(s.Ports) == MaxPorts {
				return f.many("ports", MaxPorts)
			}
			s.Ports = append(s.Ports, model.ServicePort{})
			return f.into(port(&s.Ports[len(s.Ports)-1]))
		case 4:
			s.VIP = f.ip()
		case 5:
			if len(s.Intercept) == MaxPorts {
				return f.many("intercept addresses", MaxPorts)
			}
			s.Intercept = append(s.Intercept, f.addr())
		case 6:
			s.OnEmpty = model.OnEmpty(f.small(math.MaxUint8))
		case 7:
			s.Balance = model.Balance(f.small(math.MaxUint8))
		case 8:
			s.Affinity = time.Duration(f.small(math.MaxInt64))
		case 9:
			if len(s.Hosts) == MaxRoutes {
				return f.many("hosts", MaxRoutes)
			}
			s.Hosts = append(s.Hosts, f.text())
		case 10:
			if len(s.Routes) == MaxRoutes {
				return f.many("routes", MaxRoutes)
			}
			s.Routes = append(s.Routes, model.Route{})
			return f.into(route(&s.Routes[len(s.Routes)-1]))
		case 11:
			s.DrainTime = time.Duration(f.small(math.MaxInt64))
		case 12:
			s.Registered = protowire.DecodeZigZag(f.value)
		}
		return nil
	}
}

func port(p *model.ServicePort) func(field) error {
	return func(f field) error {
		switch f.number {
		case 1:
			p.Port = uint16(f.small(math.MaxUint16))
		case 2:
			p.Protocol = model.Protocol(f.small(math.MaxUint8))
		}
		return nil
	}
}

func instance(in *model.Instance) func(field) error {
	return func(f field) error {
		switch f.number {
		case 1:
			in.ID = f.text()
		case 2:
			in.Service.Namespace = f.text()
		case 3:
			in.Service.Name = f.text()
		case 4:
			in.Addr = f.addr()
		case 5:
			in.HostPort = uint16(f.small(math.MaxUint16))
		case 6:
			in.Weight = uint16(max(1, f.small(math.MaxUint16+1)) - 1)
		}
		return nil
	}
}

func server(s *Server) func(field) error {
	return func(f field) error {
		switch f.number {
		case 1:
			s.ID = f.value
		case 2:
			s.Group = f.value
		case 3:
			s.RPC = f.addr()
		case 4:
			s.API = f.addr()
		case 5:
			s.Expect = uint8(f.small(math.MaxUint8))
		case 6:
			s.Term = f.value
		case 7:
			s.Learner = f.value != 0
		}
		return nil
	}
}

func route(r *model.Route) func(field) error {
	return func(f field) error {
		switch f.number {
		case 1:
			r.Host = f.text()
		case 2:
			r.PathPrefix = f.text()
		case 3:
			if len(r.Headers) == MaxMatches {
				return f.many("headers", MaxMatches)
			}
			var name, value string
			err := f.into(func(f field) error {
				switch f.number {
				case 1:
					name = f.text()
				case 2:
					value = f.text()
				}
				return nil
			})
			if r.Headers == nil {
				r.Headers = make(map[string]string)
			}
			r.Headers[name] = value
			return err
		case 4:
			if len(r.Methods) == MaxMatches {
				return f.many("methods", MaxMatches)
			}
			r.Methods = append(r.Methods, f.text())
		}
		return nil
	}
}

// field is one field of a message: a number or bytes, as its type says.
type field struct {
	number protowire.Number
	value  uint64
	bytes  []byte
}

// fields calls read for each field of b that is a number or bytes.
func fields(b []byte, read func(field) error) error {
	for len(b) > 0 {
		f := field{}
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return fmt.Errorf("%w: %w", ErrRecord, protowire.ParseError(n))
		}
		f.number, b = number, b[n:]
		switch kind {
		case protowire.VarintType:
			f.value, n = protowire.ConsumeVarint(b)
		case protowire.BytesType:
			f.bytes, n = protowire.ConsumeBytes(b)
		default:
			f.number = 0 // of a later version
			n = protowire.ConsumeFieldValue(number, kind, b)
		}
		if n < 0 {
			return fmt.Errorf("%w: field %d: %w", ErrRecord, number, protowire.ParseError(n))
		}
		b = b[n:]
		if err := read(f); err != nil {
			return err
		}
	}
	return nil
}

func (f field) into(read func(field) error) error { return fields(f.bytes, read) }

func (f field) text() string { return string(f.bytes) }

// small is the number, at most limit: what is beyond is no value that this
// version knows.
func (f field) small(limit uint64) uint64 { return min(f.value, limit) }

func (f field) many(what string, limit int) error {
	return fmt.Errorf("%w: more than %d %s", ErrRecord, limit, what)
}

// ip reads an address; anything else is the zero Addr.
func (f field) ip() netip.Addr {
	a, _ := netip.AddrFromSlice(f.bytes)
	return a.Unmap()
}

// addr reads an address and a port; anything else is the zero AddrPort.
func (f field) addr() netip.AddrPort {
	if len(f.bytes) < 2 {
		return netip.AddrPort{}
	}
	split := len(f.bytes) - 2
	ip, ok := netip.AddrFromSlice(f.bytes[:split])
	if !ok {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(ip.Unmap(), binary.BigEndian.Uint16(f.bytes[split:]))
}

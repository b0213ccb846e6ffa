package main

import (
	"encoding/binary"
	"maps"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
)

// dropEndpoints leaves in a change nothing of the endpoints of a service.
func dropEndpoints(c *pb.Change, handle uint32) {
	c.Endpoints = slices.DeleteFunc(c.GetEndpoints(), func(g *pb.EndpointGroup) bool { return g.GetService() == handle })
	c.RemovedEndpoints = slices.DeleteFunc(c.GetRemovedEndpoints(), func(r *pb.EndpointRemoval) bool { return r.GetService() == handle })
}

// ordersByName does not ask when a service was registered.
func ordersByName(m *meddler) {
	m.change = func(c *pb.Change) error {
		for _, s := range c.GetServices() {
			s.SinceUnixMs = 0
		}
		return nil
	}
}

// neverPurges takes every snapshot for one that only adds.
func neverPurges(m *meddler) {
	m.begin = func(b *pb.Begin) {
		if b.GetBase() == 0 {
			b.Completeness = pb.Completeness_COMPLETENESS_INCOMPLETE
		}
	}
}

// completesWithSnapshots waits for a whole one.
func completesWithSnapshots(m *meddler) {
	m.begin = func(b *pb.Begin) {
		if b.GetBase() != 0 && m.last.GetCompleteness() == pb.Completeness_COMPLETENESS_INCOMPLETE {
			b.Completeness = m.last.GetCompleteness()
		}
	}
}

// firstCounts keeps what a generation said first.
func firstCounts(m *meddler) {
	seen := make(map[uint32]bool)
	m.begin = func(*pb.Begin) { clear(seen) }
	m.change = func(c *pb.Change) error {
		c.Services = slices.DeleteFunc(c.GetServices(), func(s *pb.Service) bool {
			was := seen[s.GetHandle()]
			seen[s.GetHandle()] = true
			return was
		})
		return nil
	}
}

// keepsWhileIncomplete keeps also what is removed by name.
func keepsWhileIncomplete(m *meddler) {
	incomplete := false
	m.begin = func(b *pb.Begin) { incomplete = b.GetCompleteness() == pb.Completeness_COMPLETENESS_INCOMPLETE }
	m.change = func(c *pb.Change) error {
		if incomplete {
			c.RemovedServices, c.RemovedEndpoints = nil, nil
		}
		return nil
	}
}

// upsertClears begins each service anew with its definition.
func upsertClears(m *meddler) {
	ids := make(map[uint32]map[uint64]bool)
	m.begin = func(b *pb.Begin) {
		if b.GetBase() == 0 {
			clear(ids)
		}
	}
	m.change = func(c *pb.Change) error {
		for _, s := range c.GetServices() {
			for id := range ids[s.GetHandle()] {
				c.RemovedEndpoints = append(c.RemovedEndpoints, &pb.EndpointRemoval{Service: s.GetHandle(), Id: id})
			}
			delete(ids, s.GetHandle())
		}
		for _, g := range c.GetEndpoints() {
			if ids[g.GetService()] == nil {
				ids[g.GetService()] = make(map[uint64]bool)
			}
			for _, e := range g.GetEndpoints() {
				ids[g.GetService()][e.GetId()] = true
			}
		}
		return nil
	}
}

// inOrderOnly wants services by rising handles.
func inOrderOnly(m *meddler) {
	var last uint32
	m.begin = func(*pb.Begin) { last = 0 }
	m.change = func(c *pb.Change) error {
		for _, s := range c.GetServices() {
			if s.GetHandle() < last {
				s.Frontends = []*pb.Frontend{{}}
			}
			last = s.GetHandle()
		}
		return nil
	}
}

// wantsAddresses takes an endpoint without one for a broken one.
func wantsAddresses(m *meddler) {
	m.change = func(c *pb.Change) error {
		for _, g := range c.GetEndpoints() {
			for _, e := range g.GetEndpoints() {
				if len(e.GetAddress()) == 0 {
					e.Address = []byte{0}
				}
			}
		}
		return nil
	}
}

// ignoresCompleteness takes any, and does not compare them.
func ignoresCompleteness(m *meddler) {
	m.begin = func(b *pb.Begin) {
		if _, known := pb.Completeness_name[int32(b.GetCompleteness())]; !known || b.GetCompleteness() == 0 {
			b.Completeness = pb.Completeness_COMPLETENESS_EXCHANGED
		}
		if b.GetGeneration() == m.last.GetGeneration() && proto.Equal(b.GetSession(), m.last.GetSession()) {
			b.Completeness = m.last.GetCompleteness()
		}
	}
}

// startsOver programs each snapshot as if nothing were there.
func startsOver(m *meddler) {
	whole, services := false, 0
	m.begin = func(b *pb.Begin) { whole, services = b.GetBase() == 0, 0 }
	m.change = func(c *pb.Change) error {
		services += len(c.GetServices())
		return nil
	}
	m.answer = func(r *pb.ReconcileResponse) {
		if whole {
			r.Operations = uint32(services)
		}
	}
}

// refusesWhatItHas knows "unchanged", but no repetition.
func refusesWhatItHas(m *meddler) {
	m.refuse = func(b *pb.Begin) error {
		if proto.Equal(b.GetSession(), m.last.GetSession()) && b.GetGeneration() == m.last.GetGeneration() && b.GetBase() != b.GetGeneration() {
			return status.Error(codes.FailedPrecondition, "that was applied already")
		}
		return nil
	}
}

// knowsOneAgent belongs to the first that came.
func knowsOneAgent(m *meddler) {
	m.refuse = func(b *pb.Begin) error {
		if owner := m.last.GetSession().GetAgentId(); owner != "" && owner != b.GetSession().GetAgentId() {
			return status.Error(codes.PermissionDenied, "another agent was first")
		}
		return nil
	}
}

// fronts keeps whose frontends are where.
type fronts map[string]string

func (at fronts) note(c *pb.Change, taken func(*pb.Service, *pb.Frontend)) {
	for _, s := range c.GetServices() {
		for _, f := range s.GetFrontends() {
			if owner := at[string(f.GetAddress())]; owner != "" && owner != s.GetKey().GetName() {
				taken(s, f)
				continue
			}
			at[string(f.GetAddress())] = s.GetKey().GetName()
		}
	}
}

// twoForOne says of both that they are programmed.
func twoForOne(m *meddler) {
	at := make(fronts)
	m.begin = func(b *pb.Begin) {
		if b.GetBase() == 0 {
			clear(at)
		}
	}
	m.change = func(c *pb.Change) error {
		at.note(c, func(s *pb.Service, f *pb.Frontend) {
			f.Address = binary.BigEndian.AppendUint16([]byte{203, 0, 113, byte(s.GetHandle())}, 80)
		})
		return nil
	}
}

// goesInCircles does not compare endpoints with frontends.
func goesInCircles(m *meddler) {
	at := make(fronts)
	m.change = func(c *pb.Change) error {
		at.note(c, func(*pb.Service, *pb.Frontend) {})
		for _, g := range c.GetEndpoints() {
			for _, e := range g.GetEndpoints() {
				if at[string(e.GetAddress())] != "" {
					e.Address = binary.BigEndian.AppendUint16([]byte{203, 0, 113, 1}, 80)
				}
			}
		}
		return nil
	}
}

// guessesPorts takes port 0 for the usual one.
func guessesPorts(m *meddler) {
	guess := func(address []byte) {
		if n := len(address); n > 2 && address[n-1] == 0 && address[n-2] == 0 {
			address[n-1] = 80
		}
	}
	m.change = func(c *pb.Change) error {
		for _, s := range c.GetServices() {
			for _, f := range s.GetFrontends() {
				guess(f.GetAddress())
			}
		}
		for _, g := range c.GetEndpoints() {
			for _, e := range g.GetEndpoints() {
				guess(e.GetAddress())
			}
		}
		return nil
	}
}

// dropsIPv6 has no IPv6, and no word for that.
func dropsIPv6(m *meddler) {
	m.change = func(c *pb.Change) error {
		c.Services = slices.DeleteFunc(c.GetServices(), func(s *pb.Service) bool {
			six := slices.ContainsFunc(s.GetFrontends(), func(f *pb.Frontend) bool { return len(f.GetAddress()) == 18 })
			if six {
				dropEndpoints(c, s.GetHandle())
			}
			return six
		})
		return nil
	}
}

// halfOfIt takes what it can of a bad service, and calls it REJECTED.
func halfOfIt(m *meddler) {
	names, bad := make(map[uint32]*pb.ServiceKey), make(map[uint32]bool)
	m.begin = func(*pb.Begin) { clear(bad) }
	m.change = func(c *pb.Change) error {
		for _, s := range c.GetServices() {
			names[s.GetHandle()] = s.GetKey()
		}
		for _, g := range c.GetEndpoints() {
			for _, e := range g.GetEndpoints() {
				if len(e.GetAddress()) == 1 {
					bad[g.GetService()] = true
					e.Address = binary.BigEndian.AppendUint16([]byte{203, 0, 113, 1}, 80)
				}
			}
		}
		return nil
	}
	m.answer = func(r *pb.ReconcileResponse) {
		for _, h := range slices.Sorted(maps.Keys(bad)) {
			r.Statuses = append(r.Statuses, &pb.ServiceStatus{Service: names[h], Status: pb.Status_STATUS_REJECTED, Reason: "bad-endpoint", Message: "an address of 1 byte"})
		}
	}
}

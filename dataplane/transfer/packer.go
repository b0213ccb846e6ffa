package transfer

import (
	"encoding/binary"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/fairlead/fairlead/dataplane"
	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
)

// packer fills messages up to the bound. Within one message services are
// applied before endpoints, those before removals, and those of services last:
// the order in which the parts of one service come, and other services do not
// matter. The messages are encoded Changes, as generated code would encode them.
type packer struct {
	yield   func(*pb.Change) bool
	fields  [4][]byte // of a Change, by their numbers
	group   []byte    // of endpoints, of the service whose
	whose   uint32
	scratch []byte
	bytes   int // at least what the message takes
	stopped bool
}

// overhead is at least what the framing of one element takes.
const overhead = 16

// room makes a new message if this one cannot take n bytes more.
func (p *packer) room(n int) {
	if p.bytes > 0 && p.bytes+n+overhead > MaxChangeBytes {
		p.flush()
	}
	p.bytes += n + overhead
}

func (p *packer) flush() {
	p.closeGroup()
	if p.bytes > 0 && !p.stopped {
		size := 0
		for _, f := range p.fields {
			size += len(f)
		}
		b := make([]byte, 0, size)
		for _, f := range p.fields {
			b = append(b, f...)
		}
		p.stopped = !p.yield(encodedChange(b))
	}
	for i := range p.fields {
		p.fields[i] = p.fields[i][:0]
	}
	p.bytes = 0
}

// add appends p.scratch as a field of the Change.
func (p *packer) add(tag uint64) {
	p.room(len(p.scratch))
	f := &p.fields[tag>>3-1]
	*f = protowire.AppendBytes(protowire.AppendVarint(*f, tag), p.scratch)
}

// message adds a message by generated code. That fails for text that is no UTF-8,
// which no record holds, and leaves bytes that the other side refuses.
func (p *packer) message(tag uint64, m proto.Message) {
	p.scratch, _ = proto.MarshalOptions{}.MarshalAppend(p.scratch[:0], m)
	p.add(tag)
}

func (p *packer) service(s *pb.Service) { p.message(changeServices, s) }

func (p *packer) endpoint(service uint32, e dataplane.Endpoint, stateOnly bool) {
	if stateOnly {
		p.scratch = appendState(p.scratch[:0], e)
	} else {
		p.scratch = appendEndpoint(p.scratch[:0], e)
	}
	p.room(len(p.scratch))
	if p.whose != service {
		p.closeGroup()
		p.whose = service
		p.group = appendVarint(p.group, groupService, uint64(service))
	}
	p.group = protowire.AppendBytes(protowire.AppendVarint(p.group, groupEndpoints), p.scratch)
}

func (p *packer) closeGroup() {
	if len(p.group) > 0 {
		f := &p.fields[changeEndpoints>>3-1]
		*f = protowire.AppendBytes(protowire.AppendVarint(*f, changeEndpoints), p.group)
	}
	p.group, p.whose = p.group[:0], 0
}

func (p *packer) removeEndpoint(r *pb.EndpointRemoval) { p.message(changeRemovedEndpoints, r) }

func (p *packer) removeService(handle uint32) {
	p.message(changeRemovedServices, &pb.ServiceRemoval{Service: handle})
}

// appendEndpoint appends an endpoint, whole.
func appendEndpoint(b []byte, e dataplane.Endpoint) []byte {
	b = appendID(b, e.ID)
	var scratch [18]byte
	if e.Addr.IsValid() {
		b = appendBytes(b, endpointAddress, AppendAddr(scratch[:0], e.Addr))
	} else {
		b = appendBytes(b, endpointAddress, []byte{0}) // no address, where none would mean the one before
	}
	if e.AddrForeign.IsValid() && e.AddrForeign != e.Addr {
		b = appendBytes(b, endpointForeign, AppendAddr(scratch[:0], e.AddrForeign))
	}
	b = appendVarint(b, endpointState, uint64(e.State))
	if e.Weight != 1 { // also 0: absent is 1
		b = protowire.AppendVarint(protowire.AppendVarint(b, endpointWeight), uint64(e.Weight))
	}
	b = appendBytes(b, endpointZone, e.Zone)
	b = appendBytes(b, endpointName, e.Name)
	return appendDrain(b, e.DrainUntil)
}

// appendState appends an endpoint of which only the state is to change.
func appendState(b []byte, e dataplane.Endpoint) []byte {
	return appendDrain(appendVarint(appendID(b, e.ID), endpointState, uint64(e.State)), e.DrainUntil)
}

func appendID(b []byte, id uint64) []byte {
	if id == 0 {
		return b
	}
	return binary.LittleEndian.AppendUint64(protowire.AppendVarint(b, endpointID), id)
}

func appendDrain(b []byte, t time.Time) []byte {
	if t.IsZero() {
		return b
	}
	var scratch [24]byte
	m := appendVarint(scratch[:0], timeSeconds, uint64(t.Unix()))
	m = appendVarint(m, timeNanos, uint64(t.Nanosecond()))
	return protowire.AppendBytes(protowire.AppendVarint(b, endpointDrain), m)
}

// appendVarint appends a field unless it has the value of an absent one.
func appendVarint(b []byte, tag, value uint64) []byte {
	if value == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendVarint(b, tag), value)
}

// appendBytes appends a field unless it is empty, as an absent one is.
func appendBytes[T string | []byte](b []byte, tag uint64, value T) []byte {
	if len(value) == 0 {
		return b
	}
	b = protowire.AppendVarint(protowire.AppendVarint(b, tag), uint64(len(value)))
	return append(b, value...)
}

package transfer

import (
	"fmt"
	"math"
	"net/netip"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/fairlead/fairlead/dataplane"
)

// Fields of a Change, of an EndpointGroup, of an Endpoint and of a Timestamp.
const (
	changeServices         = 1<<3 | bytesForm
	changeEndpoints        = 2<<3 | bytesForm
	changeRemovedEndpoints = 3<<3 | bytesForm
	changeRemovedServices  = 4<<3 | bytesForm

	groupService   = 1<<3 | varintForm
	groupEndpoints = 2<<3 | bytesForm

	endpointID      = 1<<3 | fixed64Form
	endpointAddress = 2<<3 | bytesForm
	endpointForeign = 3<<3 | bytesForm
	endpointState   = 4<<3 | varintForm
	endpointWeight  = 5<<3 | varintForm
	endpointZone    = 6<<3 | bytesForm
	endpointName    = 7<<3 | bytesForm
	endpointDrain   = 8<<3 | bytesForm

	timeSeconds = 1<<3 | varintForm
	timeNanos   = 2<<3 | varintForm
)

// each calls f with the parts of m that have a tag.
func (m message) each(tag uint64, f func(part) error) error {
	for m.more() {
		p, err := m.next()
		if err == nil && p.tag == tag {
			err = f(p)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// unmarshal reads a part that is a message into an object: what is rare.
func (m message) unmarshal(p part, into proto.Message) error {
	if err := proto.Unmarshal(m.bytes(p), into); err != nil {
		return fmt.Errorf("%w: %w", dataplane.ErrInvalid, err)
	}
	return nil
}

// groupService reads whose endpoints a group has.
func (m message) groupService() (handle uint32, err error) {
	err = m.each(groupService, func(p part) error { handle = uint32(p.value); return nil })
	return handle, err
}

// endpoint reads an endpoint of a service that is known as old. Without an
// address it says the state of one that is known. Its strings share memory with
// the message.
func (m message) endpoint(old dataplane.Endpoints) (dataplane.Endpoint, error) {
	e := dataplane.Endpoint{Weight: 1}
	var address, foreign []byte
	var drain timestamp
	for m.more() {
		p, err := m.next()
		if err != nil {
			return e, err
		}
		switch p.tag {
		case endpointID:
			e.ID = p.value
		case endpointAddress:
			address = m.bytes(p)
		case endpointForeign:
			foreign = m.bytes(p)
		case endpointState:
			e.State = enum[dataplane.EndpointState](int32(p.value))
		case endpointWeight:
			e.Weight = uint16(min(uint32(p.value), math.MaxUint16))
		case endpointZone:
			e.Zone, err = m.string(p)
		case endpointName:
			e.Name, err = m.string(p)
		case endpointDrain:
			err = drain.merge(m.message(p))
		}
		if err != nil {
			return e, err
		}
	}
	e.DrainUntil = drain.time()
	if len(address) == 0 {
		if was, known := old.Get(e.ID); known {
			was.State, was.DrainUntil = e.State, e.DrainUntil
			return was, nil
		}
	}
	e.Addr = ParseAddr(address)
	if len(foreign) > 0 {
		if e.AddrForeign = ParseAddr(foreign); !e.AddrForeign.IsValid() {
			e.AddrForeign = netip.AddrPortFrom(netip.IPv6Unspecified(), 0) // not absent: Check refuses it
		}
	}
	return e, nil
}

// timestamp is a google.protobuf.Timestamp.
type timestamp struct {
	set     bool
	seconds int64
	nanos   int32
}

func (t *timestamp) merge(m message) error {
	t.set = true
	for m.more() {
		p, err := m.next()
		if err != nil {
			return err
		}
		switch p.tag {
		case timeSeconds:
			t.seconds = int64(p.value)
		case timeNanos:
			t.nanos = int32(p.value)
		}
	}
	return nil
}

func (t *timestamp) time() time.Time {
	if !t.set {
		return time.Time{}
	}
	return time.Unix(t.seconds, int64(t.nanos)).UTC()
}

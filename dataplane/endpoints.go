package dataplane

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Endpoint is one instance that takes connections, as this node reaches it.
type Endpoint struct {
	ID          uint64         // for the endpoint's life, unique in its service, not 0
	Name        string         // of the instance, for people
	Addr        netip.AddrPort // for sockets of the agent's own network namespace
	AddrForeign netip.AddrPort // for other namespaces and forwarded traffic; zero: the same
	State       EndpointState
	Weight      uint16 // share of new connections; 0 takes none
	Zone        string
	DrainUntil  time.Time // of a draining endpoint
}

// Foreign is the address for sockets outside the agent's network namespace:
// AddrForeign, or Addr where both are the same.
func (e Endpoint) Foreign() netip.AddrPort {
	if e.AddrForeign.IsValid() {
		return e.AddrForeign
	}
	return e.Addr
}

// Equal reports whether two endpoints are the same in every respect.
func (e Endpoint) Equal(o Endpoint) bool {
	e, o = e.normal(), o.normal()
	same := e.DrainUntil.Equal(o.DrainUntil)
	e.DrainUntil = o.DrainUntil
	return same && e == o
}

// Endpoints is the list of a service's endpoints, in the order of their ids. It
// is immutable and comparable: lists that are == hold equal endpoints. Some 30
// bytes hold one endpoint, where an Endpoint takes 136 and its strings: a
// provider keeps a hundred thousand of them.
//
// The zero list is empty.
type Endpoints struct {
	// packed is the number of entries as a varint, then each as appendTo
	// wrote it. Only a Packer makes it, so readers do not check it.
	packed string
}

// NewEndpoints returns the list of these endpoints. Of several with one id the
// last counts. IPv4 addresses in IPv6 form become IPv4; an address with an IPv6
// zone becomes [::]:0, which Check refuses, as another host could not reach it.
func NewEndpoints(list ...Endpoint) Endpoints {
	if len(list) == 0 {
		return Endpoints{}
	}
	if !strictlySorted(list) {
		list = slices.Clone(list)
		slices.SortStableFunc(list, byID)
		list = lastOfEach(list)
	}
	p := Packer{buf: make([]byte, 0, binary.MaxVarintLen64+packedBytes*len(list))}
	for _, e := range list {
		p.Add(e)
	}
	return p.Done()
}

// packedBytes is what most endpoints take at most.
const packedBytes = 48

func byID(a, b Endpoint) int { return cmp.Compare(a.ID, b.ID) }

// lastOfEach keeps, in place, the last of those that have one id.
func lastOfEach(sorted []Endpoint) []Endpoint {
	last := sorted[:0]
	for i, e := range sorted {
		if i+1 == len(sorted) || sorted[i+1].ID != e.ID {
			last = append(last, e)
		}
	}
	return last
}

func strictlySorted(list []Endpoint) bool {
	for i := 1; i < len(list); i++ {
		if list[i-1].ID >= list[i].ID {
			return false
		}
	}
	return true
}

// Len is the number of endpoints.
func (l Endpoints) Len() int {
	n, _ := uvarint(l.packed)
	return int(n)
}

// All yields the endpoints in the order of their ids.
func (l Endpoints) All() iter.Seq[Endpoint] {
	return func(yield func(Endpoint) bool) {
		for rest := l.entries(); rest != ""; {
			var e Endpoint
			if e, rest = unpack(rest); !yield(e) {
				return
			}
		}
	}
}

// Slice returns the endpoints as a fresh slice in the order of their ids.
func (l Endpoints) Slice() []Endpoint {
	return slices.AppendSeq(make([]Endpoint, 0, l.Len()), l.All())
}

// Get returns the endpoint of an id. It looks through the list.
func (l Endpoints) Get(id uint64) (Endpoint, bool) {
	for rest := l.entries(); rest != ""; {
		var e Endpoint
		if e, rest = unpack(rest); e.ID >= id {
			return e, e.ID == id
		}
	}
	return Endpoint{}, false
}

// String lists the endpoints, for tests and logs.
func (l Endpoints) String() string {
	var b strings.Builder
	for e := range l.All() {
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprintf(&b, "%s@%v/%v", e.label(), e.Addr, e.State)
	}
	return b.String()
}

func (l Endpoints) entries() string {
	_, rest := uvarint(l.packed)
	return rest
}

// Flags of a packed endpoint.
const (
	flagV4 = 1 << iota
	flagV6
	flagForeignV4
	flagForeignV6
	flagState
	flagWeight // other than 1
	flagDrain
	flagZone
)

// normal is the one form in which equal endpoints are the same.
func (e Endpoint) normal() Endpoint {
	e.Addr, e.AddrForeign = normalAddr(e.Addr), normalAddr(e.AddrForeign)
	if e.AddrForeign == e.Addr {
		e.AddrForeign = netip.AddrPort{}
	}
	return e
}

func normalAddr(a netip.AddrPort) netip.AddrPort {
	switch {
	case !a.IsValid():
		return netip.AddrPort{}
	case a.Addr().Zone() != "":
		return netip.AddrPortFrom(netip.IPv6Unspecified(), 0)
	}
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}

// appendTo packs a normal endpoint.
func (e Endpoint) appendTo(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, e.ID)
	flags := len(b)
	b = append(b, 0)
	set := func(when bool, flag byte) bool {
		if when {
			b[flags] |= flag
		}
		return when
	}
	addr := func(a netip.AddrPort, v4, v6 byte) {
		switch {
		case set(a.Addr().Is4(), v4):
			ip := a.Addr().As4()
			b = binary.LittleEndian.AppendUint16(append(b, ip[:]...), a.Port())
		case set(a.Addr().Is6(), v6):
			ip := a.Addr().As16()
			b = binary.LittleEndian.AppendUint16(append(b, ip[:]...), a.Port())
		}
	}
	addr(e.Addr, flagV4, flagV6)
	addr(e.AddrForeign, flagForeignV4, flagForeignV6)
	if set(e.State != Ready, flagState) {
		b = append(b, byte(e.State))
	}
	if set(e.Weight != 1, flagWeight) {
		b = binary.LittleEndian.AppendUint16(b, e.Weight)
	}
	if set(!e.DrainUntil.IsZero(), flagDrain) {
		b = binary.LittleEndian.AppendUint64(b, uint64(e.DrainUntil.Unix()))
		b = binary.LittleEndian.AppendUint32(b, uint32(e.DrainUntil.Nanosecond()))
	}
	if set(e.Zone != "", flagZone) {
		b = append(binary.AppendUvarint(b, uint64(len(e.Zone))), e.Zone...)
	}
	return append(binary.AppendUvarint(b, uint64(len(e.Name))), e.Name...)
}

// unpack reads the first entry, whose strings share memory with s, and returns
// what follows it.
func unpack(s string) (Endpoint, string) {
	e := Endpoint{ID: little[uint64](s), Weight: 1}
	flags := s[8]
	s = s[9:]
	switch {
	case flags&flagV4 != 0:
		e.Addr, s = netip.AddrPortFrom(netip.AddrFrom4([4]byte([]byte(s[:4]))), little[uint16](s[4:6])), s[6:]
	case flags&flagV6 != 0:
		e.Addr, s = netip.AddrPortFrom(netip.AddrFrom16([16]byte([]byte(s[:16]))), little[uint16](s[16:18])), s[18:]
	}
	switch {
	case flags&flagForeignV4 != 0:
		e.AddrForeign, s = netip.AddrPortFrom(netip.AddrFrom4([4]byte([]byte(s[:4]))), little[uint16](s[4:6])), s[6:]
	case flags&flagForeignV6 != 0:
		e.AddrForeign, s = netip.AddrPortFrom(netip.AddrFrom16([16]byte([]byte(s[:16]))), little[uint16](s[16:18])), s[18:]
	}
	if flags&flagState != 0 {
		e.State, s = EndpointState(s[0]), s[1:]
	}
	if flags&flagWeight != 0 {
		e.Weight, s = little[uint16](s), s[2:]
	}
	if flags&flagDrain != 0 {
		e.DrainUntil, s = time.Unix(int64(little[uint64](s)), int64(little[uint32](s[8:]))).UTC(), s[12:]
	}
	if flags&flagZone != 0 {
		e.Zone, s = text(s)
	}
	e.Name, s = text(s)
	return e, s
}

// skip returns what unpack returns second, and the entry unread.
func skip(s string) (entry, rest string) {
	n := 9
	flags := s[8]
	for flag, size := range [...]int{6, 18, 6, 18, 1, 2, 12} {
		if flags&(1<<flag) != 0 {
			n += size
		}
	}
	rest = s[n:]
	if flags&flagZone != 0 {
		_, rest = text(rest)
	}
	_, rest = text(rest)
	return s[:len(s)-len(rest)], rest
}

func text(s string) (string, string) {
	n, s := uvarint(s)
	return s[:n], s[n:]
}

func uvarint(s string) (uint64, string) {
	var v uint64
	for i := 0; i < len(s); i++ {
		v |= uint64(s[i]&0x7f) << (7 * i)
		if s[i] < 0x80 {
			return v, s[i+1:]
		}
	}
	return 0, ""
}

// little reads a little-endian number.
func little[T uint16 | uint32 | uint64](s string) T {
	var v T
	var size int
	switch any(v).(type) {
	case uint16:
		size = 2
	case uint32:
		size = 4
	default:
		size = 8
	}
	for i := size - 1; i >= 0; i-- {
		v = v<<8 | T(s[i])
	}
	return v
}

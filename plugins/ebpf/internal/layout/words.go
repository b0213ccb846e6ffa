package layout

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/fairlead/fairlead/dataplane"
)

// Family is an IP version. Each has maps of its own.
type Family int

// The families.
const (
	V4 Family = iota
	V6
	Families
)

// Scope is whose sockets a publication is for.
type Scope int

// The scopes.
const (
	Home    Scope = iota // of the agent's network namespace
	Foreign              // of all others
	Scopes
)

// Publication is the word that leads from a frontend to its endpoint set; see
// bpf/headers/publication.h.
type Publication uint64

// Flags of a publication.
const (
	Published = 1 << iota // the id is in use
	Refuses               // without endpoints connections are refused
	Sticky                // clients stay with their endpoint
)

// MaxCount is the largest number of slots that a set may have besides its header.
const MaxCount = 1<<16 - 1

// NewPublication packs a word.
func NewPublication(set uint32, count int, flags uint16) Publication {
	return Publication(set) | Publication(count)<<32 | Publication(flags)<<48
}

// Set is the index of the set's header.
func (p Publication) Set() uint32 { return uint32(p) }

// Count is the number of slots after it.
func (p Publication) Count() int { return int(p >> 32 & MaxCount) }

// Flags are the flags of the word.
func (p Publication) Flags() uint16 { return uint16(p >> 48) }

// FamilyOf is the family of an address.
func FamilyOf(a netip.Addr) Family {
	if a.Is4() {
		return V4
	}
	return V6
}

// String prints the family as in addresses.
func (f Family) String() string { return [...]string{"IPv4", "IPv6"}[f] }

// SlotBytes is the size of one slot.
func (f Family) SlotBytes() int { return [...]int{16, 32}[f] }

// KeyBytes is the size of a frontend's key.
func (f Family) KeyBytes() int { return [...]int{8, 20}[f] }

// Numbers of the transports in keys.
const (
	transportTCP = 6
	transportUDP = 17
)

// AppendKey appends the key of a frontend.
func AppendKey(b []byte, f dataplane.Binding) []byte {
	b = append(b, f.Addr.Addr().AsSlice()...)
	b = binary.BigEndian.AppendUint16(b, f.Addr.Port())
	transport := byte(transportTCP)
	if f.Protocol == dataplane.UDP {
		transport = transportUDP
	}
	return append(b, transport, 0)
}

// ParseKey reads what AppendKey wrote.
func ParseKey(b []byte) (dataplane.Binding, error) {
	ip := len(b) - 4
	if ip < 0 {
		return dataplane.Binding{}, fmt.Errorf("layout: a frontend's key of %d bytes", len(b))
	}
	addr, ok := netip.AddrFromSlice(b[:ip])
	f := dataplane.Binding{Addr: netip.AddrPortFrom(addr, binary.BigEndian.Uint16(b[ip:])), Protocol: dataplane.TCP}
	switch b[ip+2] {
	case transportTCP:
	case transportUDP:
		f.Protocol = dataplane.UDP
	default:
		ok = false
	}
	if !ok {
		return dataplane.Binding{}, fmt.Errorf("layout: a frontend's key of %d bytes and transport %d", len(b), b[ip+2])
	}
	return f, nil
}

// Header opens a set.
type Header struct {
	Service         uint32
	AffinitySeconds uint32
}

// appendTo writes the header as a slot of a family.
func (h Header) appendTo(b []byte, f Family) []byte {
	b = binary.NativeEndian.AppendUint32(b, h.Service)
	b = binary.NativeEndian.AppendUint32(b, h.AffinitySeconds)
	return append(b, make([]byte, f.SlotBytes()-8)...)
}

// ParseHeader reads the first slot of a set.
func ParseHeader(b []byte) Header {
	return Header{Service: binary.NativeEndian.Uint32(b), AffinitySeconds: binary.NativeEndian.Uint32(b[4:])}
}

// Slot is an endpoint in a set.
type Slot struct {
	Addr netip.AddrPort
	ID   uint64
}

// appendTo writes the slot.
func (s Slot) appendTo(b []byte, f Family) []byte {
	b = append(b, s.Addr.Addr().AsSlice()...)
	b = binary.BigEndian.AppendUint16(b, s.Addr.Port())
	b = append(b, make([]byte, f.SlotBytes()-len(s.Addr.Addr().AsSlice())-10)...)
	return binary.NativeEndian.AppendUint64(b, s.ID)
}

// parseSlot reads what appendTo wrote.
func parseSlot(b []byte, f Family) Slot {
	ip := 4
	if f == V6 {
		ip = 16
	}
	addr, _ := netip.AddrFromSlice(b[:ip])
	return Slot{
		Addr: netip.AddrPortFrom(addr, binary.BigEndian.Uint16(b[ip:])),
		ID:   binary.NativeEndian.Uint64(b[f.SlotBytes()-8:]),
	}
}

// ParseSlots reads the endpoints of a set: all of it but the header.
func ParseSlots(b []byte, f Family) []Slot {
	slots := make([]Slot, 0, len(b)/f.SlotBytes())
	for ; len(b) >= f.SlotBytes(); b = b[f.SlotBytes():] {
		slots = append(slots, parseSlot(b, f))
	}
	return slots
}

// NameBytes bounds the name of a service, NAMESPACE/NAME, in the map of names.
const NameBytes = 128

// AppendName appends a name as a value of the map of names.
func AppendName(b []byte, k dataplane.Key) []byte {
	name := k.String()
	return append(append(b, name...), make([]byte, NameBytes-len(name))...)
}

// ParseName reads what AppendName wrote.
func ParseName(b []byte) (dataplane.Key, error) {
	text, _, _ := bytes.Cut(b, []byte{0})
	k, err := dataplane.ParseKey(string(text))
	if err != nil {
		return k, fmt.Errorf("layout: a service named %q in the kernel: %w", text, err)
	}
	return k, nil
}

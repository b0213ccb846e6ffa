package layout

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"sort"
	"sync/atomic"

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
	Published = 1 << iota // absent: the frontend is being withdrawn
	Refuses               // without endpoints connections are refused
	Sticky                // clients stay with their endpoint
)

// MaxCount is the largest number of slots that a set may have.
const MaxCount = 1<<16 - 1

// NewPublication packs a word.
func NewPublication(set uint32, count int, flags uint16) Publication {
	return Publication(set) | Publication(count)<<32 | Publication(flags)<<48
}

// Set is the index of the set's first slot; of a word without any, the place of the
// service.
func (p Publication) Set() uint32 { return uint32(p) }

// Count is the number of slots.
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

// SlotWords is the size of one slot, in words of 8 bytes.
func (f Family) SlotWords() int { return [...]int{4, 8}[f] }

// KeyBytes is the size of a frontend's key.
func (f Family) KeyBytes() int { return [...]int{8, 20}[f] }

// Numbers of the transports in keys.
const (
	transportTCP = 6
	transportUDP = 17
)

// ParseKey reads the key of a frontend.
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

// Slot is an endpoint in a set.
type Slot struct {
	Addr netip.AddrPort
	ID   uint64
}

// Owner is whose a slot is.
type Owner struct {
	Service uint32 // id
	Place   uint32 // of the service in the map of services
}

// Where the words of a slot are; see bpf/headers/endpoint.h.
func idWord(f Family) int    { return [...]int{1, 3}[f] }
func ownerWord(f Family) int { return [...]int{2, 4}[f] }
func hitsWord(f Family) int  { return [...]int{3, 5}[f] }

// putSlot writes a slot that was never chosen.
func putSlot(w []uint64, f Family, s Slot, o Owner) {
	var address [24]byte // and the port
	if f == V4 {
		a := s.Addr.Addr().As4()
		copy(address[:], a[:])
		binary.BigEndian.PutUint16(address[4:], s.Addr.Port())
	} else {
		a := s.Addr.Addr().As16()
		copy(address[:], a[:])
		binary.BigEndian.PutUint16(address[16:], s.Addr.Port())
	}
	for i := range idWord(f) {
		w[i] = binary.NativeEndian.Uint64(address[8*i:])
	}
	w[idWord(f)], w[ownerWord(f)], w[hitsWord(f)] = s.ID, pair(o.Service, o.Place), 0
}

// sameSlot reports whether a slot is what putSlot writes, however often it was
// chosen.
func sameSlot(w []uint64, f Family, s Slot, o Owner) bool {
	var want [8]uint64
	putSlot(want[:], f, s, o)
	return slices.Equal(w[:hitsWord(f)], want[:hitsWord(f)])
}

// parseSlot reads what putSlot wrote.
func parseSlot(w []uint64, f Family) Slot {
	var address [24]byte
	for i := range idWord(f) {
		binary.NativeEndian.PutUint64(address[8*i:], w[i])
	}
	s := Slot{ID: w[idWord(f)]}
	if f == V4 {
		s.Addr = netip.AddrPortFrom(netip.AddrFrom4([4]byte(address[:4])), binary.BigEndian.Uint16(address[4:]))
	} else {
		s.Addr = netip.AddrPortFrom(netip.AddrFrom16([16]byte(address[:16])), binary.BigEndian.Uint16(address[16:]))
	}
	return s
}

// ParseSlots reads the endpoints of a set.
func ParseSlots(w []uint64, f Family) []Slot {
	n := f.SlotWords()
	slots := make([]Slot, 0, len(w)/n)
	for ; len(w) >= n; w = w[n:] {
		slots = append(slots, parseSlot(w, f))
	}
	return slots
}

// ParseOwner reads whose the first slot of a set is.
func ParseOwner(w []uint64, f Family) Owner {
	service, place := split(w[ownerWord(f)])
	return Owner{service, place}
}

// findSlot finds the first slot of an endpoint in a set, which is in their order.
func findSlot(w []uint64, f Family, id uint64) (slot []uint64, is bool) {
	n := f.SlotWords()
	i := sort.Search(len(w)/n, func(i int) bool { return w[i*n+idWord(f)] >= id })
	if i == len(w)/n || w[i*n+idWord(f)] != id {
		return nil, false
	}
	return w[i*n : (i+1)*n], true
}

// pair is two numbers as they lie in memory one after the other.
func pair(a, b uint32) uint64 {
	var w [8]byte
	binary.NativeEndian.PutUint32(w[:], a)
	binary.NativeEndian.PutUint32(w[4:], b)
	return binary.NativeEndian.Uint64(w[:])
}

func split(w uint64) (a, b uint32) {
	var bytes [8]byte
	binary.NativeEndian.PutUint64(bytes[:], w)
	return binary.NativeEndian.Uint32(bytes[:]), binary.NativeEndian.Uint32(bytes[4:])
}

// Count is what is counted of a service in one place. The numbers are those of
// bpf/headers/service.h.
type Count int

// The counts.
const (
	Past Count = iota // hits of endpoints that it has no more
	EmptyPassed
	EmptyRefused
	Denied
	NoMemory
	Untracked
	Counts
)

// Where the words of a service are; see bpf/headers/service.h.
const (
	serviceHead   = 0 // id, seconds of affinity
	serviceCounts = 1
	serviceName   = 8
	// ServiceWords is the size of one service, in words of 8 bytes.
	ServiceWords = serviceName + NameBytes/8
)

// Owned is a service in its place.
type Owned struct {
	ID              uint32 // 0: nobody is there
	AffinitySeconds uint32
	Key             dataplane.Key
	Last            uint32 // if nobody is there: the id of the last one
}

// putService writes a service that nothing was counted of. It is there with the
// last word that is stored.
func putService(w []uint64, s Owned) {
	var name [NameBytes]byte
	copy(name[:], s.Key.Namespace)
	name[len(s.Key.Namespace)] = '/' // Invariant: Compile lets no longer name pass
	copy(name[len(s.Key.Namespace)+1:], s.Key.Name)
	clear(w[serviceCounts:serviceName])
	for i := range w[serviceName:] {
		w[serviceName+i] = binary.NativeEndian.Uint64(name[8*i:])
	}
	atomic.StoreUint64(&w[serviceHead], pair(s.ID, s.AffinitySeconds))
}

// leaveService says that nobody is there any more, but who was: in the place of the
// seconds.
func leaveService(w []uint64, id uint32) { atomic.StoreUint64(&w[serviceHead], pair(0, id)) }

// ParseService reads what putService wrote.
func ParseService(w []uint64) (s Owned, err error) {
	s.ID, s.AffinitySeconds = split(atomic.LoadUint64(&w[serviceHead]))
	if s.ID == 0 {
		return Owned{Last: s.AffinitySeconds}, nil
	}
	var name [NameBytes]byte
	for i := range w[serviceName:] {
		binary.NativeEndian.PutUint64(name[8*i:], w[serviceName+i])
	}
	text, _, _ := bytes.Cut(name[:], []byte{0})
	if s.Key, err = dataplane.ParseKey(string(text)); err != nil {
		return s, fmt.Errorf("layout: a service named %q in the kernel: %w", text, err)
	}
	return s, nil
}

// NameBytes bounds the name of a service, NAMESPACE/NAME, in the map of services.
const NameBytes = 128

package layout

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/fairlead/fairlead/dataplane"
)

var errKernel = errors.New("the kernel says no")

// twin is a kernel of Go memory, with programs that run in it: each has looked up a
// frontend some time ago and reads the rest only now.
type twin struct {
	size     Size
	entries  [Families][]uint64
	foreign  [Families][]uint64
	slots    [Families][]uint64
	services []uint64
	named    map[uint32]dataplane.Key // ids that were ever given out
	refuse   func() bool              // fails a call
	running  []program
	graces   int
	hits     uint64 // that programs counted
	broken   error
}

// program is one that has found the entry of a frontend, and read the word there.
type program struct {
	family Family
	entry  uint32
	asked  dataplane.Binding
	word   Publication
	saw    string
}

func newTwin(size Size) *twin {
	k := &twin{
		size:     size,
		services: make([]uint64, size.Services*ServiceWords), named: make(map[uint32]dataplane.Key), refuse: func() bool { return false },
	}
	for f := range Families {
		buckets := f.Buckets(size.Frontends[f])
		k.entries[f], k.foreign[f] = make([]uint64, buckets*bucketWords), make([]uint64, buckets*uint32(f.Ways()))
		k.slots[f] = make([]uint64, int(size.Slots[f])*f.SlotWords())
	}
	return k
}

func (k *twin) Slots(f Family, at uint32, n int) []uint64 {
	return k.slots[f][int(at)*f.SlotWords() : (int(at)+n)*f.SlotWords()]
}

func (k *twin) Service(place uint32) []uint64 {
	return k.services[place*ServiceWords : (place+1)*ServiceWords]
}

func (k *twin) Frontends(f Family) (entries, foreign []uint64) { return k.entries[f], k.foreign[f] }

// find looks a frontend up as programs do; see bpf/headers/frontend.h.
func (k *twin) find(b dataplane.Binding) (entry int, is bool) {
	f, key := FamilyOf(b.Addr.Addr()), keyOf(b)
	keyWords, mask := 1, len(k.entries[f])/bucketWords-1
	at := int(uint32(mix(mix(key[0]))))
	if f == V6 {
		keyWords, at = 3, int(uint32(mix(mix(mix(mix(key[0])^key[1])^key[2]))))
	}
	for i := range 16 {
		bucket, full := (at+i)&mask, true
		for way := range f.Ways() {
			entry := bucket*f.Ways() + way
			found := k.entries[f][entry*(keyWords+1):][:keyWords]
			if slices.Equal(found, key[:keyWords]) {
				return entry, true
			}
			full = full && found[keyWords-1] != 0
		}
		if !full {
			break
		}
	}
	return 0, false
}

// word is what an entry says to sockets of a scope.
func (k *twin) word(f Family, entry int, s Scope) Publication {
	if s == Foreign {
		return Publication(k.foreign[f][entry])
	}
	n := bucketWords / f.Ways()
	return Publication(k.entries[f][entry*n+n-1])
}

// Grace lets all programs run to their end.
func (k *twin) Grace() error {
	if k.refuse() {
		return errKernel
	}
	k.graces++
	for _, p := range k.running {
		if now := k.read(p.family, p.word); now != p.saw {
			k.broken = fmt.Errorf("a program that saw %q under its word finds %q", p.saw, now)
		}
		x := NewIndex(p.family, k.entries[p.family], k.foreign[p.family])
		if b, is, err := x.Binding(p.entry); err != nil || is && b != p.asked {
			k.broken = fmt.Errorf("a program that found the entry of %v finds %v there (%v)", p.asked, b, err)
		}
	}
	k.running = nil
	return nil
}

// start lets a program read the word of a frontend.
func (k *twin) start(b dataplane.Binding, s Scope) {
	if entry, ok := k.find(b); ok {
		f := FamilyOf(b.Addr.Addr())
		w := k.word(f, entry, s)
		if w.Flags()&Published == 0 {
			return
		}
		k.running = append(k.running, program{f, uint32(entry), b, w, k.read(f, w)})
		k.hits++
		if n := w.Count(); n > 0 { // it chose a slot, and counts that at once
			k.Slots(f, w.Set()+uint32(len(k.running)%n), 1)[hitsWord(f)]++
		} else {
			k.Service(w.Set())[serviceCounts+EmptyRefused]++
		}
	}
}

// read is what a program finds under a word.
func (k *twin) read(f Family, w Publication) string {
	if w.Count() == 0 {
		return "nobody"
	}
	set := k.Slots(f, w.Set(), w.Count())
	return fmt.Sprint(ParseOwner(set, f), w.Flags(), ParseSlots(set, f))
}

// owner is the service that a word leads to.
func (k *twin) owner(f Family, w Publication) Owned {
	place := w.Set()
	if w.Count() > 0 {
		o := ParseOwner(k.Slots(f, w.Set(), 1), f)
		place = o.Place
		if s, err := ParseService(k.Service(place)); err != nil || s.ID != o.Service {
			k.broken = fmt.Errorf("slot %d says service %d at %d, there is %+v (%v)", w.Set(), o.Service, place, s, err)
		}
	}
	s, err := ParseService(k.Service(place))
	if err != nil {
		k.broken = err
	}
	if was, there := k.named[s.ID]; there && was != s.Key {
		k.broken = fmt.Errorf("service id %d of %s was given to %s", s.ID, was, s.Key)
	}
	k.named[s.ID] = s.Key
	return s
}

// answer is what a connection to a frontend gets: the service's name, and where it
// may go, with the number of slots.
type answer struct {
	service dataplane.Key
	flags   uint16
	seconds uint32
	to      string
}

func (k *twin) answers() map[string]answer {
	out := make(map[string]answer)
	for b, entry := range k.frontends() {
		for s := range Scopes {
			f := FamilyOf(b.Addr.Addr())
			w := k.word(f, entry, s)
			owner, slots := k.owner(f, w), []Slot{}
			if w.Count() > 0 {
				slots = ParseSlots(k.Slots(f, w.Set(), w.Count()), f)
			}
			out[fmt.Sprint(b, s)] = answer{owner.Key, w.Flags(), owner.AffinitySeconds, fmt.Sprint(slots)}
		}
	}
	return out
}

// wanted is the same, said by the services alone.
func wanted(services map[dataplane.Key]*dataplane.Service) map[string]answer {
	out := make(map[string]answer)
	for k, svc := range services {
		for _, fe := range svc.Frontends {
			for s := range Scopes {
				a := answer{service: k, flags: Published}
				if fe.Refuses() {
					a.flags |= Refuses
				}
				if svc.Affinity.ByClient {
					a.flags |= Sticky
					a.seconds = uint32(svc.Affinity.TTL.Seconds())
				}
				var picked []Slot
				var weights []uint16
				for _, e := range svc.Usable() {
					addr := e.Addr
					if s == Foreign {
						addr = e.Foreign()
					}
					if addr.Addr().Is4() == fe.Addr.Addr().Is4() && (s == Home || !addr.Addr().IsLoopback()) {
						picked = append(picked, Slot{addr, e.ID})
						weights = append(weights, e.Weight)
					}
				}
				a.to = fmt.Sprint(repeat(picked, weights))
				out[fmt.Sprint(fe.Binding(), s)] = a
			}
		}
	}
	return out
}

// repeat writes each slot by its weight, by the smallest numbers that do: weights
// here are 1, 2 and 3.
func repeat(slots []Slot, weights []uint16) []Slot {
	divisor := uint16(1)
	for _, d := range []uint16{2, 3} {
		if len(weights) > 0 && !slices.ContainsFunc(weights, func(w uint16) bool { return w%d != 0 }) {
			divisor = d
		}
	}
	out := []Slot{}
	for i, s := range slots {
		for range weights[i] / divisor {
			out = append(out, s)
		}
	}
	return out
}

// frontends are those that programs find, and where.
func (k *twin) frontends() map[dataplane.Binding]int {
	out := make(map[dataplane.Binding]int)
	for f := range Families {
		x := NewIndex(f, k.entries[f], k.foreign[f])
		for entry := range len(k.foreign[f]) {
			b, is, err := x.Binding(uint32(entry))
			if err != nil {
				k.broken = err
			}
			if !is {
				continue
			}
			if found, is := k.find(b); !is || found != entry {
				k.broken = fmt.Errorf("frontend %v is at %d, programs find it at %d (%v)", b, entry, found, is)
			}
			out[b] = entry
		}
	}
	return out
}

// key, address and service make small worlds in which collisions are common.
func key(n int) dataplane.Key { return dataplane.Key{Namespace: "t", Name: fmt.Sprint("s", n)} }

func randomBinding(r *rand.Rand) dataplane.Binding {
	addr := netip.AddrFrom4([4]byte{10, 0, 0, byte(r.IntN(12))})
	if r.IntN(3) == 0 {
		addr = netip.AddrFrom16([16]byte{0xfd, 15: byte(r.IntN(6))})
	}
	return dataplane.Binding{Addr: netip.AddrPortFrom(addr, 80), Protocol: dataplane.Protocol(1 + r.IntN(2))}
}

func randomService(r *rand.Rand, k dataplane.Key, free func(dataplane.Binding) bool) *dataplane.Service {
	svc := &dataplane.Service{Key: k, Affinity: dataplane.Affinity{ByClient: r.IntN(3) == 0, TTL: 7e9}}
	for range r.IntN(3) {
		b := randomBinding(r)
		taken := slices.ContainsFunc(svc.Frontends, func(f dataplane.Frontend) bool { return f.Binding() == b })
		if free(b) && !taken {
			svc.Frontends = append(svc.Frontends, dataplane.Frontend{Addr: b.Addr, Protocol: b.Protocol, Kind: dataplane.FrontendKind(1 + r.IntN(2))})
		}
	}
	var list []dataplane.Endpoint
	for id := range r.IntN(9) {
		e := dataplane.Endpoint{
			ID: uint64(id + 1), Weight: uint16(1 + r.IntN(3)), State: dataplane.EndpointState(r.IntN(3) * r.IntN(2)),
			Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 168, 0, byte(id)}), 8080),
		}
		switch r.IntN(5) {
		case 0:
			e.Addr = netip.AddrPortFrom(netip.AddrFrom16([16]byte{0xfd, 1, 15: byte(id)}), 8080)
		case 1:
			e.Addr = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(9000+id))
		case 2:
			e.AddrForeign = netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 168, 1, byte(id)}), 80)
		}
		list = append(list, e)
	}
	svc.Endpoints = dataplane.NewEndpoints(list...)
	return svc
}

func ids(svc *dataplane.Service) []uint64 {
	var out []uint64
	for e := range svc.Endpoints.All() {
		out = append(out, e.ID)
	}
	return out
}

// compare fails the test if two sets of answers differ.
func compare(t *testing.T, when string, got, want map[string]answer) {
	t.Helper()
	for b, w := range want {
		if got[b] != w {
			t.Fatalf("%s: %s answers %+v, want %+v", when, b, got[b], w)
		}
	}
	for b := range got {
		if _, there := want[b]; !there {
			t.Fatalf("%s: %s answers, though it is nobody's", when, b)
		}
	}
}

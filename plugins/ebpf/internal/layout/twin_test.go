package layout

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/fairlead/fairlead/dataplane"
)

var errKernel = errors.New("the kernel says no")

// twin is a kernel of Go maps, with programs that run in it: each has looked up a
// frontend some time ago and reads the rest only now.
type twin struct {
	size      Size
	frontends map[dataplane.Binding]uint32
	words     map[uint32][Scopes]Publication
	slots     [Families][]byte
	hits      [Families][]uint64
	names     map[uint32]dataplane.Key
	refuse    func() bool // fails a call
	running   []program
	graces    int
	batches   int
	broken    error
}

// program is one that has read the word of a frontend.
type program struct {
	family Family
	word   Publication
	saw    string
}

func newTwin(size Size) *twin {
	k := &twin{
		size: size, frontends: make(map[dataplane.Binding]uint32), words: make(map[uint32][Scopes]Publication),
		names: make(map[uint32]dataplane.Key), refuse: func() bool { return false },
	}
	for f := range Families {
		k.slots[f] = make([]byte, int(size.Slots[f])*f.SlotBytes())
		k.hits[f] = make([]uint64, size.Slots[f])
	}
	return k
}

func (k *twin) Slots(f Family, at uint32, n int) []byte {
	return k.slots[f][int(at)*f.SlotBytes() : (int(at)+n)*f.SlotBytes()]
}
func (k *twin) Hits(f Family, at uint32, n int) []uint64 { return k.hits[f][at : int(at)+n] }
func (k *twin) Publish(id uint32, home, foreign Publication) {
	k.words[id] = [Scopes]Publication{home, foreign}
}

func (k *twin) Published(id uint32) (home, foreign Publication) {
	return k.words[id][Home], k.words[id][Foreign]
}

func (k *twin) InsertFrontend(b dataplane.Binding, id uint32) error {
	if k.refuse() {
		return errKernel
	}
	k.frontends[b] = id
	return nil
}

func (k *twin) DeleteFrontend(b dataplane.Binding) error {
	if k.refuse() {
		return errKernel
	}
	delete(k.frontends, b)
	return nil
}

func (k *twin) NameService(id uint32, key dataplane.Key) error {
	if k.refuse() {
		return errKernel
	}
	if was, there := k.names[id]; there && was != key {
		k.broken = fmt.Errorf("service id %d of %s was given to %s", id, was, key)
	}
	k.names[id] = key
	return nil
}

// InsertFrontends and NameServices fail where a single one would, with those before
// it done.
func (k *twin) InsertFrontends(leads []Lead) error {
	k.batches++
	for _, l := range leads {
		if err := k.InsertFrontend(l.Binding, l.ID); err != nil {
			return err
		}
	}
	return nil
}

func (k *twin) NameServices(names []Name) error {
	k.batches++
	for _, n := range names {
		if err := k.NameService(n.ID, n.Key); err != nil {
			return err
		}
	}
	return nil
}

func (k *twin) ForgetService(id uint32) error {
	if k.refuse() {
		return errKernel
	}
	delete(k.names, id)
	return nil
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
	}
	k.running = nil
	return nil
}

// start lets a program read the word of a frontend.
func (k *twin) start(b dataplane.Binding, s Scope) {
	if id, ok := k.frontends[b]; ok {
		f, w := FamilyOf(b.Addr.Addr()), k.words[id][s]
		k.running = append(k.running, program{f, w, k.read(f, w)})
		if n := w.Count(); n > 0 { // it chose a slot, and counts that at once
			k.hits[f][w.Set()+1+uint32(len(k.running)%n)]++
		}
	}
}

// read is what a program finds under a word.
func (k *twin) read(f Family, w Publication) string {
	h := ParseHeader(k.Slots(f, w.Set(), 1))
	return fmt.Sprint(h, w.Flags(), ParseSlots(k.Slots(f, w.Set(), 1+w.Count())[f.SlotBytes():], f))
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
	for b, id := range k.frontends {
		for s := range Scopes {
			f, w := FamilyOf(b.Addr.Addr()), k.words[id][s]
			h := ParseHeader(k.Slots(f, w.Set(), 1))
			slots := ParseSlots(k.Slots(f, w.Set(), 1+w.Count())[f.SlotBytes():], f)
			out[fmt.Sprint(b, s)] = answer{k.names[h.Service], w.Flags(), h.AffinitySeconds, fmt.Sprint(slots)}
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

func (k *twin) dump() Dump {
	return Dump{Frontends: maps.Clone(k.frontends), Services: maps.Clone(k.names)}
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

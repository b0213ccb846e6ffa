package table

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead/fairlead/contrib/plugins/nftables/internal/plan"
	"github.com/fairlead/fairlead/dataplane"
)

// setKind is a set that a table has.
type setKind uint8

const (
	frontends setKind = iota
	slots
	captured // of a table that waits only
	services // of the IPv4 table only, as about
	about
)

// setID is one set.
type setID struct {
	v6   bool
	kind setKind
	side plan.Side
}

func (s setID) name() string {
	return sided([...]string{"frontends", "slots", "captured", "services", "about"}[s.kind], s.side)
}

func sided(name string, side plan.Side) string {
	if side == plan.Foreign {
		return name + "-foreign"
	}
	return name
}

// element is the content of one, without its key. The data of a verdict is the name
// of the chain to go to.
type element struct{ data, comment string }

// elements is what sets hold, by key.
type elements map[setID]map[string]element

func (e elements) put(id setID, key []byte, el element) {
	m := e[id]
	if m == nil {
		m = make(map[string]element)
		e[id] = m
	}
	m[string(key)] = el
}

// chainOf is the chain that leads to an entry's endpoints.
func chainOf(at plan.Place, e *plan.Entry) string {
	switch {
	case len(e.Slots) == 0:
		return refusal
	case e.Sticky == 0:
		return pick{len(e.Slots), at.Side}.chain()
	}
	return stickyChain(at)
}

// appendWord pads to whole registers, as the kernel does.
func appendWord(b []byte, part ...byte) []byte {
	b = append(b, part...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

func placeKey(p plan.Place) []byte {
	proto := byte(protoTCP)
	if p.Protocol == dataplane.UDP {
		proto = protoUDP
	}
	b := append(make([]byte, 0, 32), p.Addr.Addr().AsSlice()...)
	return appendWord(appendWord(b, proto), byte(p.Addr.Port()>>8), byte(p.Addr.Port()))
}

func addrData(a netip.AddrPort) string {
	return string(appendWord(a.Addr().AsSlice(), byte(a.Port()>>8), byte(a.Port())))
}

// render is the elements of one entry.
func (e elements) render(at plan.Place, entry *plan.Entry) {
	if entry == nil {
		return
	}
	key := placeKey(at)
	v6 := at.Addr.Addr().Is6()
	e.put(setID{v6, frontends, at.Side}, key, element{chainOf(at, entry), fmt.Sprintf("%d %s", int(entry.Sticky.Seconds()), entry.Service)})
	for i, id := range entry.Slots {
		ep, _ := entry.Endpoint(id)
		e.put(setID{v6, slots, at.Side}, binary.NativeEndian.AppendUint32(key[:len(key):len(key)], uint32(i)), element{addrData(ep.Addr), fmt.Sprintf("%016x", id)})
	}
}

// renderService is the element that counts a service's endpoints.
func (e elements) renderService(k dataplane.Key, count int) {
	sum := sha256.Sum256([]byte(k.String()))
	e.put(setID{kind: services}, sum[:8], element{comment: fmt.Sprintf("%d %s", count, k)})
}

// Content is what tables hold, read back.
type Content struct {
	Entries  map[plan.Place]*plan.Entry
	Services map[dataplane.Key]int // endpoints of each
	Mark     Mark
	raw      elements
}

// decode makes sense of elements. What does not fit together is left out; a
// comparison of elements will find it.
func decode(raw elements) *Content {
	c := &Content{Entries: make(map[plan.Place]*plan.Entry), Services: make(map[dataplane.Key]int), raw: raw}
	for _, el := range raw[setID{kind: services}] {
		count, name, _ := strings.Cut(el.comment, " ")
		k, err := dataplane.ParseKey(name)
		if n, bad := strconv.Atoi(count); err == nil && bad == nil {
			c.Services[k] = n
		}
	}
	for id, set := range raw {
		if id.kind == frontends {
			for key, el := range set {
				c.decodeEntry(id, key, el)
			}
		}
	}
	return c
}

func (c *Content) decodeEntry(id setID, key string, el element) {
	at, ok := placeOf(id, key)
	ttl, name, _ := strings.Cut(el.comment, " ")
	svc, err := dataplane.ParseKey(name)
	seconds, bad := strconv.Atoi(ttl)
	if !ok || err != nil || bad != nil {
		return
	}
	e := &plan.Entry{Service: svc, Sticky: time.Duration(seconds) * time.Second}
	held := c.raw[setID{id.v6, slots, id.side}]
	for i := uint32(0); ; i++ {
		slot, there := held[string(binary.NativeEndian.AppendUint32([]byte(key), i))]
		end, err := strconv.ParseUint(slot.comment, 16, 64)
		if !there || err != nil {
			break
		}
		e.Slots = append(e.Slots, end)
		if _, known := e.Endpoint(end); !known {
			e.Endpoints = append(e.Endpoints, plan.Endpoint{ID: end, Addr: addrOf(slot.data)})
		}
	}
	e.Sort()
	c.Entries[at] = e
}

func placeOf(id setID, key string) (plan.Place, bool) {
	n := 4
	if id.v6 {
		n = 16
	}
	if len(key) != n+8 {
		return plan.Place{}, false
	}
	ip, _ := netip.AddrFromSlice([]byte(key[:n]))
	p := plan.Place{Side: id.side}
	p.Addr = netip.AddrPortFrom(ip, binary.BigEndian.Uint16([]byte(key[n+4:])))
	p.Protocol = dataplane.TCP
	if key[n] == protoUDP {
		p.Protocol = dataplane.UDP
	}
	return p, true
}

func addrOf(data string) netip.AddrPort {
	n := len(data) - 4
	ip, _ := netip.AddrFromSlice([]byte(data[:n]))
	return netip.AddrPortFrom(ip, binary.BigEndian.Uint16([]byte(data[n:])))
}

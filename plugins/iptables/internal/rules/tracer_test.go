package rules

import (
	"net/netip"
	"strings"
	"time"

	"github.com/fairlead/fairlead/dataplane"
)

// packet is the first of a connection, as a hook sees it.
type packet struct {
	hook     hook
	from     netip.Addr
	to       dataplane.Binding
	origin   netip.AddrPort // where it went before it was led; POSTROUTING only
	led      bool           // its destination was changed
	out      string         // device it leaves by
	ofDevice bool           // its source is an address of that device

	draw  func() uint32 // 31 random bits; nil: go every way, by its chance
	now   time.Time
	lists recents
}

// recents are the lists of the recent match: clients and when they were last seen.
type recents map[string]map[netip.Addr]time.Time

// way is how a packet may go, and with which chance.
type way struct {
	verdict string         // DNAT, SNAT, REDIRECT, MASQUERADE, or "" for untouched
	addr    netip.AddrPort // DNAT, SNAT; REDIRECT has a port only
	chance  float64
	tests   int // rules that it was compared with
	path    []string
}

// trace walks the table from the base chain of the packet's hook.
func (k *kernel) trace(p packet) []way {
	w := walker{kernel: k, packet: p}
	w.walk(position{chain: k.chains[p.hook.base()]}, nil, way{chance: 1})
	return w.ways
}

type walker struct {
	kernel *kernel
	packet packet
	ways   []way
}

type position struct {
	chain *kernelChain
	next  int
}

// walk goes on at a position; back are those to return to.
func (w *walker) walk(at position, back []position, so way) {
	for {
		if at.next == len(at.chain.rules) {
			if len(back) == 0 {
				w.ways = append(w.ways, so)
				return
			}
			at, back = back[len(back)-1], back[:len(back)-1]
			continue
		}
		r := at.chain.rules[at.next]
		at.next++
		so.tests++
		chance := w.match(r)
		if chance == 0 {
			continue
		}
		hit := so
		hit.chance *= chance
		hit.path = append(hit.path[:len(hit.path):len(hit.path)], r.spec)
		if chance < 1 { // go on without as well
			w.hit(r, at, back, hit)
			so.chance *= 1 - chance
			continue
		}
		if r.to == "" && r.verdict == "" {
			continue // matches, and does nothing
		}
		w.hit(r, at, back, hit)
		return
	}
}

func (w *walker) hit(r *kernelRule, at position, back []position, so way) {
	switch {
	case r.to != "" && r.goes:
		w.walk(position{chain: w.kernel.chains[r.to]}, back, so)
	case r.to != "":
		w.walk(position{chain: w.kernel.chains[r.to]}, append(back[:len(back):len(back)], at), so)
	case r.verdict == "RETURN":
		w.walk(position{chain: at.chain, next: len(at.chain.rules)}, back, so)
	default:
		so.verdict, so.addr = r.verdict, r.addr
		w.ways = append(w.ways, so)
	}
}

// match is the chance that a rule matches.
func (w *walker) match(r *kernelRule) float64 {
	p := &w.packet
	if r.dst.IsValid() && !r.dst.Contains(p.to.Addr.Addr()) || r.notSrc.IsValid() && r.notSrc.Contains(p.from) ||
		r.protocol != "" && r.protocol != p.to.Protocol.String() ||
		r.out != "" && r.out != p.out {
		return 0
	}
	chance := 1.0
	for _, m := range r.matches {
		ok := true
		switch m.name {
		case "tcp", "udp":
			ok = m.low <= p.to.Addr.Port() && p.to.Addr.Port() <= m.high
		case "conntrack":
			ok = m.translated == p.led && (!m.origin.IsValid() || m.origin.Contains(p.origin.Addr())) &&
				m.low <= p.origin.Port() && p.origin.Port() <= m.high
		case "addrtype":
			ok = p.ofDevice
		case "statistic":
			if p.draw == nil {
				chance *= float64(m.chance) / (1 << 31)
			} else {
				ok = p.draw() < m.chance
			}
		case "recent":
			ok = p.recent(m)
		case "comment":
		default:
			panic("the kernel has no match " + m.name)
		}
		if !ok {
			return 0
		}
	}
	return chance
}

func (p *packet) recent(m kernelMatch) bool {
	seen, listed := p.lists[m.list][p.from]
	if m.operation == "update" && (!listed || p.now.Sub(seen) > time.Duration(m.seconds)*time.Second) {
		return false
	}
	if p.draw == nil && m.operation == "set" {
		return true // every way at once: none is taken
	}
	if p.lists[m.list] == nil {
		p.lists[m.list] = make(map[netip.Addr]time.Time)
	}
	p.lists[m.list][p.from] = p.now
	return true
}

// forget drops the lists that no rule names, as the kernel does.
func (k *kernel) forget(lists recents) {
	var named strings.Builder
	for _, c := range k.chains {
		for _, r := range c.rules {
			for _, m := range r.matches {
				named.WriteString(m.list + " ")
			}
		}
	}
	for name := range lists {
		if !strings.Contains(named.String(), name+" ") {
			delete(lists, name)
		}
	}
}

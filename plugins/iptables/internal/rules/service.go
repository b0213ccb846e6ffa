package rules

import (
	"math"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead/fairlead/dataplane"
)

// maxLinear is how many endpoints a chain draws one after the other; more are
// halved first, so that a thousand cost some fifteen tests and not five hundred.
const maxLinear = 8

// maxAffinity bounds the time of the recent match: the kernel multiplies it by its
// ticks per second, at most 1000, in 32 bits.
const maxAffinity = 30 * 24 * time.Hour

// defaultAffinity is that of a client without a time of its own, as in Kubernetes.
const defaultAffinity = 3 * time.Hour

// chain is one chain of ours: its rules, each a line without "-A NAME".
type chain struct {
	name, rules string
	endpoints   []uint64 // of each rule, 0 for one that leads to none
}

// unit is what one family's table holds of a service. It is immutable.
type unit struct {
	svc    *dataplane.Service
	chains []chain
	leaves [hooks][]*leaf
}

// leaf is a frontend in one tree: the rule for its packets.
type leaf struct {
	frontend dataplane.Binding
	key      string // see newKey
	rule     string // a line
	unit     *unit  // nil: the provider's own
}

func newLeaf(u *unit, m matcher, frontend dataplane.Binding, target string) *leaf {
	return &leaf{frontend: frontend, key: newKey(frontend), rule: m.frontend(frontend) + target + "\n", unit: u}
}

// item is an endpoint in the reach of a hook.
type item struct {
	id     uint64
	addr   netip.AddrPort
	weight uint64
	order  uint64 // id, mixed: halves of a list are halves by its bits
}

// compile renders a service that Assess did not refuse.
func compile(svc *dataplane.Service, f Family, o Options) *unit {
	u := &unit{svc: svc}
	usable := svc.Usable()
	for _, h := range o.hooks() {
		items := o.items(f, h, usable)
		var heads [dataplane.UDP + 1]string
		for _, frontend := range svc.Frontends {
			a := frontend.Addr.Addr()
			if !f.Of(a) || o.refuses(frontend.Addr) != nil || h == pre && a.IsLoopback() {
				continue // nobody outside may reach a loopback address through us
			}
			switch head := &heads[frontend.Protocol]; {
			case len(items) > 0:
				if *head == "" {
					r := renderer{unit: u, family: f, tag: Tag(o.Instance), protocol: frontend.Protocol, affinity: affinity(svc.Affinity)}
					*head = r.head(items)
				}
				u.lead(h, frontend.Binding(), "-g "+*head)
				if !o.covers(a) {
					u.lead(post, frontend.Binding(), "-g "+rootName(Tag(o.Instance), source))
				}
			case frontend.Refuses():
				u.lead(h, frontend.Binding(), refusal(f, h))
			default: // passes as if nobody captured it
			}
		}
	}
	return u
}

// lead adds a frontend to the tree of a hook. What is the same in two is kept once.
func (u *unit) lead(h hook, frontend dataplane.Binding, target string) {
	l := newLeaf(u, h.matcher(), frontend, target)
	if h == post {
		for _, other := range u.leaves[post] {
			if other.frontend == frontend {
				return // of the other hook
			}
		}
	}
	if h == out {
		for _, other := range u.leaves[pre] {
			if other.rule == l.rule {
				l = other
			}
		}
	}
	u.leaves[h] = append(u.leaves[h], l)
}

// hooks are those in which destinations change.
func (o Options) hooks() []hook {
	if o.Mode == Forwarded {
		return []hook{pre}
	}
	return []hook{pre, out}
}

// items are the endpoints that packets of a hook reach.
func (o Options) items(f Family, h hook, usable []dataplane.Endpoint) []item {
	items := make([]item, 0, len(usable))
	for _, e := range usable {
		if addr := o.reachable(f, h, e); addr.IsValid() {
			items = append(items, item{id: e.ID, addr: addr, weight: uint64(e.Weight), order: mix(e.ID)})
		}
	}
	return items
}

// refusal sends a connection where nothing can listen: port 0 of the host itself,
// which answers as a closed port does. A REJECT would make a local TCP client wait
// for a second and io_uring succeed; forwarded packets cannot be led to a loopback
// address, but REDIRECT takes the address they came in by.
func refusal(f Family, h hook) string {
	if h == pre {
		return "-j REDIRECT --to-ports 0"
	}
	return "-j DNAT --to-destination " + netip.AddrPortFrom(f.loopback(), 0).String()
}

// affinity is the time in whole seconds, rounded up; 0 is none.
func affinity(a dataplane.Affinity) int {
	switch ttl := a.TTL; {
	case !a.ByClient:
		return 0
	case ttl == 0:
		return int(defaultAffinity / time.Second)
	default:
		return int((min(ttl, maxAffinity) + time.Second - 1) / time.Second)
	}
}

// renderer writes the chains of one service for one protocol.
type renderer struct {
	unit     *unit
	family   Family
	tag      string
	protocol dataplane.Protocol
	affinity int // seconds
}

// draft is a chain without a name yet.
type draft struct {
	rules     strings.Builder
	endpoints []uint64
}

func (d *draft) add(rule string, endpoint uint64) {
	d.rules.WriteString(rule)
	d.rules.WriteByte('\n')
	d.endpoints = append(d.endpoints, endpoint)
}

// head renders all chains for the items and returns the name of the first.
func (r *renderer) head(items []item) string {
	var d draft
	if r.affinity > 0 {
		for _, it := range items {
			r.rule(&d, it, "-m recent --update --seconds "+strconv.Itoa(r.affinity)+" --reap "+r.list(it))
		}
	}
	r.draw(&d, items, 0)
	return r.add(&d)
}

// draw appends the rules that choose one of the items, which agree in the first
// bits of their order.
func (r *renderer) draw(d *draft, items []item, bit int) {
	if len(items) > maxLinear {
		r.halve(d, items, bit)
		return
	}
	left := total(items)
	for i, it := range items {
		var match string
		if i < len(items)-1 {
			match = statistic(it.weight, left) + " "
		}
		if r.affinity > 0 {
			match += "-m recent --set " + r.list(it)
		}
		r.rule(d, it, strings.TrimSuffix(match, " "))
		left -= it.weight
	}
}

// halve draws between two parts, each a chain of its own. They are parts by id, not
// by place, so an endpoint that comes or goes alters only the chains that lead to it.
func (r *renderer) halve(d *draft, items []item, bit int) {
	var parts [2][]item
	for ; len(parts[0]) == 0 || len(parts[1]) == 0; bit++ { // ends: ids differ, and so do their mixtures
		parts = [2][]item{}
		for _, it := range items {
			side := it.order >> (63 - bit) & 1
			parts[side] = append(parts[side], it)
		}
	}
	for i, part := range parts {
		var below draft
		r.draw(&below, part, bit)
		match := ""
		if i == 0 {
			match = statistic(total(part), total(items)) + " "
		}
		d.add(match+"-g "+r.add(&below), 0)
	}
}

// rule appends one that leads to an endpoint.
func (r *renderer) rule(d *draft, it item, match string) {
	if match != "" {
		match = " " + match
	}
	d.add("-p "+r.protocol.String()+match+" -j DNAT --to-destination "+it.addr.String(), it.id)
}

// add names a chain and keeps it, once.
func (r *renderer) add(d *draft) string {
	// The key salts the name: the counters of a chain are those of one service.
	c := chain{rules: d.rules.String(), endpoints: d.endpoints}
	c.name = chainPrefix + r.tag + "-" + hash("service "+r.unit.svc.Key.String(), c.rules)
	for _, other := range r.unit.chains {
		if other.name == c.name {
			return c.name
		}
	}
	r.unit.chains = append(r.unit.chains, c)
	return c.name
}

// list names the clients of an endpoint. Protocols and hooks of a service share it;
// families cannot, as the kernel keeps one mask for a list. It lives as long as a
// rule names it, so it goes with its endpoint.
func (r *renderer) list(it item) string {
	mask := "255.255.255.255"
	if r.family == IPv6 {
		mask = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"
	}
	name := hash("recent "+r.family.String()+" "+r.unit.svc.Key.String(), strconv.FormatUint(it.id, 16))
	return "--name " + chainPrefix + r.tag + "-" + name + " --mask " + mask + " --rsource"
}

func total(items []item) (sum uint64) {
	for _, it := range items {
		sum += it.weight
	}
	return sum
}

// grains is what the kernel compares 31 random bits with for a probability of 1.
const grains = 1 << 31

// statistic matches with the probability part/whole, written as iptables-save
// writes the kernel's number, so that reading it back makes no difference.
func statistic(part, whole uint64) string {
	n := math.Round(float64(part) / float64(whole) * grains)
	n = min(max(n, 1), grains-1) // a share, however small, is never none or all
	return "-m statistic --mode random --probability " + strconv.FormatFloat(n/grains, 'f', 11, 64)
}

// mix spreads ids over 64 bits, one to one (the finalizer of SplitMix64).
func mix(id uint64) uint64 {
	id = (id ^ id>>30) * 0xbf58476d1ce4e5b9
	id = (id ^ id>>27) * 0x94d049bb133111eb
	return id ^ id>>31
}

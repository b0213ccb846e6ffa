package rules

import (
	"iter"
	"net/netip"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/dataplane"
)

// Plan is what should stand in the nat table of one family. It is immutable.
type Plan struct {
	family Family
	opts   Options
	tag    string
	units  map[dataplane.Key]*unit
	chains map[string]string // all but the roots: rules by name
	roots  [hooks]root
}

// root is one of the chains that base chains jump to.
type root struct {
	used bool
	body string
}

// Jump is the rule by which a base chain leads to ours.
type Jump struct {
	Base string   // PREROUTING, OUTPUT or POSTROUTING
	Rule []string // arguments, as after `iptables -t nat -I BASE 1`
}

// Build plans the services' frontends of one family. prev, which may be nil, is the
// plan before of the same family: services that are the same pointers as then are not
// rendered again, and one that cannot be programmed as it is now stays as prev has it.
// If nothing changed the result is prev itself. No two services may share a frontend.
func Build(f Family, services iter.Seq[*dataplane.Service], o Options, prev *Plan) *Plan {
	o.Pools = slices.Clone(o.Pools)
	p := &Plan{family: f, opts: o, tag: Tag(o.Instance), units: make(map[dataplane.Key]*unit), chains: make(map[string]string)}
	if prev != nil && (prev.tag != p.tag || prev.family != f) {
		prev = nil
	}
	same := prev != nil && prev.opts.equal(o)
	var current, stale []*unit
	changed := !same
	for svc := range services {
		var old *unit
		if prev != nil {
			old = prev.units[svc.Key]
		}
		u := old
		switch {
		case same && old != nil && old.svc == svc:
			current = append(current, u)
		case !refused(svc, o):
			if !needs(svc, f) {
				continue
			}
			u, changed = compile(svc, f, o), true
			current = append(current, u)
		case old != nil:
			stale = append(stale, old)
		default:
			continue
		}
		p.units[svc.Key] = u
	}
	if !changed && len(p.units) == len(prev.units) {
		return prev
	}
	p.render(current, stale)
	return p
}

func refused(svc *dataplane.Service, o Options) bool {
	problem := Assess(svc, o)
	return problem != nil && problem.Status == dataplane.StatusUnsupported
}

// render makes all chains. A service that stays as it was gives way where another
// has taken its frontend since.
func (p *Plan) render(current, stale []*unit) {
	var leaves [post][]leaf
	taken := make(map[dataplane.Binding]bool)
	for _, u := range current {
		p.add(u)
		for h := range post {
			leaves[h] = append(leaves[h], u.leaves[h]...)
		}
		if len(stale) > 0 {
			for _, f := range u.svc.Frontends {
				taken[f.Binding()] = true
			}
		}
	}
	for _, u := range stale {
		p.add(u)
		for h := range post {
			for _, l := range u.leaves[h] {
				if !taken[l.frontend] {
					leaves[h] = append(leaves[h], l)
				}
			}
		}
	}
	if own := p.opts.Own; own.usable(p.family, p.opts.Mode) {
		leaves[out] = append(leaves[out], leaf{
			frontend: dataplane.Binding{Addr: own.Frontend, Protocol: dataplane.TCP},
			target:   "-j DNAT --to-destination " + own.Endpoint.String(),
		})
	}
	for _, h := range p.opts.hooks() {
		t := tree{family: p.family, tag: p.tag, match: byDestination{}, chains: p.chains}
		p.roots[h] = root{used: true, body: t.root(newEntries(leaves[h]))}
	}
	p.roots[post] = root{used: true, body: p.masquerade(leaves)}
}

func (p *Plan) add(u *unit) {
	for _, c := range u.chains {
		p.chains[c.name] = c.body
	}
}

// equal reports whether two sets of options make the same rules.
func (o Options) equal(other Options) bool {
	a, b := o.Pools, other.Pools
	return slices.Equal(a, b) && o.Mode == other.Mode && o.Instance == other.Instance && o.RouteLocalnet == other.RouteLocalnet &&
		o.NoIPv6 == other.NoIPv6 && o.Features == other.Features && o.Own == other.Own
}

// Family is the IP version of the plan.
func (p *Plan) Family() Family { return p.family }

// Services is the number of services with a frontend of this family.
func (p *Plan) Services() int { return len(p.units) }

// Programmed returns the ids of a service's endpoints that packets of this family
// are led to, in rising order, and whether it has a frontend of the family. Of a
// service that stays as it was they are those of then.
func (p *Plan) Programmed(key dataplane.Key) (endpoints []uint64, ok bool) {
	u, ok := p.units[key]
	if !ok {
		return nil, false
	}
	for _, c := range u.chains {
		for _, id := range c.endpoints {
			if id != 0 {
				endpoints = append(endpoints, id)
			}
		}
	}
	slices.Sort(endpoints)
	return slices.Compact(endpoints), true
}

// Jumps are the rules that lead into the plan, each to be the first of its base
// chain, where others' rules cannot take the packet before.
func (p *Plan) Jumps() []Jump {
	var jumps []Jump
	for h := range hooks {
		if p.roots[h].used {
			jumps = append(jumps, Jump{Base: h.base(), Rule: strings.Fields(p.jump(h))})
		}
	}
	return jumps
}

func (p *Plan) jump(h hook) string {
	return "-m comment --comment " + comment(p.tag) + " -j " + rootName(p.tag, h)
}

// pools are those of the family, once each, without those inside another.
func (p *Plan) pools() []netip.Prefix {
	var pools []netip.Prefix
	for _, pool := range p.opts.Pools {
		if p.family.Of(pool.Addr()) {
			pools = append(pools, pool.Masked())
		}
	}
	slices.SortFunc(pools, func(a, b netip.Prefix) int { return a.Compare(b) })
	kept := pools[:0]
	for _, pool := range pools {
		if len(kept) == 0 || !kept[len(kept)-1].Overlaps(pool) {
			kept = append(kept, pool)
		}
	}
	return kept
}

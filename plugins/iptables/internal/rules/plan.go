package rules

import (
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/dataplane"
)

// Plan is what should stand in the nat table of one family. It is immutable; plans
// share what did not change from one to the next.
type Plan struct {
	family Family
	opts   Options
	tag    string
	units  map[dataplane.Key]*unit
	held   bool            // a unit stays as it was before its service became what cannot be
	chains map[string]body // all but the roots, by name
	trees  [hooks]tree
	roots  [roots]root
}

// body is a chain's rules, and how many units and nodes have it.
type body struct {
	rules string
	users int
}

// root is one of the chains that base chains jump to.
type root struct {
	used  bool
	rules string
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
	p := &Plan{family: f, opts: o, tag: Tag(o.Instance)}
	first := prev == nil || prev.tag != p.tag || prev.family != f
	if first {
		prev = &Plan{}
	}
	e := newEdit(prev, p)
	if !e.collect(services) && !first {
		return prev
	}
	e.finish()
	return p
}

// edit makes one plan out of the one before.
type edit struct {
	old, plan *Plan
	same      bool // the options are
	stale     []*unit
	added     []*unit
	gone      map[*unit]bool
}

func newEdit(old, plan *Plan) *edit {
	return &edit{old: old, plan: plan, same: old.opts.equal(plan.opts), gone: make(map[*unit]bool)}
}

// collect finds the units of the new plan and reports whether any differs.
func (e *edit) collect(services iter.Seq[*dataplane.Service]) bool {
	p := e.plan
	p.units = make(map[dataplane.Key]*unit, len(e.old.units))
	for svc := range services {
		old := e.old.units[svc.Key]
		switch {
		case e.same && old != nil && old.svc == svc:
			p.units[svc.Key] = old
		case !refused(svc, p.opts):
			if needs(svc, p.family) {
				u := compile(svc, p.family, p.opts)
				p.units[svc.Key] = u
				e.added = append(e.added, u)
			}
		case old != nil:
			p.units[svc.Key] = old
			e.stale = append(e.stale, old)
		}
	}
	p.held = len(e.stale) > 0
	for key, old := range e.old.units {
		if p.units[key] != old {
			e.gone[old] = true
		}
	}
	return !e.same || len(e.added) > 0 || len(e.gone) > 0
}

// finish makes the chains.
func (e *edit) finish() {
	p := e.plan
	p.chains = maps.Clone(e.old.chains)
	if p.chains == nil {
		p.chains = make(map[string]body)
	}
	for _, u := range e.added {
		for _, c := range u.chains {
			p.use(c.name, c.rules)
		}
	}
	for u := range e.gone {
		for _, c := range u.chains {
			p.drop(c.name)
		}
	}
	for h := range hooks {
		e.plant(h)
	}
	for _, h := range p.opts.hooks() {
		p.roots[h] = root{used: true, rules: p.trees[h].root.rules}
	}
	p.roots[post] = root{used: true, rules: p.led() + p.trees[post].root.rules}
	p.roots[source] = root{used: true, rules: p.opts.source(p.family)}
}

// plant makes the tree of a hook.
func (e *edit) plant(h hook) {
	p, old := e.plan, &e.old.trees[h]
	g := grower{family: p.family, tag: p.tag, match: h.matcher(), kept: make(map[*node]bool)}
	p.trees[h] = g.grow(e.leaves(h), old)
	for _, n := range g.fresh {
		p.use(n.name, n.rules)
	}
	var fell func(nodes []*node)
	fell = func(nodes []*node) {
		for _, n := range nodes {
			if !g.kept[n] {
				p.drop(n.name)
				fell(n.below)
			}
		}
	}
	fell(old.root.below)
}

// leaves are the frontends of a hook in the order of their keys. Where a service
// stays as it was, it gives way to those that have taken its frontends since.
func (e *edit) leaves(h hook) []*leaf {
	p := e.plan
	if e.same && !p.held && !e.old.held {
		var added []*leaf
		for _, u := range e.added {
			added = append(added, u.leaves[h]...)
		}
		return merge(e.old.trees[h].leaves, e.gone, added)
	}
	stale := make(map[*unit]bool)
	for _, u := range e.stale {
		stale[u] = true
	}
	var leaves []*leaf
	taken := make(map[dataplane.Binding]bool)
	for _, u := range p.units {
		if stale[u] {
			continue
		}
		leaves = append(leaves, u.leaves[h]...)
		for _, f := range u.svc.Frontends {
			taken[f.Binding()] = true
		}
	}
	for _, u := range e.stale {
		for _, l := range u.leaves[h] {
			if !taken[l.frontend] {
				leaves = append(leaves, l)
			}
		}
	}
	if own := p.opts.Own; h == out && own.usable(p.family, p.opts.Mode) {
		leaves = append(leaves, newLeaf(nil, h.matcher(), dataplane.Binding{Addr: own.Frontend, Protocol: dataplane.TCP}, "-j DNAT --to-destination "+own.Endpoint.String()))
	}
	return merge(nil, nil, leaves)
}

// use counts one more that leads to a chain.
func (p *Plan) use(name, rules string) {
	b := p.chains[name]
	p.chains[name] = body{rules, b.users + 1}
}

// drop counts one less; without any the chain goes.
func (p *Plan) drop(name string) {
	b := p.chains[name]
	if b.users--; b.users > 0 {
		p.chains[name] = b
		return
	}
	delete(p.chains, name)
}

func refused(svc *dataplane.Service, o Options) bool {
	problem := Assess(svc, o)
	return problem != nil && problem.Status == dataplane.StatusUnsupported
}

// equal reports whether two sets of options make the same rules.
func (o Options) equal(other Options) bool {
	return slices.Equal(o.Pools, other.Pools) && o.Mode == other.Mode && o.Instance == other.Instance && o.RouteLocalnet == other.RouteLocalnet &&
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

// pools are those of a family, once each, without those inside another.
func (o Options) pools(f Family) []netip.Prefix {
	var pools []netip.Prefix
	for _, pool := range o.Pools {
		if f.Of(pool.Addr()) {
			pools = append(pools, pool.Masked())
		}
	}
	slices.SortFunc(pools, netip.Prefix.Compare)
	kept := pools[:0]
	for _, pool := range pools {
		if len(kept) == 0 || !kept[len(kept)-1].Overlaps(pool) {
			kept = append(kept, pool)
		}
	}
	return kept
}

// covers reports whether a pool holds an address.
func (o Options) covers(a netip.Addr) bool {
	return slices.ContainsFunc(o.Pools, func(pool netip.Prefix) bool { return pool.Contains(a) })
}

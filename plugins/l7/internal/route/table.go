package route

import (
	"hash/maphash"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/dataplane"
)

// DefaultZone is the last part of a service's longest name.
const DefaultZone = "mesh.internal"

// ReasonDuplicateHost is the reason of a service some of whose hosts or routes
// are another's: the rest of it works (StatusPartial).
const ReasonDuplicateHost = "duplicate-host"

// Service is what leads requests to one target. It serves the hosts that its
// name makes (NAME in the namespace default, NAME.NAMESPACE, and
// NAME.NAMESPACE.ZONE), the further ones, and what its routes match.
type Service[T any] struct {
	Key    dataplane.Key
	Since  int64             // of its registration: of two that want the same, the older one has it
	Hosts  []string          // names, IP addresses, *.example.com, or * for any
	Routes []dataplane.Route // a route without a host is for any
	Target T
}

// Verdict is what a look-up found.
type Verdict uint8

// The verdicts.
const (
	NoHost  Verdict = iota // nobody serves the host
	NoRoute                // the host is served, but not this request
	Found
)

// Request is what a look-up goes by.
type Request struct {
	Host   string // canonical: see Canonical; "" is a request without one
	Path   string // decoded: see Path
	Method string
	Header map[string][]string // under canonical names, as http.Header has them
}

// Conflict is a part of a service that another one has. The own names of a
// service come first, then the key that is smaller.
type Conflict struct {
	Host   string
	Prefix string
	Winner dataplane.Key
}

// Table leads requests to targets. It is immutable and safe to share.
//
// The most specific host decides: a name before *.example.com, the longer of
// two of these first, and * last. Of its routes that match, the one with the
// longest prefix wins, then with more headers, then with methods, then of the
// service that was registered first, then of the smaller key. There is no second
// try with another host.
type Table[T any] struct {
	zone     string
	services shards[*service[T]] // by Key.String()
	hosts    shards[*host[T]]    // names and addresses
	wild     shards[*host[T]]    // what follows "*."
	any      *host[T]
}

// New returns an empty table. Services are also known as NAME.NAMESPACE.zone;
// an empty zone is DefaultZone.
func New[T any](zone string) *Table[T] {
	if zone == "" {
		zone = DefaultZone
	}
	seed := maphash.MakeSeed() // no order that it makes can be seen
	return &Table[T]{zone: zone, services: newShards[*service[T]](seed), hosts: newShards[*host[T]](seed), wild: newShards[*host[T]](seed)}
}

// Lookup returns the target of a request. It does not allocate.
func (t *Table[T]) Lookup(r Request) (target T, v Verdict) {
	h := t.host(r.Host)
	if h == nil {
		return target, NoHost
	}
	if found := h.find(&r); found != nil {
		return found.target, Found
	}
	return target, NoRoute
}

// host returns the most specific host that somebody serves.
func (t *Table[T]) host(name string) *host[T] {
	if h := t.hosts.get(name); h != nil {
		return h
	}
	if t.wild.n > 0 {
		for rest := name; ; {
			dot := strings.IndexByte(rest, '.')
			if dot < 0 {
				break
			}
			rest = rest[dot+1:]
			if h := t.wild.get(rest); h != nil {
				return h
			}
		}
	}
	return t.any
}

// Conflicts returns what the service of a key asked for and another one has, in
// the order of hosts and prefixes.
func (t *Table[T]) Conflicts(k dataplane.Key) []Conflict {
	s := t.services.get(k.String())
	if s == nil {
		return nil
	}
	var list []Conflict
	for _, name := range s.hosts() {
		for _, l := range t.named(name).losers {
			if l.rule.key == k {
				list = append(list, Conflict{Host: name, Prefix: max(l.rule.prefix, "/"), Winner: l.winner})
			}
		}
	}
	return list
}

// named returns the host of a configured name, or nil.
func (t *Table[T]) named(name string) *host[T] {
	if name == AnyHost {
		return t.any
	}
	if rest, ok := strings.CutPrefix(name, "*."); ok {
		return t.wild.get(rest)
	}
	return t.hosts.get(name)
}

// Edit starts a copy of the table, which stays as it is.
func (t *Table[T]) Edit() *Editor[T] {
	return &Editor[T]{base: t, services: t.services.edit(), dirty: make(map[string]map[dataplane.Key][]*rule[T])}
}

// Editor makes the next table out of one. Its cost is that of the edits, and of
// the other services that serve the same hosts.
type Editor[T any] struct {
	base     *Table[T]
	services shardsEditor[*service[T]]
	dirty    map[string]map[dataplane.Key][]*rule[T] // the rules of hosts that change
}

// Set puts s in place of the service of its key. A service that is wrong by
// itself is refused with an error that wraps ErrInvalid, and what was there
// before stays.
func (e *Editor[T]) Set(s Service[T]) error {
	compiled, err := compile(s, e.base.zone)
	if err != nil {
		return err
	}
	e.Delete(s.Key)
	e.services.set(s.Key.String(), compiled)
	for i := range compiled.claims {
		c := &compiled.claims[i]
		rules := e.rules(c.host)
		rules[s.Key] = append(rules[s.Key], &c.rule)
	}
	return nil
}

// Delete removes a service.
func (e *Editor[T]) Delete(k dataplane.Key) {
	old := e.services.get(k.String())
	if old == nil {
		return
	}
	e.services.delete(k.String())
	for _, name := range old.hosts() {
		delete(e.rules(name), k)
	}
}

// rules returns the rules of a host, to be changed.
func (e *Editor[T]) rules(name string) map[dataplane.Key][]*rule[T] {
	rules := e.dirty[name]
	if rules == nil {
		rules = make(map[dataplane.Key][]*rule[T])
		e.dirty[name] = rules
		if h := e.base.named(name); h != nil {
			for _, r := range h.all {
				rules[r.key] = append(rules[r.key], r)
			}
		}
	}
	return rules
}

// Done returns the table, and the services whose Conflicts are not what they
// were, in the order of their keys: a change of one service may give a host to
// another. The editor must not be used afterwards.
func (e *Editor[T]) Done() (*Table[T], []dataplane.Key) {
	next := &Table[T]{zone: e.base.zone, services: e.services.shards, any: e.base.any}
	hosts, wild := e.base.hosts.edit(), e.base.wild.edit()
	maybe := make(map[dataplane.Key]bool)
	for name, rules := range e.dirty {
		h := newHost(rules)
		for _, version := range []*host[T]{e.base.named(name), h} {
			if version != nil {
				for _, l := range version.losers {
					maybe[l.rule.key] = true
				}
			}
		}
		into := &hosts
		key := name
		if rest, ok := strings.CutPrefix(name, "*."); ok {
			into, key = &wild, rest
		}
		switch {
		case name == AnyHost:
			next.any = h
		case h == nil:
			into.delete(key)
		default:
			into.set(key, h)
		}
	}
	next.hosts, next.wild = hosts.shards, wild.shards
	var changed []dataplane.Key
	for k := range maybe {
		if !slices.Equal(e.base.Conflicts(k), next.Conflicts(k)) {
			changed = append(changed, k)
		}
	}
	slices.SortFunc(changed, dataplane.Key.Compare)
	return next, changed
}

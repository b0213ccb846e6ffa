package route

import (
	"cmp"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/dataplane"
)

// rule is one way to a target on one host. What a look-up reads is at its
// beginning, in one line of the cache.
type rule[T any] struct {
	prefix string      // decoded, without a slash at its end; "" matches all
	only   *constraint // nil: none
	target T

	key   dataplane.Key
	since int64
	own   bool   // of the host that is made of the service's name
	id    string // equal ids match the same requests
}

// constraint is what a rule asks for beside its prefix.
type constraint struct {
	headers []header // sorted
	methods []string // sorted; none is any
}

type header struct{ name, value string }

// matches looks at all but the prefix.
func (r *rule[T]) matches(req *Request) bool {
	if r.only == nil {
		return true
	}
	if len(r.only.methods) > 0 && !slices.Contains(r.only.methods, req.Method) {
		return false
	}
	for _, h := range r.only.headers {
		if !slices.Contains(req.Header[h.name], h.value) {
			return false
		}
	}
	return true
}

// precedes orders the rules of one host: the first that matches wins.
func (r *rule[T]) precedes(o *rule[T]) int {
	return cmp.Or(
		-cmp.Compare(len(r.prefix), len(o.prefix)),
		-cmp.Compare(r.only.count(), o.only.count()),
		-cmp.Compare(truth(r.own), truth(o.own)),
		cmp.Compare(r.since, o.since),
		r.key.Compare(o.key),
		cmp.Compare(r.id, o.id),
	)
}

// count makes one number of how much is asked for: headers count first.
func (c *constraint) count() int {
	if c == nil {
		return 0
	}
	return 2*len(c.headers) + truth(len(c.methods) > 0)
}

func truth(b bool) int {
	if b {
		return 1
	}
	return 0
}

// host is everything that services want of one host. It is immutable.
type host[T any] struct {
	first    rule[T]    // of rules, a copy: most hosts have no other, and it saves two reads far away
	all      []*rule[T] // in order of precedence
	rules    []*rule[T] // all without the losers
	losers   []loser[T]
	byPrefix map[string][]*rule[T] // of rules, if they are many
	longest  int                   // prefix in byPrefix
}

type loser[T any] struct {
	rule   *rule[T]
	winner dataplane.Key
}

// fewRules are looked at one after the other.
const fewRules = 8

// newHost returns the host with these rules, or nil if there are none.
func newHost[T any](byService map[dataplane.Key][]*rule[T]) *host[T] {
	h := &host[T]{}
	for _, rules := range byService {
		h.all = append(h.all, rules...)
	}
	if len(h.all) == 0 {
		return nil
	}
	if len(h.all) == 1 {
		h.rules, h.first = h.all, *h.all[0]
		return h
	}
	slices.SortFunc(h.all, (*rule[T]).precedes)
	winners := make(map[string]dataplane.Key, len(h.all))
	for _, r := range h.all {
		if winner, taken := winners[r.id]; taken {
			h.losers = append(h.losers, loser[T]{r, winner})
			continue
		}
		winners[r.id] = r.key
		h.rules = append(h.rules, r)
	}
	h.first = *h.rules[0]
	if len(h.rules) > fewRules {
		h.byPrefix = make(map[string][]*rule[T])
		for _, r := range h.rules {
			h.byPrefix[r.prefix] = append(h.byPrefix[r.prefix], r)
			h.longest = max(h.longest, len(r.prefix))
		}
	}
	return h
}

func (h *host[T]) find(req *Request) *rule[T] {
	if r := &h.first; hasPrefix(req.Path, r.prefix) && r.matches(req) {
		return r
	}
	if h.byPrefix == nil {
		for _, r := range h.rules[1:] {
			if hasPrefix(req.Path, r.prefix) && r.matches(req) {
				return r
			}
		}
		return nil
	}
	// From the longest prefix that could be there to none, a segment at a time.
	for p := cut(req.Path, h.longest); ; {
		for _, r := range h.byPrefix[p] {
			if r.matches(req) {
				return r
			}
		}
		if p == "" {
			return nil
		}
		p = p[:max(0, strings.LastIndexByte(p, '/'))]
	}
}

// hasPrefix reports whether prefix is path, or ends where a segment of it does.
func hasPrefix(path, prefix string) bool {
	return strings.HasPrefix(path, prefix) && (len(path) == len(prefix) || path[len(prefix)] == '/' || prefix == "")
}

// cut returns the longest prefix of at most n bytes that ends where a segment
// does.
func cut(path string, n int) string {
	if len(path) <= n {
		return path
	}
	return path[:max(0, strings.LastIndexByte(path[:n+1], '/'))]
}

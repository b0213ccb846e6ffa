package route

import (
	"cmp"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/dataplane"
)

// rule is one way to a target on one host.
type rule[T any] struct {
	prefix  string // decoded, without a slash at its end; "" matches all
	headers []header
	methods []string // sorted; none is any
	id      string   // equal ids match the same requests
	own     bool     // of the host that is made of the service's name
	key     dataplane.Key
	target  T
}

type header struct{ name, value string }

// matches looks at all but the prefix.
func (r *rule[T]) matches(req *Request) bool {
	if len(r.methods) > 0 && !slices.Contains(r.methods, req.Method) {
		return false
	}
	for _, h := range r.headers {
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
		-cmp.Compare(len(r.headers), len(o.headers)),
		-cmp.Compare(min(1, len(r.methods)), min(1, len(o.methods))),
		-cmp.Compare(rank(r.own), rank(o.own)),
		r.key.Compare(o.key),
		cmp.Compare(r.id, o.id),
	)
}

func rank(own bool) int {
	if own {
		return 1
	}
	return 0
}

// host is everything that services want of one host. It is immutable.
type host[T any] struct {
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
		h.rules = h.all
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
	if h.byPrefix == nil {
		for _, r := range h.rules {
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

package dataplane

import (
	"maps"
	"slices"
)

// Diff compares two snapshots of which to was edited out of from or not, at a
// cost of O(services), and returns what changed. reason tells why an endpoint
// is gone; nil if nobody knows.
func Diff(from, to *Snapshot, reason func(Key, Endpoint) Removal) Delta {
	var d Delta
	for svc := range to.Services() {
		if c, changed := Compare(from.Service(svc.Key), svc, reason); changed {
			d.Changes = append(d.Changes, c)
		}
	}
	for old := range from.Services() {
		if to.Service(old.Key) == nil {
			c, _ := Compare(old, nil, reason)
			d.Changes = append(d.Changes, c)
		}
	}
	d.Sort()
	return d
}

// Sort puts the changes into the order of their keys.
func (d Delta) Sort() {
	slices.SortFunc(d.Changes, func(a, b Change) int { return a.Key().Compare(b.Key()) })
}

// Compare returns what changed between two versions of one service, either of
// which may be nil, and whether anything did.
func Compare(was, is *Service, reason func(Key, Endpoint) Removal) (Change, bool) {
	if was == is {
		return Change{}, false
	}
	c := Change{Old: was, New: is}
	switch {
	case was == nil:
		c.Upserted = is.Endpoints
	case is == nil:
		c.compare(was.Endpoints, Endpoints{}, reason)
	case was.Endpoints != is.Endpoints:
		c.compare(was.Endpoints, is.Endpoints, reason)
	}
	return c, c.Upserted.Len() > 0 || len(c.Removed) > 0 || c.Definition()
}

// compare merges two lists, which are sorted and packed in one form only.
func (c *Change) compare(was, is Endpoints, reason func(Key, Endpoint) Removal) {
	var upserted []Endpoint
	old, now := was.entries(), is.entries()
	for old != "" || now != "" {
		switch {
		case now == "" || old != "" && little[uint64](old) < little[uint64](now):
			e, rest := unpack(old)
			r := Removal{}
			if reason != nil {
				r = reason(c.Key(), e)
			}
			r.Endpoint = e
			c.Removed = append(c.Removed, r)
			old = rest
		case old == "" || little[uint64](now) < little[uint64](old):
			e, rest := unpack(now)
			upserted = append(upserted, e)
			now = rest
		default:
			a, oldRest := skip(old)
			b, nowRest := skip(now)
			if a != b {
				e, _ := unpack(now)
				upserted = append(upserted, e)
			}
			old, now = oldRest, nowRest
		}
	}
	c.Upserted = NewEndpoints(upserted...)
}

// sameDefinition compares all but the endpoints.
func sameDefinition(a, b *Service) bool {
	return a.Key == b.Key && slices.Equal(a.Frontends, b.Frontends) && a.Balance == b.Balance && a.Affinity == b.Affinity &&
		slices.Equal(a.Hosts, b.Hosts) && slices.EqualFunc(a.Routes, b.Routes, Route.equal) && a.DrainTime == b.DrainTime &&
		a.Since == b.Since
}

func (r Route) equal(o Route) bool {
	return r.Host == o.Host && r.PathPrefix == o.PathPrefix && maps.Equal(r.Headers, o.Headers) && slices.Equal(r.Methods, o.Methods)
}

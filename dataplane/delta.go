package dataplane

import (
	"cmp"
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
	slices.SortFunc(d.Changes, func(a, b Change) int { return cmp.Compare(a.Key().String(), b.Key().String()) })
}

// Compare returns what changed between two versions of one service, either of
// which may be nil, and whether anything did.
func Compare(was, is *Service, reason func(Key, Endpoint) Removal) (Change, bool) {
	if was == is {
		return Change{}, false
	}
	c := Change{Old: was, New: is}
	var old, now []Endpoint
	if was != nil {
		old = was.Endpoints
	}
	if is != nil {
		now = is.Endpoints
	}
	// Both are sorted by id: merge.
	for len(old) > 0 || len(now) > 0 {
		switch {
		case len(now) == 0 || len(old) > 0 && old[0].ID < now[0].ID:
			r := Removal{Endpoint: old[0]}
			if reason != nil {
				r = reason(c.Key(), old[0])
				r.Endpoint = old[0]
			}
			c.Removed = append(c.Removed, r)
			old = old[1:]
		case len(old) == 0 || now[0].ID < old[0].ID:
			c.Upserted = append(c.Upserted, now[0])
			now = now[1:]
		default:
			if !old[0].Equal(now[0]) {
				c.Upserted = append(c.Upserted, now[0])
			}
			old, now = old[1:], now[1:]
		}
	}
	return c, len(c.Upserted) > 0 || len(c.Removed) > 0 || c.Definition()
}

// Equal reports whether two endpoints are the same in every respect.
func (e Endpoint) Equal(o Endpoint) bool {
	same := e.DrainUntil.Equal(o.DrainUntil)
	e.DrainUntil = o.DrainUntil
	return same && e == o
}

// sameDefinition compares all but the endpoints.
func sameDefinition(a, b *Service) bool {
	return a.Key == b.Key && slices.Equal(a.Frontends, b.Frontends) && a.Balance == b.Balance && a.Affinity == b.Affinity &&
		slices.Equal(a.Hosts, b.Hosts) && slices.EqualFunc(a.Routes, b.Routes, Route.equal) && a.DrainTime == b.DrainTime
}

func (r Route) equal(o Route) bool {
	return r.Host == o.Host && r.PathPrefix == o.PathPrefix && maps.Equal(r.Headers, o.Headers) && slices.Equal(r.Methods, o.Methods)
}

package ebpf

import (
	"maps"
	"slices"
	"time"

	"github.com/fairlead/fairlead/dataplane"
)

// ending is an endpoint that is gone, and when connections to it are ended.
type ending struct {
	key   dataplane.Key // of its service, while that had a name
	due   time.Time
	since time.Time // spare who heard anything from then on; zero: spare nobody
}

// doomed names an endpoint in the kernel.
type doomed struct {
	service  uint32
	endpoint uint64
	quick    bool // of the two endings of a dead one, the one at once
}

// endings are those to come. The zero value is empty.
type endings struct {
	waiting map[doomed]ending
}

func (e *endings) clear() { clear(e.waiting) }

// removed notes endpoints that a service lost: for the reasons that the host gave,
// and those that vanished while nobody said why.
func (e *endings) removed(k dataplane.Key, id uint32, drain time.Duration, named []dataplane.Removal, vanished []uint64, now time.Time) {
	if e.waiting == nil {
		e.waiting = make(map[doomed]ending)
	}
	said := make(map[uint64]bool, len(named))
	for _, r := range named {
		said[r.Endpoint.ID] = true
		if r.Reason == dataplane.RemovedDead {
			// Its host is gone: who has heard nothing since will hear nothing more.
			e.waiting[doomed{id, r.Endpoint.ID, true}] = ending{k, now, r.SuspectedSince}
		}
		e.waiting[doomed{id, r.Endpoint.ID, false}] = ending{key: k, due: now.Add(drain)}
	}
	for _, v := range vanished {
		if !said[v] {
			e.waiting[doomed{id, v, false}] = ending{key: k, due: now.Add(drain)}
		}
	}
}

// due takes those whose time has come, less those that are back, and says when the
// next comes; zero: none.
func (e *endings) due(now time.Time, back func(dataplane.Key, uint64) bool) (take map[doomed]ending, next time.Time) {
	for _, d := range slices.Collect(maps.Keys(e.waiting)) {
		w := e.waiting[d]
		if w.due.After(now) {
			if next.IsZero() || w.due.Before(next) {
				next = w.due
			}
			continue
		}
		delete(e.waiting, d)
		if back(w.key, d.endpoint) {
			continue
		}
		if take == nil {
			take = make(map[doomed]ending)
		}
		take[d] = w
	}
	return take, next
}

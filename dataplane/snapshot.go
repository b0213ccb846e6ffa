package dataplane

import (
	"iter"
	"time"

	"github.com/tidwall/btree"
)

// Session is one run of one agent. Generations compare within a session only.
type Session struct {
	AgentID   string
	BootEpoch uint64 // rises with every start of the agent
}

// Completeness says whether what a snapshot lacks is gone. The numbers are
// those of the wire.
type Completeness uint8

// The grades. Only Incomplete restricts: such a snapshot adds and removes
// nothing.
const (
	Incomplete Completeness = 1 // the agent is still getting to know its cluster
	Exchanged  Completeness = 2 // one full exchange with a member is done
	Alone      Completeness = 3 // every peer of the last run is dead, or there were none
	TimedOut   Completeness = 4 // nothing was found in time
)

// Complete reports whether a service or endpoint that the snapshot lacks is
// gone.
func (c Completeness) Complete() bool { return c >= Exchanged && c <= TimedOut }

// String prints the name of the grade.
func (c Completeness) String() string {
	return name(c, "", "incomplete", "exchanged", "alone", "timeout")
}

// Snapshot is what should be programmed. It is immutable and safe to share;
// versions share what did not change. The zero Snapshot is empty.
type Snapshot struct {
	Session      Session
	Generation   uint64
	Digest       []byte // names this content to the host; opaque
	Completeness Completeness

	services  *btree.BTreeG[entry] // nil: none
	endpoints int
}

// entry is a service under its own key, so that a look-up needs no service.
type entry struct {
	key *Key
	svc *Service
}

func newTree() *btree.BTreeG[entry] {
	return btree.NewBTreeGOptions(func(a, b entry) bool { return a.key.Compare(*b.key) < 0 }, btree.Options{NoLocks: true})
}

// Service returns the service of a key, or nil.
func (s *Snapshot) Service(k Key) *Service {
	if s.services == nil {
		return nil
	}
	e, _ := s.services.Get(entry{key: &k})
	return e.svc
}

// Services yields all services in the order of their keys.
func (s *Snapshot) Services() iter.Seq[*Service] {
	return func(yield func(*Service) bool) {
		if s.services != nil {
			s.services.Scan(func(e entry) bool { return yield(e.svc) })
		}
	}
}

// Len is the number of services.
func (s *Snapshot) Len() int {
	if s.services == nil {
		return 0
	}
	return s.services.Len()
}

// EndpointCount is the number of endpoints of all services.
func (s *Snapshot) EndpointCount() int { return s.endpoints }

// Editor makes the next snapshot out of one. It copies on write: its cost is
// that of the edits.
type Editor struct {
	next *Snapshot
}

// Edit starts a copy of s, which stays as it is. Edit of one snapshot must not
// be called by two goroutines at once.
func (s *Snapshot) Edit() *Editor {
	next := *s
	if s.services == nil {
		next.services = newTree()
	} else {
		next.services = s.services.Copy()
	}
	return &Editor{next: &next}
}

// Service returns the service of a key as it is now, or nil.
func (e *Editor) Service(k Key) *Service { return e.next.Service(k) }

// Services yields all services as they are now, in the order of their keys.
func (e *Editor) Services() iter.Seq[*Service] { return e.next.Services() }

// Set puts svc in place of the service of its key. It must not be changed
// afterwards.
func (e *Editor) Set(svc *Service) {
	old, _ := e.next.services.Load(entry{&svc.Key, svc}) // quick if keys come in order
	e.next.endpoints += svc.Endpoints.Len()
	if old.svc != nil {
		e.next.endpoints -= old.svc.Endpoints.Len()
	}
}

// Delete removes a service.
func (e *Editor) Delete(k Key) {
	if old, ok := e.next.services.Delete(entry{key: &k}); ok {
		e.next.endpoints -= old.svc.Endpoints.Len()
	}
}

// Done returns the snapshot. The editor must not be used afterwards.
func (e *Editor) Done() *Snapshot { return e.next }

// Delta is the difference between two snapshots, in the order of the keys.
type Delta struct {
	Changes []Change
}

// Change is what happened to one service.
type Change struct {
	Old, New *Service  // Old nil: added; New nil: removed
	Upserted Endpoints // new, or not as before
	Removed  []Removal
}

// Removal is an endpoint that is gone, and why.
type Removal struct {
	Endpoint       Endpoint // as it was
	Reason         RemovalReason
	SuspectedSince time.Time // with RemovedDead
}

// RemovalReason is why an endpoint is gone. The numbers are those of the wire.
type RemovalReason uint8

// The reasons. Dead endpoints' connections may be ended at once, all others'
// after the drain time.
const (
	RemovedUnknown      RemovalReason = 0
	RemovedDead         RemovalReason = 1
	RemovedLeft         RemovalReason = 2
	RemovedFailing      RemovalReason = 3
	RemovedDrained      RemovalReason = 4
	RemovedDeregistered RemovalReason = 5
)

// String prints the name of the reason.
func (r RemovalReason) String() string {
	return name(r, "unknown", "dead", "left", "failing", "drained", "deregistered")
}

// Key is the service that the change is about.
func (c Change) Key() Key {
	if c.New != nil {
		return c.New.Key
	}
	return c.Old.Key
}

// Definition reports whether more than the endpoints changed.
func (c Change) Definition() bool {
	return c.Old == nil || c.New == nil || !sameDefinition(c.Old, c.New)
}

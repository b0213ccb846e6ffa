package transfer

import (
	"iter"
	"maps"

	"github.com/fairlead/fairlead/dataplane"
	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
)

// MaxChangeBytes bounds one Change message, encoded.
const MaxChangeBytes = 1 << 20

// Encoder turns the snapshots of one session into messages. It gives each
// service a handle, which names no other service in the session. What it
// yields may be sent again, or not arrive: no state of it says what the
// provider has. A Change that it yields is encoded already, and the fields of
// the object are empty. It is not safe for concurrent use.
type Encoder struct {
	handles map[dataplane.Key]uint32
	last    uint32
}

// NewEncoder returns the encoder of a new session.
func NewEncoder() *Encoder {
	return &Encoder{handles: make(map[dataplane.Key]uint32)}
}

// Begin opens the generation of next: from base, or as a whole snapshot if
// base is 0. A base that is next.Generation itself says "unchanged": Commit
// follows at once, and a provider that does not have it refuses.
func Begin(next *dataplane.Snapshot, base uint64, allowEmpty bool) *pb.Begin {
	return &pb.Begin{
		Session: encodeSession(next.Session), Base: base, Generation: next.Generation, Digest: next.Digest,
		Completeness: pb.Completeness(next.Completeness), AllowEmpty: allowEmpty,
	}
}

// Snapshot yields all of s, in messages of at most MaxChangeBytes as long as
// the services pass Check.
func (e *Encoder) Snapshot(s *dataplane.Snapshot) iter.Seq[*pb.Change] {
	return func(yield func(*pb.Change) bool) {
		e.prune(s)
		p := packer{yield: yield}
		for svc := range s.Services() {
			h := e.handle(svc.Key)
			p.service(encodeService(h, svc))
			for ep := range svc.Endpoints.All() {
				p.endpoint(h, ep, false)
			}
			if p.stopped {
				return
			}
		}
		p.flush()
	}
}

// Delta yields the changes of d, in messages of at most MaxChangeBytes as long
// as the services pass Check.
func (e *Encoder) Delta(d dataplane.Delta) iter.Seq[*pb.Change] {
	return func(yield func(*pb.Change) bool) {
		p := packer{yield: yield}
		for _, c := range d.Changes {
			h := e.handle(c.Key())
			if c.New != nil && c.Definition() {
				p.service(encodeService(h, c.New))
			}
			for ep := range c.Upserted.All() {
				p.endpoint(h, ep, onlyState(c.Old, ep))
			}
			for _, r := range c.Removed {
				if c.New != nil || r.Reason != dataplane.RemovedUnknown {
					p.removeEndpoint(&pb.EndpointRemoval{Service: h, Id: r.Endpoint.ID, Reason: pb.RemovalReason(r.Reason), SuspectedSince: encodeTime(r.SuspectedSince)})
				}
			}
			if c.New == nil {
				p.removeService(h)
			}
			if p.stopped {
				return
			}
		}
		p.flush()
	}
}

// prune forgets the handles of services that are gone, once they are many. If
// a delta speaks of one nevertheless, its new handle names nothing and the
// provider asks for a snapshot.
func (e *Encoder) prune(s *dataplane.Snapshot) {
	if len(e.handles) <= 2*s.Len()+1024 {
		return
	}
	maps.DeleteFunc(e.handles, func(k dataplane.Key, _ uint32) bool { return s.Service(k) == nil })
}

func (e *Encoder) handle(k dataplane.Key) uint32 {
	h, known := e.handles[k]
	if !known {
		e.last++
		h = e.last
		e.handles[k] = h
	}
	return h
}

// onlyState reports whether an endpoint of a service that was known as old
// changes its state only: the most frequent change, and one that comes for all
// endpoints of a node at once.
func onlyState(old *dataplane.Service, e dataplane.Endpoint) bool {
	if old == nil || !e.Addr.IsValid() {
		return false
	}
	was, known := old.Endpoints.Get(e.ID)
	was.State, was.DrainUntil = e.State, e.DrainUntil
	return known && was.Equal(e)
}

package transfer

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/dataplane"
	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
)

// maxFenced bounds the sessions of other agents that are remembered as over.
const maxFenced = 16

// Assembler turns the messages of a host into what a provider is given. It
// decides which session and which generation is obeyed, and keeps from the
// provider whatever does not pass the checks. It is not safe for concurrent
// use.
//
// Three tables stand behind one another:
//
//	stated     exactly what the host has said in this session
//	+ kept     what was there before and an incomplete snapshot cannot remove
//	- rejected what does not pass the checks: its last good version stays
//	= given    what the provider is given
type Assembler struct {
	limits  dataplane.Limits
	fenced  map[string]uint64 // agent id → sessions up to this boot epoch are over
	applied Applied
	resumed bool // applied by a former process: its content is not known here

	handles map[uint32]dataplane.Key
	stated  *dataplane.Snapshot
	kept    *dataplane.Snapshot // nil once the session said a complete generation
	given   *dataplane.Snapshot
	owners  map[dataplane.Binding]dataplane.Key // who has a frontend in given
	refused map[dataplane.Key]dataplane.ServiceStatus
}

// Applied is what the last committed generation was.
type Applied struct {
	Session    dataplane.Session
	Generation uint64
	Digest     []byte
	Complete   bool
}

// Generation is one generation under way, from Begin to Accept.
type Generation struct {
	a        *Assembler
	begin    *pb.Begin
	applied  Applied
	same     bool // the host says: unchanged
	stated   *dataplane.Editor
	handles  map[uint32]dataplane.Key // of a snapshot; nil for a delta: a.handles and added
	added    map[uint32]dataplane.Key
	dropped  []uint32
	touched  map[dataplane.Key]bool
	removals map[removalKey]dataplane.Removal
	kept     *dataplane.Snapshot

	// Filled by Commit.
	next    *dataplane.Snapshot
	owners  ownership
	refused map[dataplane.Key]dataplane.ServiceStatus
	final   *dataplane.Snapshot
}

type removalKey struct {
	service  dataplane.Key
	endpoint uint64
}

// NewAssembler returns the assembler of a provider that has nothing applied.
func NewAssembler(limits dataplane.Limits) *Assembler {
	return &Assembler{
		limits: limits, fenced: make(map[string]uint64),
		handles: make(map[uint32]dataplane.Key), stated: &dataplane.Snapshot{}, given: &dataplane.Snapshot{},
		owners: make(map[dataplane.Binding]dataplane.Key), refused: make(map[dataplane.Key]dataplane.ServiceStatus),
	}
}

// Applied returns what is applied; zero before the first Accept.
func (a *Assembler) Applied() Applied { return a.applied }

// Given returns the snapshot that the provider accepted last; empty at first.
func (a *Assembler) Given() *dataplane.Snapshot { return a.given }

// Statuses returns the services that are kept from the provider, by key.
func (a *Assembler) Statuses() []dataplane.ServiceStatus {
	return sortedStatuses(a.refused)
}

// Begin opens a generation. It refuses old sessions (ErrOldSession), old
// generations (ErrOldGeneration) and changes to something else than what is
// applied (ErrBaseMismatch).
func (a *Assembler) Begin(b *pb.Begin) (*Generation, error) {
	s := decodeSession(b.GetSession())
	completeness := enum[dataplane.Completeness](b.GetCompleteness())
	switch {
	case s.AgentID == "" || s.BootEpoch == 0:
		return nil, fmt.Errorf("%w: Begin without a session: set agent_id and boot_epoch", dataplane.ErrInvalid)
	case b.GetGeneration() == 0:
		return nil, fmt.Errorf("%w: generation 0: generations start at 1", dataplane.ErrInvalid)
	case completeness != dataplane.Incomplete && !completeness.Complete():
		return nil, fmt.Errorf("%w: completeness %v is not known", dataplane.ErrInvalid, b.GetCompleteness())
	}
	cur := a.applied
	if s != cur.Session {
		if over, known := a.fenced[s.AgentID]; known && s.BootEpoch <= over || s.AgentID == cur.Session.AgentID && s.BootEpoch < cur.Session.BootEpoch {
			return nil, fmt.Errorf("%w: agent %s boot %d; agent %s boot %d took over", dataplane.ErrOldSession, s.AgentID, s.BootEpoch, cur.Session.AgentID, cur.Session.BootEpoch)
		}
		if b.GetBase() != 0 {
			return nil, fmt.Errorf("%w: a new session opens with a snapshot, not with changes to generation %d", dataplane.ErrBaseMismatch, b.GetBase())
		}
		cur = Applied{}
	}
	g := &Generation{a: a, begin: b, applied: Applied{Session: s, Generation: b.GetGeneration(), Digest: bytes.Clone(b.GetDigest()), Complete: completeness.Complete()}}
	switch {
	case g.applied.Generation < cur.Generation:
		return nil, fmt.Errorf("%w: %d, applied is %d", dataplane.ErrOldGeneration, g.applied.Generation, cur.Generation)
	case g.applied.Generation == cur.Generation:
		if !bytes.Equal(g.applied.Digest, cur.Digest) {
			return nil, fmt.Errorf("%w: generation %d is applied with another digest", dataplane.ErrBaseMismatch, cur.Generation)
		}
		g.same = true
		return g, nil
	case b.GetBase() != 0 && a.resumed:
		return nil, fmt.Errorf("%w: changes to generation %d, which a former process applied: send a snapshot", dataplane.ErrBaseMismatch, b.GetBase())
	case b.GetBase() != 0 && b.GetBase() != cur.Generation:
		return nil, fmt.Errorf("%w: changes to generation %d, applied is %d", dataplane.ErrBaseMismatch, b.GetBase(), cur.Generation)
	}
	g.touched = make(map[dataplane.Key]bool)
	g.removals = make(map[removalKey]dataplane.Removal)
	if b.GetBase() == 0 {
		g.handles = make(map[uint32]dataplane.Key)
		g.stated = (&dataplane.Snapshot{}).Edit()
		g.kept = a.given
	} else {
		g.added = make(map[uint32]dataplane.Key)
		g.stated = a.stated.Edit()
		g.kept = a.kept
	}
	if g.applied.Complete {
		g.kept = nil
	}
	return g, nil
}

// Unchanged reports whether the host says that the generation is applied
// already. Then Commit is not to be called.
func (g *Generation) Unchanged() bool { return g.same }

// Change adds a part of the difference. An error, which wraps ErrInvalid, ends
// the generation.
func (g *Generation) Change(c *pb.Change) error {
	if g.same {
		return fmt.Errorf("%w: changes within generation %d, which is applied already", dataplane.ErrInvalid, g.applied.Generation)
	}
	for _, s := range c.GetServices() {
		if err := g.service(s); err != nil {
			return err
		}
	}
	for _, group := range c.GetEndpoints() {
		if err := g.endpoints(group); err != nil {
			return err
		}
	}
	if err := g.removeEndpoints(c.GetRemovedEndpoints()); err != nil {
		return err
	}
	for _, r := range c.GetRemovedServices() {
		k, err := g.key(r.GetService())
		if err != nil {
			return err
		}
		g.stated.Delete(k)
		g.touched[k] = true
		g.dropped = append(g.dropped, r.GetService())
		delete(g.added, r.GetService())
		delete(g.handles, r.GetService())
	}
	return nil
}

func (g *Generation) service(s *pb.Service) error {
	h, k := s.GetHandle(), DecodeKey(s.GetKey())
	if h == 0 || k.Name == "" || k.Namespace == "" {
		return fmt.Errorf("%w: service %q with handle %d: both have to be set", dataplane.ErrInvalid, k, h)
	}
	if known, err := g.key(h); err == nil && known != k {
		return fmt.Errorf("%w: handle %d is %s and cannot become %s", dataplane.ErrInvalid, h, known, k)
	} else if err != nil {
		if g.handles != nil {
			g.handles[h] = k
		} else {
			g.added[h] = k
		}
	}
	svc := decodeService(s)
	if old := g.stated.Service(k); old != nil {
		svc.Endpoints = old.Endpoints
	}
	g.stated.Set(svc)
	g.touched[k] = true
	return nil
}

func (g *Generation) endpoints(group *pb.EndpointGroup) error {
	k, err := g.key(group.GetService())
	if err != nil {
		return err
	}
	old := g.stated.Service(k)
	svc := *old
	merged := make(map[uint64]dataplane.Endpoint, len(group.GetEndpoints()))
	for _, e := range group.GetEndpoints() {
		if e.GetId() == 0 {
			return fmt.Errorf("%w: endpoint of %s without an id", dataplane.ErrInvalid, k)
		}
		merged[e.GetId()] = decodeEndpoint(e)
		delete(g.removals, removalKey{k, e.GetId()})
	}
	svc.Endpoints = make([]dataplane.Endpoint, 0, len(old.Endpoints)+len(merged))
	for _, e := range old.Endpoints {
		if n, replaced := merged[e.ID]; replaced {
			e = n
			delete(merged, e.ID)
		}
		svc.Endpoints = append(svc.Endpoints, e)
	}
	for _, e := range merged {
		svc.Endpoints = append(svc.Endpoints, e)
	}
	sortEndpoints(svc.Endpoints)
	g.stated.Set(&svc)
	g.touched[k] = true
	return nil
}

func (g *Generation) removeEndpoints(removed []*pb.EndpointRemoval) error {
	for _, r := range removed {
		k, err := g.key(r.GetService())
		if err != nil {
			return err
		}
		svc := *g.stated.Service(k)
		id := r.GetId()
		if _, found := svc.Endpoint(id); !found {
			return fmt.Errorf("%w: %s has no endpoint %016x to remove", dataplane.ErrInvalid, k, id)
		}
		svc.Endpoints = slices.DeleteFunc(slices.Clone(svc.Endpoints), func(e dataplane.Endpoint) bool { return e.ID == id })
		g.stated.Set(&svc)
		g.touched[k] = true
		reason := enum[dataplane.RemovalReason](r.GetReason())
		if reason > dataplane.RemovedDeregistered {
			reason = dataplane.RemovedUnknown
		}
		g.removals[removalKey{k, id}] = dataplane.Removal{Reason: reason, SuspectedSince: decodeTime(r.GetSuspectedSince())}
	}
	return nil
}

// key resolves a handle. A service stated in this generation is known by it.
func (g *Generation) key(handle uint32) (dataplane.Key, error) {
	k, known := g.handles[handle]
	if !known && g.handles == nil {
		if k, known = g.added[handle]; !known && !slices.Contains(g.dropped, handle) {
			k, known = g.a.handles[handle]
		}
	}
	if !known {
		return dataplane.Key{}, fmt.Errorf("%w: handle %d names no service", dataplane.ErrInvalid, handle)
	}
	return k, nil
}

func sortEndpoints(es []dataplane.Endpoint) {
	slices.SortFunc(es, func(a, b dataplane.Endpoint) int { return cmp.Compare(a.ID, b.ID) })
}

func sortedStatuses(m map[dataplane.Key]dataplane.ServiceStatus) []dataplane.ServiceStatus {
	out := make([]dataplane.ServiceStatus, 0, len(m))
	for _, s := range m {
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b dataplane.ServiceStatus) int { return cmp.Compare(a.Service.String(), b.Service.String()) })
	return out
}

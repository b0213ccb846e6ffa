package transfer

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/dataplane"
	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
)

// maxNameBytes bounds an agent id and a digest, which are kept and sent each
// second.
const maxNameBytes = 64

// maxFenced bounds the sessions of other agents that are remembered as over.
const maxFenced = 64

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
	fenced  []dataplane.Session // over, one for each agent that had a turn; the oldest first
	applied Applied
	resumed bool // applied by a former process: its content is not known here

	handles *handles
	stated  *dataplane.Snapshot
	kept    *dataplane.Snapshot // nil once the session said a complete generation
	given   *dataplane.Snapshot
	owners  owners      // who has which frontend in given
	ports   portSet     // that owners has, or had
	open    *Generation // the last that Begin opened
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
	a         *Assembler
	begin     *pb.Begin
	applied   Applied
	same      bool // the host says: unchanged
	stated    *dataplane.Editor
	handles   *handles // of a snapshot; nil for a delta: a.handles and added
	added     map[uint32]dataplane.Key
	dropped   map[uint32]bool
	touched   map[dataplane.Key]*dataplane.Service // as stated now, this generation's own; nil: removed
	removals  map[removalKey]dataplane.Removal
	kept      *dataplane.Snapshot
	pack      dataplane.Packer
	namespace string

	// Filled by Commit.
	next    *dataplane.Snapshot
	owners  owners // what changes; nil: nobody
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
		limits: limits, handles: &handles{}, stated: &dataplane.Snapshot{}, given: &dataplane.Snapshot{},
		owners: make(owners), refused: make(map[dataplane.Key]dataplane.ServiceStatus),
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
	case len(s.AgentID) > maxNameBytes || len(b.GetDigest()) > maxNameBytes:
		return nil, fmt.Errorf("%w: agent_id of %d and digest of %d bytes: %d at most", dataplane.ErrInvalid, len(s.AgentID), len(b.GetDigest()), maxNameBytes)
	case b.GetGeneration() == 0:
		return nil, fmt.Errorf("%w: generation 0: generations start at 1", dataplane.ErrInvalid)
	case completeness != dataplane.Incomplete && !completeness.Complete():
		return nil, fmt.Errorf("%w: completeness %v is not known", dataplane.ErrInvalid, b.GetCompleteness())
	}
	cur := a.applied
	if s != cur.Session {
		if a.over(s) {
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
		if g.applied.Complete != cur.Complete {
			return nil, fmt.Errorf("%w: generation %d is applied with another completeness: raise the generation", dataplane.ErrInvalid, cur.Generation)
		}
		g.same = true
		return g, nil
	case b.GetBase() != 0 && a.resumed:
		return nil, fmt.Errorf("%w: changes to generation %d, which a former process applied: send a snapshot", dataplane.ErrBaseMismatch, b.GetBase())
	case b.GetBase() != 0 && b.GetBase() != cur.Generation:
		return nil, fmt.Errorf("%w: changes to generation %d, applied is %d", dataplane.ErrBaseMismatch, b.GetBase(), cur.Generation)
	}
	a.open = g
	g.touched = make(map[dataplane.Key]*dataplane.Service)
	g.removals = make(map[removalKey]dataplane.Removal)
	if b.GetBase() == 0 {
		g.handles = &handles{}
		g.stated = (&dataplane.Snapshot{}).Edit()
		g.kept = a.given
	} else {
		g.added, g.dropped = make(map[uint32]dataplane.Key), make(map[uint32]bool)
		g.stated = a.stated.Edit()
		g.kept = a.kept
	}
	if g.applied.Complete {
		g.kept = nil
	}
	return g, nil
}

// over reports whether a newer session of the same agent is known, or another
// agent took over since.
func (a *Assembler) over(s dataplane.Session) bool {
	if cur := a.applied.Session; s.AgentID == cur.AgentID {
		return s.BootEpoch < cur.BootEpoch
	}
	for _, f := range a.fenced {
		if f.AgentID == s.AgentID {
			return s.BootEpoch <= f.BootEpoch
		}
	}
	return false
}

// fence remembers that a session is over.
func (a *Assembler) fence(s dataplane.Session) {
	a.fenced = slices.DeleteFunc(a.fenced, func(f dataplane.Session) bool { return f.AgentID == s.AgentID })
	if len(a.fenced) == maxFenced {
		a.fenced = slices.Delete(a.fenced, 0, 1)
	}
	a.fenced = append(a.fenced, s)
}

func sortedStatuses(m map[dataplane.Key]dataplane.ServiceStatus) []dataplane.ServiceStatus {
	out := make([]dataplane.ServiceStatus, 0, len(m))
	for _, s := range m {
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b dataplane.ServiceStatus) int { return a.Service.Compare(b.Service) })
	return out
}

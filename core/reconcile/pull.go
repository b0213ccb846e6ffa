package reconcile

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcpeer "google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/fairlead/fairlead/dataplane"
	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
	"github.com/fairlead/fairlead/dataplane/transfer"
)

// maxFollowers bounds the streams of a Source, and the loops that it keeps for
// providers that come again.
const maxFollowers = 64

// maxOpenFollowers bounds the streams that do not come by a Unix socket. Any
// user of the host may open those, and is to leave room for whom the agent's
// socket lets in.
const maxOpenFollowers = maxFollowers / 2

// errStreamEnded ends a loop whose follower has to open a new stream, since
// only that says what it has.
var errStreamEnded = errors.New("reconcile: the stream to the follower is of no more use")

// Source serves the view to providers that run by themselves. Each stream has a
// loop of its own: whoever may connect may take any name, and is not to disturb
// who has it.
type Source struct {
	pb.UnimplementedSnapshotSourceServer
	cfg Config

	mu      sync.Mutex
	streams map[string]*follower // by the name that only the follower knows
	open    int                  // Invariant: how many of the streams are open
	parked  []*Loop              // of streams that ended, oldest first
}

var _ pb.SnapshotSourceServer = (*Source)(nil)

// follower is one stream.
type follower struct {
	loop    *Loop
	reports chan *pb.ReportRequest
}

// NewSource returns a source; cfg.Provider is not used.
func NewSource(cfg Config) *Source {
	if cfg.Metrics == nil {
		cfg.Metrics = NewMetrics()
	}
	cfg.follows = true
	return &Source{cfg: cfg, streams: make(map[string]*follower)}
}

// Followers returns how the providers fare that follow.
func (s *Source) Followers() []Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Status
	for _, f := range s.streams {
		out = append(out, f.loop.Status())
	}
	slices.SortFunc(out, func(a, b Status) int {
		return cmp.Or(cmp.Compare(a.Provider, b.Provider), cmp.Compare(a.Generation, b.Generation))
	})
	return out
}

// Follow streams generations until the call ends. What the request says of the
// provider's state decides how it begins.
func (s *Source) Follow(r *pb.FollowRequest, stream grpc.ServerStreamingServer[pb.FollowResponse]) error {
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	p := &pull{stream: stream, was: transfer.DecodeState(r.GetState()), name: rand.Text(), reports: make(chan *pb.ReportRequest, 8), open: isOpen(stream.Context())}
	loop, err := s.enter(r.GetInfo().GetName(), p)
	if err != nil {
		return transfer.ToWire(err)
	}
	defer s.leave(loop, p)
	if err := loop.run(ctx, p, nil); err != nil {
		return status.Error(codes.Aborted, err.Error()+": follow anew")
	}
	return transfer.ToWire(ctx.Err())
}

// Report takes the answer to a generation. One that nobody waits for any more
// is dropped.
func (s *Source) Report(_ context.Context, r *pb.ReportRequest) (*pb.ReportResponse, error) {
	s.mu.Lock()
	f := s.streams[r.GetStream()]
	s.mu.Unlock()
	if f == nil || f.loop.cfg.Provider != r.GetProvider() {
		return nil, transfer.ToWire(fmt.Errorf("%w: provider %q does not follow by this stream: call Follow, and report with the stream that comes with a Begin", dataplane.ErrInvalid, r.GetProvider()))
	}
	if h := r.GetHealth(); h != nil {
		f.loop.standing.health(transfer.DecodeHealth(h))
	}
	if r.GetResult() != nil {
		select {
		case f.reports <- r:
		default:
		}
	}
	return &pb.ReportResponse{}, nil
}

// enter finds the loop for a stream: one that knows what the provider has, as it
// served it before, else a new one.
func (s *Source) enter(name string, p *pull) (*Loop, error) {
	if name == "" || len(name) > 32 {
		return nil, fmt.Errorf("%w: Follow without the provider's name in info", dataplane.ErrInvalid)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.streams) >= maxFollowers {
		return nil, fmt.Errorf("%w: %d providers follow already", dataplane.ErrLimit, maxFollowers)
	}
	if p.open && s.open >= maxOpenFollowers {
		return nil, fmt.Errorf("%w: %d providers follow over TCP already: follow by the agent's socket", dataplane.ErrLimit, maxOpenFollowers)
	}
	loop := s.unpark(name, p.was)
	if loop == nil {
		cfg := s.cfg
		cfg.Provider = name
		loop = New(cfg)
	}
	s.streams[p.name] = &follower{loop: loop, reports: p.reports}
	if p.open {
		s.open++
	}
	return loop, nil
}

// isOpen reports whether a call did not come by a Unix socket.
func isOpen(ctx context.Context) bool {
	from, ok := grpcpeer.FromContext(ctx)
	return !ok || from.Addr.Network() != "unix"
}

func (s *Source) unpark(name string, was dataplane.State) *Loop {
	for i, l := range s.parked {
		if l.cfg.Provider == name && (l.has.is(was) || l.tried.is(was)) {
			s.parked = slices.Delete(s.parked, i, i+1)
			return l
		}
	}
	return nil
}

// leave keeps the loop for the next stream of the provider, unless something is
// still being sent from it.
func (s *Source) leave(loop *Loop, p *pull) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.streams, p.name)
	if p.open {
		s.open--
	}
	if p.stuck || loop.has == nil && loop.tried == nil {
		return
	}
	if len(s.parked) == maxFollowers {
		s.parked = slices.Delete(s.parked, 0, 1)
	}
	s.parked = append(s.parked, loop)
}

// pull sends generations down one stream.
type pull struct {
	stream  grpc.ServerStreamingServer[pb.FollowResponse]
	was     dataplane.State
	name    string
	asked   bool
	open    bool // it came by no Unix socket
	stuck   bool // a send did not end in time, and goes on until the stream has ended
	reports chan *pb.ReportRequest
}

var _ peer = (*pull)(nil)

// state is what the request said. It is of use once.
func (p *pull) state(context.Context) (dataplane.State, error) {
	if p.asked {
		return dataplane.State{}, errStreamEnded
	}
	p.asked = true
	return p.was, nil
}

func (p *pull) reconcile(ctx context.Context, c call) (*pb.ReconcileResponse, error) {
	last := p.late(c.begin.GetGeneration())
	if err := p.send(ctx, c); err != nil {
		return nil, fmt.Errorf("%w: %w", errStreamEnded, err)
	}
	if c.kind == unchanged { // what is to be said of it was said before
		return last, nil
	}
	for {
		select {
		case r := <-p.reports:
			if r.GetResult().GetGeneration() == c.begin.GetGeneration() {
				return r.GetResult(), nil
			}
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: no report of generation %d: %w", errStreamEnded, c.begin.GetGeneration(), ctx.Err())
		}
	}
}

// send sends one generation, or gives up at the end of ctx: a follower that does
// not read blocks a stream for ever, and only the end of the stream, which the
// caller sees to, unblocks it.
func (p *pull) send(ctx context.Context, c call) error {
	sent := make(chan error, 1)
	go func() { sent <- p.write(ctx, c) }()
	select {
	case err := <-sent:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-sent: // it was about to end
		return err
	default:
		p.stuck = true
		return fmt.Errorf("the follower takes nothing: %w", ctx.Err())
	}
}

func (p *pull) write(ctx context.Context, c call) error {
	err := p.stream.Send(&pb.FollowResponse{Step: &pb.FollowResponse_Begin{Begin: c.begin}, Stream: p.name})
	if err != nil {
		return err
	}
	for change := range c.changes {
		if err = ctx.Err(); err == nil {
			err = p.stream.Send(&pb.FollowResponse{Step: &pb.FollowResponse_Change{Change: change}})
		}
		if err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return p.stream.Send(&pb.FollowResponse{Step: &pb.FollowResponse_Commit{Commit: &pb.Commit{}}})
}

// late takes the reports that nobody waited for, and returns the last of them
// that is about a generation.
func (p *pull) late(generation uint64) (last *pb.ReconcileResponse) {
	for {
		select {
		case r := <-p.reports:
			if r.GetResult().GetGeneration() == generation {
				last = r.GetResult()
			}
		default:
			return last
		}
	}
}

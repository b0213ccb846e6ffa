package reconcile

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fairlead/fairlead/dataplane"
	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
	"github.com/fairlead/fairlead/dataplane/transfer"
)

// maxFollowers bounds the names of providers that a Source keeps loops for.
const maxFollowers = 64

// errStreamEnded ends a loop whose follower has to open a new stream, since
// only that says what it has.
var errStreamEnded = errors.New("reconcile: the stream to the follower is of no more use")

// Source serves the view to providers that run by themselves. There is one loop
// for each name; the newest stream of a name takes the place of the one before.
type Source struct {
	pb.UnimplementedSnapshotSourceServer
	cfg Config

	mu    sync.Mutex
	loops map[string]*follower
}

var _ pb.SnapshotSourceServer = (*Source)(nil)

// follower is one provider that pulls.
type follower struct {
	loop    *Loop
	current *pull // nil: no stream
	reports chan *pb.ReportRequest
}

// NewSource returns a source; cfg.Provider is not used.
func NewSource(cfg Config) *Source {
	if cfg.Metrics == nil {
		cfg.Metrics = NewMetrics()
	}
	return &Source{cfg: cfg, loops: make(map[string]*follower)}
}

// Followers returns how the providers fare that follow or did.
func (s *Source) Followers() []Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Status
	for _, f := range s.loops {
		out = append(out, f.loop.Status())
	}
	return out
}

// Follow streams generations until the call ends. What the request says of the
// provider's state decides how it begins.
func (s *Source) Follow(r *pb.FollowRequest, stream grpc.ServerStreamingServer[pb.FollowResponse]) error {
	ctx, cancel := context.WithCancelCause(stream.Context())
	defer cancel(nil)
	p := &pull{stream: stream, was: transfer.DecodeState(r.GetState()), cancel: cancel}
	f, err := s.enter(r.GetInfo().GetName(), p)
	if err != nil {
		return transfer.ToWire(err)
	}
	defer s.leave(f, p)
	select {
	case <-f.loop.turn:
		defer func() { f.loop.turn <- struct{}{} }()
	case <-ctx.Done():
		return p.over(ctx, nil)
	}
	p.reports = f.reports
	return p.over(ctx, f.loop.run(ctx, p, nil))
}

// Report takes the answer to a generation. One that nobody waits for any more
// is dropped.
func (s *Source) Report(_ context.Context, r *pb.ReportRequest) (*pb.ReportResponse, error) {
	s.mu.Lock()
	f := s.loops[r.GetProvider()]
	s.mu.Unlock()
	if f == nil {
		return nil, transfer.ToWire(fmt.Errorf("%w: provider %q does not follow: call Follow first", dataplane.ErrInvalid, r.GetProvider()))
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

func (s *Source) enter(name string, p *pull) (*follower, error) {
	if name == "" || len(name) > 32 {
		return nil, fmt.Errorf("%w: Follow without the provider's name in info", dataplane.ErrInvalid)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.loops[name]
	if f == nil {
		if len(s.loops) >= maxFollowers {
			s.forget()
		}
		if len(s.loops) >= maxFollowers {
			return nil, fmt.Errorf("%w: %d providers follow already", dataplane.ErrLimit, maxFollowers)
		}
		cfg := s.cfg
		cfg.Provider = name
		f = &follower{loop: New(cfg), reports: make(chan *pb.ReportRequest, 8)}
		s.loops[name] = f
	}
	if f.current != nil {
		f.current.cancel(errReplaced)
	}
	f.current = p
	return f, nil
}

// forget drops the loops of providers that follow no more, so that names that
// came and went do not use up the bound. The caller holds mu.
func (s *Source) forget() {
	for name, f := range s.loops {
		if f.current == nil {
			delete(s.loops, name)
		}
	}
}

func (s *Source) leave(f *follower, p *pull) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.current == p {
		f.current = nil
	}
}

var errReplaced = errors.New("reconcile: another stream of this provider's name took over")

// pull sends generations down one stream.
type pull struct {
	stream  grpc.ServerStreamingServer[pb.FollowResponse]
	was     dataplane.State
	asked   bool
	cancel  context.CancelCauseFunc
	reports <-chan *pb.ReportRequest
}

var _ peer = (*pull)(nil)

// over is the status with which a stream ends.
func (p *pull) over(ctx context.Context, err error) error {
	switch {
	case errors.Is(context.Cause(ctx), errReplaced):
		return status.Error(codes.Aborted, errReplaced.Error())
	case err != nil:
		return status.Error(codes.Aborted, err.Error()+": follow anew")
	}
	return transfer.ToWire(ctx.Err())
}

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
	err := p.stream.Send(&pb.FollowResponse{Step: &pb.FollowResponse_Begin{Begin: c.begin}})
	if err == nil {
		for change := range c.changes {
			if err = p.stream.Send(&pb.FollowResponse{Step: &pb.FollowResponse_Change{Change: change}}); err != nil {
				break
			}
		}
	}
	if err == nil {
		err = p.stream.Send(&pb.FollowResponse{Step: &pb.FollowResponse_Commit{Commit: &pb.Commit{}}})
	}
	if err != nil {
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

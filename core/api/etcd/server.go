package etcd

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fairlead/fairlead/core/raft"
	"github.com/fairlead/fairlead/core/store"
)

// Store is what is served: a server of the group, or a way to one.
type Store interface {
	Propose(context.Context, store.Command) (store.Result, error)
	Read(context.Context) (*store.View, error)
	View() *store.View
	Renew(context.Context, store.Lease) (time.Duration, bool, error)
	Left(context.Context, store.Lease) (time.Duration, bool, error)
	Transfer(ctx context.Context, to uint64) error
	// Header is called for each answer: it costs next to nothing.
	Header() Header
	Status() Status
}

// Header is what every answer tells of the server that gives it.
type Header struct {
	ClusterID, MemberID uint64
	Term, Leader        uint64 // leader 0: none
}

// Status is what a server says of itself and the group.
type Status struct {
	ClusterID, MemberID uint64
	Term, Leader        uint64 // leader 0: none
	Index               uint64 // last entry of the log that is known to be committed
	Members             []Member
}

// Member is one server.
type Member struct {
	ID         uint64
	Name       string
	PeerURLs   []string
	ClientURLs []string
	Learner    bool
}

// Config is what a Server is made of.
type Config struct {
	Store Store
	// MinLease is the shortest time of a lease: an election has to fit into it.
	// Default 2 s.
	MinLease time.Duration
	Log      *slog.Logger
}

// Limits of etcd.
const (
	maxRequestBytes = 3 << 19 // 1.5 MiB
	entryBytes      = 19      // what etcd's log has around a large request, at most
	// MaxReceiveBytes is the receive limit for a gRPC server: the largest request,
	// and what is around it.
	MaxReceiveBytes = maxRequestBytes + 512<<10
	// maxFragmentsBytes is about what a client has to hold of one answer in fragments.
	maxFragmentsBytes = 16 << 20
	requestTimeout    = 7 * time.Second // if the client names none
	catchUpTime       = time.Second     // for a read that need not be of the newest state
	progressEvery     = 10 * time.Minute
)

// Server serves a store, by any number of faces.
type Server struct {
	cfg Config

	mu      sync.Mutex
	changed chan struct{} // closed when there is a newer view
	lostAt  time.Time     // since when there is none
	stop    chan struct{}
	once    sync.Once
}

// New returns a server of a store.
func New(cfg Config) *Server {
	if cfg.MinLease <= 0 {
		cfg.MinLease = 2 * time.Second
	}
	return &Server{cfg: cfg, changed: make(chan struct{}), stop: make(chan struct{})}
}

// Applied says that there is a newer view, or that the leader is another one. It
// does not block.
func (s *Server) Applied() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.changed)
	s.changed = make(chan struct{})
}

// Stop ends all streams that would go on. Calls are left to end by themselves.
func (s *Server) Stop() { s.once.Do(func() { close(s.stop) }) }

func (s *Server) newer() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

// bounded gives a call that has no deadline etcd's own.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, has := ctx.Deadline(); has {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, requestTimeout)
}

func (s *Server) header(revision int64) *pb.ResponseHeader {
	h := s.cfg.Store.Header()
	return &pb.ResponseHeader{ClusterId: h.ClusterID, MemberId: h.MemberID, Revision: revision, RaftTerm: h.Term}
}

// propose has a command carried out.
func (s *Server) propose(ctx context.Context, c store.Command) (store.Result, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	r, err := s.cfg.Store.Propose(ctx, c)
	if err == nil {
		err = r.Err
	}
	return r, wireError(err)
}

// view returns the state to read from.
func (s *Server) view(ctx context.Context, serializable bool) (*store.View, error) {
	if serializable {
		return s.cfg.Store.View(), nil
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	v, err := s.cfg.Store.Read(ctx)
	return v, wireError(err)
}

// wireError says an error as etcd does. ErrGRPCNoLeader is said only if surely
// nothing was done: see NotDone.
func wireError(err error) error {
	if err == nil {
		return nil
	}
	for _, e := range []struct{ ours, theirs error }{
		{store.ErrCompacted, rpctypes.ErrGRPCCompacted},
		{store.ErrFutureRevision, rpctypes.ErrGRPCFutureRev},
		{store.ErrEmptyKey, rpctypes.ErrGRPCEmptyKey},
		{store.ErrKeyNotFound, rpctypes.ErrGRPCKeyNotFound},
		{store.ErrValueProvided, rpctypes.ErrGRPCValueProvided},
		{store.ErrLeaseProvided, rpctypes.ErrGRPCLeaseProvided},
		{store.ErrDuplicateKey, rpctypes.ErrGRPCDuplicateKey},
		{store.ErrTooManyOps, rpctypes.ErrGRPCTooManyOps},
		{store.ErrTooLarge, rpctypes.ErrGRPCRequestTooLarge},
		{store.ErrLeaseNotFound, rpctypes.ErrGRPCLeaseNotFound},
		{store.ErrLeaseExists, rpctypes.ErrGRPCLeaseExist},
		{store.ErrLeaseTTL, rpctypes.ErrGRPCLeaseTTLTooLarge},
		{store.ErrNoSpace, rpctypes.ErrGRPCNoSpace},
		{raft.ErrNotLeader, rpctypes.ErrGRPCNoLeader},
		{raft.ErrStopped, rpctypes.ErrGRPCStopped},
		{context.Canceled, rpctypes.ErrGRPCCanceled},
		{context.DeadlineExceeded, rpctypes.ErrGRPCTimeout},
		// Without any of the above: it was sent to a leader that is none any more, or
		// refuses now what it may have done before.
		{raft.ErrUnknown, rpctypes.ErrGRPCTimeoutDueToConnectionLost},
	} {
		if errors.Is(err, e.ours) {
			return e.theirs
		}
	}
	if _, is := status.FromError(err); is {
		return err
	}
	if errors.Is(err, store.ErrInvalid) {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	return status.Error(codes.Unknown, err.Error())
}

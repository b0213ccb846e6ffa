package etcd

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
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
	Status() Status
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
	// Keyspace says which keyspace a call is about, or refuses it. Nil: the user's.
	Keyspace func(context.Context) (store.Keyspace, error)
	// MinLease is the shortest time of a lease: an election has to fit into it.
	// Default 2 s.
	MinLease time.Duration
	Log      *slog.Logger
}

// Limits of etcd.
const (
	maxRequestBytes = 3 << 19 // 1.5 MiB
	// MaxReceiveBytes is the receive limit for a gRPC server: the largest request,
	// and what is around it.
	MaxReceiveBytes = maxRequestBytes + 512<<10
	requestTimeout  = 7 * time.Second // if the client names none
	progressEvery   = 10 * time.Minute
)

// Server implements the services.
type Server struct {
	pb.UnimplementedKVServer
	pb.UnimplementedWatchServer
	pb.UnimplementedLeaseServer
	pb.UnimplementedMaintenanceServer
	pb.UnimplementedClusterServer

	cfg Config

	mu      sync.Mutex
	changed chan struct{} // closed when there is a newer view
	lostAt  time.Time     // since when there is none
	stop    chan struct{}
	once    sync.Once
}

var (
	_ pb.KVServer          = (*Server)(nil)
	_ pb.WatchServer       = (*Server)(nil)
	_ pb.LeaseServer       = (*Server)(nil)
	_ pb.MaintenanceServer = (*Server)(nil)
	_ pb.ClusterServer     = (*Server)(nil)
)

// New returns a server of a store.
func New(cfg Config) *Server {
	if cfg.MinLease <= 0 {
		cfg.MinLease = 2 * time.Second
	}
	if cfg.Keyspace == nil {
		cfg.Keyspace = func(context.Context) (store.Keyspace, error) { return store.User, nil }
	}
	return &Server{cfg: cfg, changed: make(chan struct{}), stop: make(chan struct{})}
}

// Register adds the services to a gRPC server.
func (s *Server) Register(g grpc.ServiceRegistrar) {
	pb.RegisterKVServer(g, s)
	pb.RegisterWatchServer(g, s)
	pb.RegisterLeaseServer(g, s)
	pb.RegisterMaintenanceServer(g, s)
	pb.RegisterClusterServer(g, s)
}

// Applied says that there is a newer view, or that the leader is another one. It
// does not block.
func (s *Server) Applied() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.changed)
	s.changed = make(chan struct{})
}

// Stop ends all watches.
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
	st := s.cfg.Store.Status()
	return &pb.ResponseHeader{ClusterId: st.ClusterID, MemberId: st.MemberID, Revision: revision, RaftTerm: st.Term}
}

// propose has a command carried out.
func (s *Server) propose(ctx context.Context, c store.Command) (store.Result, error) {
	if c.Size() > maxRequestBytes {
		return store.Result{}, rpctypes.ErrGRPCRequestTooLarge
	}
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

// wireError says an error as etcd does.
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

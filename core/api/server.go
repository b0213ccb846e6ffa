package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/net/netutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/fairlead/fairlead/core/api/fairleadv1"
	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
)

// Bounds on what clients can make the agent hold. A request of this service is
// a few bytes; the answers are what is large.
const (
	maxRequestBytes   = 1 << 20 // a provider's report on all its services
	maxConnections    = 128
	maxStreamsPerConn = 64
	handshakeTimeout  = 5 * time.Second
)

// Server serves fairlead.v1 on any number of listeners.
type Server struct {
	service *service
	stop    context.CancelFunc
	log     *slog.Logger
	serving sync.WaitGroup

	mu      sync.Mutex
	servers []*grpc.Server
	stopped bool
}

// Access says what may be called on a listener.
type Access uint8

// The kinds of access.
const (
	AccessAll  Access = iota // every method
	AccessRead               // Status, Members, Events, Services, Endpoints, and what providers follow
)

// NewServer returns a server that listens nowhere yet.
func NewServer(backend Backend, log *slog.Logger) *Server {
	ctx, cancel := context.WithCancel(context.Background())
	return &Server{service: &service{backend: backend, stopping: ctx}, stop: cancel, log: log}
}

// Serve answers on l in the background until Stop, which also closes l.
func (s *Server) Serve(l net.Listener, access Access) {
	server := grpc.NewServer(
		grpc.MaxRecvMsgSize(maxRequestBytes),
		grpc.MaxConcurrentStreams(maxStreamsPerConn),
		grpc.ConnectionTimeout(handshakeTimeout),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: time.Minute, Timeout: 20 * time.Second}),
		grpc.UnaryInterceptor(access.unary),
		grpc.StreamInterceptor(access.stream),
	)
	fairleadv1.RegisterAgentServer(server, s.service)
	if s.service.backend.Source != nil {
		pb.RegisterSnapshotSourceServer(server, s.service.backend.Source)
	}
	if s.service.backend.Plugins != nil {
		fairleadv1.RegisterPluginsServer(server, s.service.backend.Plugins)
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		_ = l.Close()
		return
	}
	s.servers = append(s.servers, server)
	s.serving.Go(func() {
		if err := server.Serve(netutil.LimitListener(l, maxConnections)); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			s.log.Error("the API stopped answering", "address", l.Addr().String(), "error", err)
		}
	})
}

// Stop ends every stream, lets calls under way finish until ctx ends, then
// cuts them off. It returns when nothing of the server runs any more.
func (s *Server) Stop(ctx context.Context) {
	s.stop()
	s.mu.Lock()
	s.stopped = true
	servers := s.servers
	s.servers = nil
	s.mu.Unlock()

	var stopping sync.WaitGroup
	for _, server := range servers {
		stopping.Go(func() {
			cutOff := context.AfterFunc(ctx, server.Stop)
			server.GracefulStop()
			cutOff()
		})
	}
	stopping.Wait()
	s.serving.Wait()
}

// allow refuses what an access does not include. Reading is listed, so that a
// method added later is refused until somebody decides.
func (a Access) allow(method string) error {
	if a == AccessAll {
		return nil
	}
	switch method {
	case fairleadv1.Agent_Status_FullMethodName, fairleadv1.Agent_Members_FullMethodName, fairleadv1.Agent_Events_FullMethodName,
		fairleadv1.Agent_Services_FullMethodName, fairleadv1.Agent_Endpoints_FullMethodName,
		pb.SnapshotSource_Follow_FullMethodName, pb.SnapshotSource_Report_FullMethodName:
		return nil
	}
	return status.Errorf(codes.PermissionDenied, "%s is answered on the agent's Unix socket only", method)
}

func (a Access) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if err := a.allow(info.FullMethod); err != nil {
		return nil, err
	}
	return next(ctx, req)
}

func (a Access) stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	if err := a.allow(info.FullMethod); err != nil {
		return err
	}
	return next(srv, stream)
}

// ListenTCP opens address, whose configuration key is named in errors.
func ListenTCP(key, address string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("api: %s: %w: set %s to an address that this agent may use, or to off", key, unwrapOp(err), key)
	}
	return l, nil
}

// unwrapOp drops the parts of a network error that repeat the address.
func unwrapOp(err error) error {
	var op *net.OpError
	if !errors.As(err, &op) {
		return err
	}
	var sys *os.SyscallError
	if errors.As(op.Err, &sys) {
		return fmt.Errorf("%s: %w", op.Addr, sys.Err)
	}
	return err
}

package api

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/net/netutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"

	"github.com/fairlead/fairlead/core/api/etcd"
	"github.com/fairlead/fairlead/core/api/fairleadv1"
	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
)

// Bounds on what clients can make the agent hold. Etcd has none on connections and
// streams: these are beyond what its clients come to.
const (
	maxConnections    = 1 << 14
	maxStreamsPerConn = 1 << 16
	handshakeTimeout  = 5 * time.Second
	// windowBytes is what may be on the way on one stream that nobody read yet.
	windowBytes = 1 << 20
	// streamWorkers wait for calls with a stack that has grown already.
	streamWorkers = 64
	// pingEvery is how often a client may ask whether the agent is still there: as
	// of etcd.
	pingEvery = 5 * time.Second
)

// Bounds on the services that are not etcd's. A request of them is a few bytes;
// the answers are what is large.
const (
	maxRequestBytes = 1 << 20 // a provider's report on all its services
	maxOwnStreams   = 1 << 13 // at a time, on one listener
)

// Server serves fairlead.v1 and the services of etcd v3 on any number of listeners.
type Server struct {
	service *service
	store   *etcd.Front
	stop    context.CancelFunc
	log     *slog.Logger
	serving sync.WaitGroup

	mu      sync.Mutex
	servers []listening
	stopped bool
}

// listening is what answers on one listener.
type listening struct {
	grpc *grpc.Server
	web  *web
}

// Access says what may be called on a listener.
type Access uint8

// The kinds of access.
const (
	// AccessAll is every method, and both keyspaces of the store.
	AccessAll Access = iota
	// AccessRead is Status, Members, Events, Services, Endpoints, Raft, what
	// providers follow, and all that etcd has, of the user's keyspace.
	AccessRead
)

// NewServer returns a server that listens nowhere yet.
func NewServer(backend Backend, log *slog.Logger) *Server {
	ctx, cancel := context.WithCancel(context.Background())
	front := backend.Store
	if front == nil {
		front = etcd.NewFront("this agent has none")
	}
	return &Server{service: &service{backend: backend, stopping: ctx}, store: front, stop: cancel, log: log}
}

// Serve answers on l in the background until Stop, which also closes l: gRPC, and
// what etcd.Front.HTTP has by HTTP/1.1.
func (s *Server) Serve(l net.Listener, access Access) {
	s.serve(netutil.LimitListener(l, maxConnections), access, insecure.NewCredentials())
}

// ServeTLS is Serve for clients that come by TLS: see TLSConfig.
func (s *Server) ServeTLS(l net.Listener, access Access, config *tls.Config) {
	g := newGate(netutil.LimitListener(l, maxConnections), s.log)
	s.serve(g, access, gateCredentials{credentials.NewTLS(config), g})
}

func (s *Server) serve(l net.Listener, access Access, creds credentials.TransportCredentials) {
	g := &guard{access: access}
	web := newWeb(l, s.store.HTTP(), s.log)
	server := grpc.NewServer(
		grpc.Creds(webCredentials{creds, web}),
		grpc.MaxRecvMsgSize(etcd.MaxReceiveBytes),
		grpc.MaxConcurrentStreams(maxStreamsPerConn),
		// Of a fixed size: to find the best one, gRPC pings whoever sends.
		grpc.InitialWindowSize(windowBytes), grpc.InitialConnWindowSize(2*windowBytes),
		grpc.NumStreamWorkers(streamWorkers),
		grpc.ConnectionTimeout(handshakeTimeout),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: time.Minute, Timeout: 20 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: pingEvery, PermitWithoutStream: true}),
		grpc.UnaryInterceptor(g.unary),
		grpc.StreamInterceptor(g.stream),
	)
	fairleadv1.RegisterAgentServer(server, s.service)
	healthpb.RegisterHealthServer(server, serving{stopping: s.service.stopping})
	if s.service.backend.Source != nil {
		pb.RegisterSnapshotSourceServer(server, s.service.backend.Source)
	}
	if s.service.backend.Plugins != nil {
		fairleadv1.RegisterPluginsServer(server, s.service.backend.Plugins)
	}
	reach := etcd.UserOnly
	if access == AccessAll {
		reach = etcd.ByMetadata
	}
	s.store.Register(server, reach)

	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		_ = l.Close()
		server.Stop()
		return
	}
	s.servers = append(s.servers, listening{server, web})
	s.serving.Go(web.serve)
	s.serving.Go(func() {
		if err := server.Serve(web); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			s.log.Error("the API stopped answering", "address", l.Addr().String(), "error", err)
		}
	})
}

// Stop ends every stream, those of the store included, wherever that is served;
// it lets calls under way finish until ctx ends, then cuts them off. It returns
// when nothing of the server runs any more.
func (s *Server) Stop(ctx context.Context) {
	s.stop()
	s.store.Stop()
	s.mu.Lock()
	s.stopped = true
	servers := s.servers
	s.servers = nil
	s.mu.Unlock()

	var stopping sync.WaitGroup
	for _, server := range servers {
		stopping.Go(func() { server.web.stop(ctx) })
		stopping.Go(func() {
			cutOff := context.AfterFunc(ctx, server.grpc.Stop)
			server.grpc.GracefulStop()
			cutOff()
		})
	}
	stopping.Wait()
	s.serving.Wait()
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

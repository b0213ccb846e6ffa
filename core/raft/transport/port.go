package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"

	"github.com/fairlead/fairlead/core/identity"
)

var errOneSided = errors.New("transport: credentials of one side are used on the other")

// Port is where agents of the cluster reach this one.
type Port struct {
	server   *grpc.Server
	listener *gate
	metrics  *portMetrics
}

// NewPort returns a port, which serves nobody yet.
func NewPort(cfg PortConfig) (*Port, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	m, err := newPortMetrics(cfg.Metrics)
	if err != nil {
		return nil, err
	}
	g := &gate{Listener: cfg.Listener, slots: make(chan struct{}, cfg.Limits.Handshakes), log: cfg.Log, metrics: m, complaints: newComplaints()}
	return &Port{listener: g, metrics: m, server: grpc.NewServer(
		grpc.Creds(serverCredentials{cfg.Keeper, cfg.Keeper.Server(), g}),
		grpc.ConnectionTimeout(ioTimeout),
		grpc.MaxRecvMsgSize(cfg.Limits.FrameBytes), grpc.MaxHeaderListSize(headerBytes), grpc.MaxConcurrentStreams(maxStreams),
		grpc.InitialWindowSize(windowBytes), grpc.InitialConnWindowSize(2*windowBytes),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 2 * ioTimeout, Timeout: ioTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: ioTimeout, PermitWithoutStream: true}),
	)}, nil
}

const (
	headerBytes = 16 << 10
	maxStreams  = 256 // of one connection
	// windowBytes is what may be on the way on one stream that nobody read yet.
	windowBytes = 2 << 20
)

// RegisterService implements grpc.ServiceRegistrar. Services are registered before
// Serve is called; they learn from PeerNode who calls.
func (p *Port) RegisterService(d *grpc.ServiceDesc, impl any) { p.server.RegisterService(d, impl) }

// Serve takes connections until Stop is called, which may be before it began; then
// it returns nil.
func (p *Port) Serve() error {
	if err := p.server.Serve(p.listener); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("transport: the agents' port: %w", err)
	}
	return nil
}

// Stop closes the listener and all connections, and returns when no call is
// carried out any more.
func (p *Port) Stop() {
	p.server.Stop()
	p.metrics.unregister()
}

// gate bounds the connections that have not shown who they are.
type gate struct {
	net.Listener
	slots      chan struct{}
	log        *slog.Logger
	metrics    *portMetrics
	complaints *complaints
}

// Accept implements net.Listener.
func (g *gate) Accept() (net.Conn, error) {
	for {
		c, err := g.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case g.slots <- struct{}{}:
			return &entering{Conn: c, leave: sync.OnceFunc(func() { <-g.slots })}, nil
		default:
		}
		_ = c.Close()
		g.refused(c, "too-many", fmt.Errorf("transport: %d other connections have not shown yet who they are", cap(g.slots)))
	}
}

func (g *gate) refused(c net.Conn, reason string, err error) {
	g.metrics.handshakes.WithLabelValues(reason).Inc()
	host, _, splitErr := net.SplitHostPort(c.RemoteAddr().String())
	if splitErr != nil {
		host = c.RemoteAddr().String()
	}
	if g.complaints.isNew(host, err.Error()) {
		g.log.Warn("a connection to the agents' port was refused", "from", host, "error", err)
	}
}

// entering is a connection that has a slot of the gate, until it showed who it is
// or was closed.
type entering struct {
	net.Conn
	leave func()
}

// Close implements net.Conn.
func (e *entering) Close() error {
	e.leave()
	return e.Conn.Close()
}

// serverCredentials are for connections from any node of the cluster.
type serverCredentials struct {
	keeper *identity.Keeper
	config *tls.Config
	gate   *gate
}

var _ credentials.TransportCredentials = serverCredentials{}

// ServerHandshake implements credentials.TransportCredentials.
func (s serverCredentials) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if e, ok := raw.(*entering); ok {
		defer e.leave()
	}
	// How long it may take is in the connection's deadline: grpc.ConnectionTimeout.
	conn, info, err := secured(context.Background(), s.keeper, tls.Server(raw, s.config))
	if err != nil {
		s.gate.refused(raw, refusal(err), identity.Explain(err))
		return nil, nil, err
	}
	s.gate.metrics.handshakes.WithLabelValues("ok").Inc()
	return conn, info, nil
}

// refusal names why a handshake failed.
func refusal(err error) string {
	switch {
	case errors.Is(err, identity.ErrStranger):
		return "stranger"
	case errors.Is(err, identity.ErrTime):
		return "time"
	case errors.Is(err, os.ErrDeadlineExceeded):
		return "timeout"
	}
	return "tls"
}

// ClientHandshake implements credentials.TransportCredentials.
func (serverCredentials) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errOneSided
}

// Info implements credentials.TransportCredentials.
func (serverCredentials) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}

// Clone implements credentials.TransportCredentials.
func (s serverCredentials) Clone() credentials.TransportCredentials { return s }

// OverrideServerName implements credentials.TransportCredentials.
func (serverCredentials) OverrideServerName(string) error { return nil }

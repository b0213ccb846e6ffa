package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"

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
	keeper   *identity.Keeper
	ledger   *ledger
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
	g := &gate{Listener: cfg.Listener, most: cfg.Limits.Handshakes, log: cfg.Log, metrics: m, complaints: newComplaints()}
	l := newLedger()
	return &Port{listener: g, metrics: m, keeper: cfg.Keeper, ledger: l, server: grpc.NewServer(
		grpc.Creds(serverCredentials{cfg.Keeper, cfg.Keeper.Server(), l, g}),
		grpc.ConnectionTimeout(ioTimeout),
		grpc.MaxRecvMsgSize(cfg.Limits.FrameBytes), grpc.MaxHeaderListSize(headerBytes), grpc.MaxConcurrentStreams(maxStreams),
		grpc.InitialWindowSize(windowBytes), grpc.InitialConnWindowSize(2*windowBytes), grpc.NumStreamWorkers(streamWorkers),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 2 * ioTimeout, Timeout: ioTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: ioTimeout, PermitWithoutStream: true}),
	)}, nil
}

const (
	headerBytes = 16 << 10
	// maxStreams is of one connection: an agent that is no server has all watches of
	// its clients on one.
	maxStreams = 1 << 14
	// streamWorkers wait for calls with a stack that has grown already.
	streamWorkers = 16
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

// Recheck closes the connections of nodes that are believed no longer. It is to be
// called after Keeper.SetSecrets. Nodes that have the new secrets by then, and had
// their Transport recheck, have none of these any more.
func (p *Port) Recheck() {
	for _, from := range p.ledger.recheck(p.keeper) {
		p.listener.refused(from, "stranger", errBelievedNoLonger)
	}
}

var errBelievedNoLonger = fmt.Errorf("%w: the secret with which this connection was made is no longer there, so it was closed", identity.ErrStranger)

// Stop closes the listener and all connections, and returns when no call is
// carried out any more.
func (p *Port) Stop() {
	p.server.Stop()
	p.metrics.unregister()
}

// serverCredentials are for connections from any node of the cluster.
type serverCredentials struct {
	keeper *identity.Keeper
	config *tls.Config
	ledger *ledger
	gate   *gate
}

var _ credentials.TransportCredentials = serverCredentials{}

// ServerHandshake implements credentials.TransportCredentials.
func (s serverCredentials) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if e, ok := raw.(*entering); ok {
		defer s.gate.leave(e)
	}
	// How long it may take is in the connection's deadline: grpc.ConnectionTimeout.
	conn, info, err := secured(context.Background(), s.keeper, s.ledger, tls.Server(raw, s.config))
	if err != nil && !errors.Is(err, net.ErrClosed) { // that one the gate closed, and said so
		s.gate.refused(raw.RemoteAddr(), refusal(err), identity.Explain(err))
	}
	if err != nil {
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

package transport

import (
	"errors"
	"fmt"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/fairlead/fairlead/core/identity"
)

// ErrNoServer says that no such server is a member of the group.
var ErrNoServer = errors.New("transport: no such server is a member of the group")

// link is a connection to one server, made anew when that server moved.
type link struct {
	t  *Transport
	to uint64

	mu            sync.Mutex
	conn          *grpc.ClientConn
	address, node string
	closed        bool
}

// open returns the connection to where the server is now. It may still have to be
// made: gRPC does that, with backoff and jitter, and again when it breaks.
func (l *link) open() (*grpc.ClientConn, error) {
	address, node, ok := l.t.cfg.Resolve(l.to)
	if !ok {
		return nil, fmt.Errorf("%w: %d", ErrNoServer, l.to)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, errStopped
	}
	if l.conn != nil && l.address == address && l.node == node {
		return l.conn, nil
	}
	conn, err := grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(clientCredentials{l.t.cfg.Keeper, node}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: firstRetry, Multiplier: 1.6, Jitter: 0.3, MaxDelay: lastRetry},
			MinConnectTimeout: ioTimeout,
		}),
		// With this gRPC also has TCP give up what is not acknowledged in time; TCP alone
		// would try for a quarter of an hour, at ever larger distances.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 2 * ioTimeout, Timeout: ioTimeout, PermitWithoutStream: true}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(l.t.cfg.Limits.FrameBytes)),
		grpc.WithMaxHeaderListSize(headerBytes), grpc.WithDisableServiceConfig(), grpc.WithNoProxy(),
	)
	if err != nil {
		return nil, fmt.Errorf("transport: the address %q of server %d: %w", address, l.to, err)
	}
	l.drop()
	l.conn, l.address, l.node = conn, address, node
	return conn, nil
}

// moved reports whether the connection leads to where the server is no longer.
func (l *link) moved() bool {
	address, node, ok := l.t.cfg.Resolve(l.to)
	l.mu.Lock()
	defer l.mu.Unlock()
	return !ok || l.address != address || l.node != node
}

// failed explains the error of a call.
func (l *link) failed(err error) error {
	if err == nil || errors.Is(err, ErrNoServer) || errors.Is(err, errStopped) {
		return err
	}
	l.mu.Lock()
	address, node := l.address, l.node
	l.mu.Unlock()
	explained := identity.Explain(err)
	if s, ok := status.FromError(err); ok && explained.Error() == err.Error() {
		return fmt.Errorf("transport: server %d (node %s at %s): %s", l.to, node, address, s.Message())
	}
	return fmt.Errorf("transport: server %d (node %s at %s): %w", l.to, node, address, explained)
}

func (l *link) drop() {
	if l.conn != nil {
		_ = l.conn.Close() // it is closed in any case
		l.conn = nil
	}
}

func (l *link) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.drop()
}

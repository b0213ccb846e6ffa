package transport

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/fairlead/fairlead/core/identity"
)

// ErrNoServer says that no such server is a member of the group.
var ErrNoServer = errors.New("transport: no such server is a member of the group")

// link is a connection to one server, made anew when that server moved, or when
// this node's secrets changed.
type link struct {
	t      *Transport
	to     uint64
	ledger *ledger // of its connections; nil: none

	mu      sync.Mutex
	current *dialed // nil: none
	retired []*dialed
	closed  bool
}

// dialed is a connection in use. The link's mutex guards what changes.
type dialed struct {
	*grpc.ClientConn
	address, node string
	generation    uint64 // of the keeper

	uses  int
	late  *time.Timer // of a retired one: when it is closed although it is in use
	close func()
}

// open returns the connection to where the server is now, to be released after
// use. It may still have to be made: gRPC does that, with backoff and jitter, and
// again when it breaks.
func (l *link) open() (*dialed, error) {
	address, node, ok := l.t.cfg.Resolve(l.to)
	if !ok {
		return nil, fmt.Errorf("%w: %d", ErrNoServer, l.to)
	}
	generation := l.t.cfg.Keeper.Generation()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, errStopped
	}
	if d := l.current; d != nil && d.address == address && d.node == node && d.generation == generation {
		d.uses++
		return d, nil
	}
	conn, err := grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(clientCredentials{l.t.cfg.Keeper, node, l.ledger}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: firstRetry, Multiplier: 1.6, Jitter: 0.3, MaxDelay: lastRetry},
			MinConnectTimeout: ioTimeout,
		}),
		// With this gRPC also has TCP give up what is not acknowledged in time; TCP alone
		// would try for a quarter of an hour, at ever larger distances.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 2 * ioTimeout, Timeout: ioTimeout, PermitWithoutStream: true}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(l.t.cfg.Limits.FrameBytes)),
		// Of a fixed size: to find the best one, gRPC pings whoever answers.
		grpc.WithInitialWindowSize(windowBytes), grpc.WithInitialConnWindowSize(2*windowBytes),
		grpc.WithMaxHeaderListSize(headerBytes), grpc.WithDisableServiceConfig(), grpc.WithNoProxy(), grpc.WithContextDialer(l.dial),
	)
	if err != nil {
		return nil, fmt.Errorf("transport: the address %q of server %d: %w", address, l.to, err)
	}
	l.retire()
	l.current = &dialed{
		ClientConn: conn, address: address, node: node, generation: generation, uses: 1,
		close: sync.OnceFunc(func() { _ = conn.Close() }), // it is closed in any case
	}
	return l.current, nil
}

// release ends a use of a connection.
func (l *link) release(d *dialed) {
	l.mu.Lock()
	defer l.mu.Unlock()
	d.uses--
	if d != l.current && d.uses == 0 {
		l.end(d)
	}
}

// retire has nobody begin to use the connection any more. It is closed when the
// last use of it ends, or when that takes longer than a call may. The mutex is held.
func (l *link) retire() {
	d := l.current
	if d == nil {
		return
	}
	l.current = nil
	if d.uses == 0 {
		d.close()
		return
	}
	d.late = time.AfterFunc(ioTimeout, d.close)
	l.retired = append(l.retired, d)
}

// end closes a retired connection. The mutex is held.
func (l *link) end(d *dialed) {
	d.late.Stop()
	d.close()
	l.retired = slices.DeleteFunc(l.retired, func(r *dialed) bool { return r == d })
}

// renew retires the connection if it is of other secrets than this node has now.
func (l *link) renew() {
	generation := l.t.cfg.Keeper.Generation()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.current != nil && l.current.generation != generation {
		l.retire()
	}
}

// moved reports whether a connection leads to where the server is no longer, or was
// made with other secrets than this node has now.
func (l *link) moved(d *dialed) bool {
	address, node, ok := l.t.cfg.Resolve(l.to)
	return !ok || d.address != address || d.node != node || d.generation != l.t.cfg.Keeper.Generation()
}

// failed explains the error of a call.
func (l *link) failed(err error) error {
	if err == nil || errors.Is(err, ErrNoServer) || errors.Is(err, errStopped) {
		return err
	}
	address, node, _ := l.t.cfg.Resolve(l.to)
	explained := identity.Explain(err)
	if s, ok := status.FromError(err); ok && explained.Error() == err.Error() {
		return fmt.Errorf("transport: server %d (node %s at %s): %s", l.to, node, address, s.Message())
	}
	return fmt.Errorf("transport: server %d (node %s at %s): %w", l.to, node, address, explained)
}

func (l *link) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.retire()
	for len(l.retired) > 0 {
		l.end(l.retired[0])
	}
}

package pluginhost

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/fairlead/fairlead/dataplane/sdk/handshake"
)

// hearing is a connection that notes when something comes from the other end.
type hearing struct {
	net.Conn
	heard *atomic.Bool
}

func (h hearing) Read(b []byte) (int, error) {
	n, err := h.Conn.Read(b)
	if n > 0 && !h.heard.Load() {
		h.heard.Store(true)
	}
	return n, err
}

// dial returns a connection to a provider's socket, not yet made, that sets
// heard with all that comes from there. Whoever answers there has to be root or
// our own user. No proxy is asked, whatever the environment says, and the
// connection never idles away.
func dial(name, socket string, heard *atomic.Bool) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+name,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			conn, err := dialPeer(ctx, socket)
			if err != nil {
				return nil, err
			}
			return hearing{conn, heard}, nil
		}),
		grpc.WithNoProxy(),
		grpc.WithIdleTimeout(0),
		grpc.WithDisableServiceConfig(),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: time.Second,
		}),
		grpc.WithDefaultCallOptions(
			grpc.MaxCallRecvMsgSize(handshake.MaxReceiveBytes), grpc.MaxCallSendMsgSize(handshake.MaxReceiveBytes)),
	)
}

func dialPeer(ctx context.Context, socket string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	peer, err := peerOf(conn)
	if err == nil && peer.Uid != 0 && int(peer.Uid) != os.Geteuid() {
		err = fmt.Errorf("socket %s is served by user %d: want root or user %d; end that process", socket, peer.Uid, os.Geteuid())
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

// peerOf returns who listens on the other end of a unix socket.
func peerOf(conn net.Conn) (*unix.Ucred, error) {
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return nil, err
	}
	var peer *unix.Ucred
	err2 := raw.Control(func(fd uintptr) { peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err2 != nil {
		return nil, err2
	}
	return peer, err
}

// servedBy returns the pid of the process that listens on a socket.
func servedBy(ctx context.Context, socket string) (int, error) {
	conn, err := dialPeer(ctx, socket)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	peer, err := peerOf(conn)
	if err != nil {
		return 0, err
	}
	return int(peer.Pid), nil
}

// vacant reports whether surely nobody listens on a socket.
func vacant(ctx context.Context, socket string) bool {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	if err == nil {
		_ = conn.Close()
	}
	return errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist)
}

// connected makes the connection, or says why it cannot be made by the end of
// ctx. Whoever listened there may have ended since that was found out: then it does
// not wait for somebody else (errEnded).
func connected(ctx context.Context, conn *grpc.ClientConn, socket string) error {
	for {
		state := conn.GetState()
		switch {
		case state == connectivity.Ready:
			return nil
		case state == connectivity.Idle: // at first, and after a connection that broke at once
			conn.Connect()
		case state == connectivity.TransientFailure && vacant(ctx, socket):
			return errEnded
		}
		if !conn.WaitForStateChange(ctx, state) {
			return fmt.Errorf("not connected (%v): %w", state, ctx.Err())
		}
	}
}

// broken returns when an established connection breaks or ctx ends.
func broken(ctx context.Context, conn *grpc.ClientConn) {
	for {
		state := conn.GetState()
		if state != connectivity.Ready || !conn.WaitForStateChange(ctx, state) {
			return
		}
	}
}

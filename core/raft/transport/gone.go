package transport

import (
	"context"
	"errors"
	"net"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"

	"github.com/fairlead/fairlead/core/raft"
)

// goneWithin is how soon after the end of a connection the next one has to be
// refused, if that is to say that the process of the server is gone. When a process
// ends, its host refuses what comes to its port at once; a connection that was cut on
// the way, or by a server that lives, can be made again, or nobody answers.
const goneWithin = 2 * time.Second

// broke is told that the other side ended a stream. It has the connection made again
// now, and not when there is something to send: a follower is silent when its leader
// is.
func (p *peer) broke(conn *grpc.ClientConn) {
	p.brokeAt.Store(time.Now().UnixNano())
	ctx, cancel := context.WithTimeout(p.ctx, goneWithin)
	defer cancel()
	if conn.WaitForStateChange(ctx, connectivity.Ready) { // else only the stream ended
		conn.Connect()
	}
}

// dial makes a connection, and tells the handler if it is evidence that the process
// of the server is gone.
func (l *link) dial(ctx context.Context, address string) (net.Conn, error) {
	// Whether a peer lives is found out by gRPC's keepalive, not by TCP's.
	conn, err := (&net.Dialer{KeepAlive: -1}).DialContext(ctx, "tcp", address)
	if errors.Is(err, syscall.ECONNREFUSED) {
		l.t.refused(l.to)
	}
	return conn, err
}

func (t *Transport) refused(id uint64) {
	t.mu.Lock()
	p := t.peers[id]
	t.mu.Unlock()
	if p == nil {
		return
	}
	if at := p.brokeAt.Swap(0); at != 0 && time.Since(time.Unix(0, at)) < goneWithin {
		t.tell(func(h raft.Handler) { h.Gone(id) })
	}
}

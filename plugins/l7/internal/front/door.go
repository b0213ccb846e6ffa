package front

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// acceptPause is how long a door waits when the system has no descriptor
	// or memory for another connection.
	acceptPause = 50 * time.Millisecond
	// lastCalls is how long a door that closes takes what was on its way.
	lastCalls = 20 * time.Millisecond
)

// door is one listener. Its goroutine accepts until the listener is closed.
type door struct {
	wanted string // as it was asked for; the key of a door
	net.Listener
	crowd   crowd // who came in by it
	closing atomic.Bool
	done    chan struct{}          // closed when nothing is accepted any more
	trouble atomic.Pointer[string] // why it does not accept; nil: it does
}

// open listens at an address. The error says what to do about it.
func open(key, address string) (*door, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, explain(key, address, err)
	}
	return &door{wanted: address, Listener: l, crowd: newCrowd(), done: make(chan struct{})}, nil
}

// explain adds the remedy to an error of a listener; key is the setting.
func explain(key, address string, err error) error {
	remedy := "choose another address with " + key
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		_, port, _ := net.SplitHostPort(address)
		return &Taken{Address: address, err: fmt.Errorf("%s %s: the port is in use: end what listens there (ss -ltnp 'sport = :%s' names it), or %s", key, address, port, remedy)}
	case errors.Is(err, syscall.EACCES):
		remedy = "give the process CAP_NET_BIND_SERVICE for a port below 1024, or " + remedy
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		remedy = "this host has no such address: " + remedy
	}
	reason := err
	var op *net.OpError
	if errors.As(err, &op) {
		reason = op.Err
	}
	return fmt.Errorf("%s %s: %w: %s", key, address, reason, remedy)
}

// Taken is the error of a port that somebody else has.
type Taken struct {
	Address string
	err     error
}

// Error says what to do.
func (t *Taken) Error() string { return t.err.Error() }

// serve hands each connection on, until the door closes. If the system has no
// descriptor for one, relieve is called, and some that wait for a request go.
func (d *door) serve(hand func(*door, *net.TCPConn), relieve func()) {
	defer close(d.done)
	for {
		c, err := d.Accept()
		switch {
		case err == nil:
			d.trouble.Store(nil)
			hand(d, c.(*net.TCPConn))
		case d.closing.Load() || errors.Is(err, net.ErrClosed):
			_ = d.Listener.Close()
			return
		default:
			reason := strings.TrimPrefix(err.Error(), "accept ")
			d.trouble.Store(&reason)
			relieve()
			d.crowd.reclaim(time.Now())
			time.Sleep(acceptPause)
		}
	}
}

// close takes the connections that were on their way, and listens no longer.
func (d *door) close() {
	d.closing.Store(true)
	if t, ok := d.Listener.(*net.TCPListener); !ok || t.SetDeadline(time.Now().Add(lastCalls)) != nil {
		_ = d.Listener.Close()
	}
	<-d.done
}

// discard closes a door that never served.
func (d *door) discard() { _ = d.Listener.Close() }

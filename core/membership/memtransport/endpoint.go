package memtransport

import (
	"context"
	"net"
	"net/netip"
	"sync"
)

// datagram is one packet that arrived.
type datagram struct {
	from netip.AddrPort
	data []byte
}

// Endpoint is one address on a Network; it is a membership.Transport.
type Endpoint struct {
	net     *Network
	addr    netip.AddrPort
	packets chan datagram
	streams chan net.Conn
	once    sync.Once
	closed  chan struct{}
}

// LocalAddr is the address given to Network.Listen.
func (e *Endpoint) LocalAddr() netip.AddrPort { return e.addr }

// ReadPacket waits for a datagram.
func (e *Endpoint) ReadPacket(buf []byte) (int, netip.AddrPort, error) {
	select {
	case d := <-e.packets:
		return copy(buf, d.data), d.from, nil
	case <-e.closed:
		return 0, netip.AddrPort{}, net.ErrClosed
	}
}

// WritePacket sends a datagram.
func (e *Endpoint) WritePacket(data []byte, to netip.AddrPort) error {
	select {
	case <-e.closed:
		return net.ErrClosed
	default:
	}
	e.net.post(e.addr, to, data)
	return nil
}

// DialStream opens a stream.
func (e *Endpoint) DialStream(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	return e.net.dial(ctx, e.addr, to)
}

// AcceptStream waits for a stream.
func (e *Endpoint) AcceptStream() (net.Conn, error) {
	select {
	case c := <-e.streams:
		return c, nil
	case <-e.closed:
		return nil, net.ErrClosed
	}
}

// Close leaves the network: datagrams to the address vanish, streams to it are
// refused.
func (e *Endpoint) Close() error {
	e.once.Do(func() {
		e.net.mu.Lock()
		delete(e.net.open, e.addr)
		e.net.mu.Unlock()
		close(e.closed)
		for {
			select {
			case c := <-e.streams:
				_ = c.Close()
			default:
				return
			}
		}
	})
	return nil
}

// conn is one end of a stream. What it writes while the way is cut is lost,
// so that the other end waits for its deadline, as behind a real cut.
type conn struct {
	net.Conn
	net      *Network
	from, to netip.AddrPort
}

func (c *conn) Write(b []byte) (int, error) {
	if !c.net.reaches(c.from, c.to) {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

func (c *conn) LocalAddr() net.Addr  { return net.TCPAddrFromAddrPort(c.from) }
func (c *conn) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(c.to) }

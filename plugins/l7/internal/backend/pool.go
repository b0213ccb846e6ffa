package backend

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// Group is what the pools of a proxy share. The zero value is a group that
// Configure has to be called for.
type Group struct {
	options atomic.Pointer[Options]
	open    atomic.Int64 // connections of all pools
}

// Configure replaces the options, which may happen at any time.
func (g *Group) Configure(o Options) { g.options.Store(&o) }

// Options are the same for all pools of a group.
type Options struct {
	HeadBytes int64         // of an answer's head
	Open      int           // connections of all pools, above which none waits for use
	Idle      int           // connections of one pool that wait for use, at most
	IdleTime  time.Duration // after which one that waits is closed
}

// Pool holds the connections to one address. All methods may be called by any
// goroutine.
type Pool struct {
	addr  netip.AddrPort
	dial  string // addr, printed once
	group *Group

	mu     sync.Mutex
	idle   []*Conn // the longest idle first
	busy   []*Conn // Invariant: busy[i].slot == i
	closed bool    // what comes back is not kept
	cut    bool    // what comes back or is dialled is broken off
}

// NewPool returns the pool of an address, without a connection.
func NewPool(addr netip.AddrPort, group *Group) *Pool {
	return &Pool{addr: addr, dial: addr.String(), group: group}
}

// Addr is the address of the pool.
func (p *Pool) Addr() netip.AddrPort { return p.addr }

// AddrText is the address as text.
func (p *Pool) AddrText() string { return p.dial }

// ErrGone: the pool was cut, so nobody is at its address.
var ErrGone = errors.New("the endpoint is gone")

// Get returns a connection for one exchange: the one that was used last, if it
// is still open and quiet, else a new one within timeout; always a new one if
// fresh. dialled tells which.
func (p *Pool) Get(ctx context.Context, timeout time.Duration, fresh bool) (c *Conn, dialled bool, err error) {
	if p.WasCut() {
		return nil, false, fmt.Errorf("backend: connect to %s: %w", p.dial, ErrGone)
	}
	for !fresh {
		c := p.pop()
		if c == nil {
			break
		}
		if c.quiet() {
			c.reused = true
			c.begin()
			return c, false, nil
		}
		c.Discard()
	}
	dialer := net.Dialer{Timeout: timeout, KeepAlive: 15 * time.Second}
	nc, err := dialer.DialContext(ctx, "tcp", p.dial)
	if err != nil {
		return nil, true, fmt.Errorf("backend: connect to %s: %w", p.dial, err)
	}
	c, err = newConn(p, nc.(*net.TCPConn))
	if err != nil {
		_ = nc.Close()
		return nil, true, fmt.Errorf("backend: connect to %s: %w", p.dial, err)
	}
	p.group.open.Add(1)
	p.mu.Lock()
	p.enlist(c)
	cut := p.cut
	p.mu.Unlock()
	if cut {
		c.Interrupt()
	}
	c.begin()
	return c, true, nil
}

// pop takes the connection that was used last: so that few stay busy, and the
// others grow old and are closed.
func (p *Pool) pop() *Conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.idle)
	if n == 0 {
		return nil
	}
	c := p.idle[n-1]
	p.idle[n-1] = nil
	p.idle = p.idle[:n-1]
	p.enlist(c)
	return c
}

// enlist notes that c is in use; p.mu is held.
func (p *Pool) enlist(c *Conn) {
	c.slot = len(p.busy)
	p.busy = append(p.busy, c)
}

// delist notes that c is not in use; p.mu is held.
func (p *Pool) delist(c *Conn) {
	last := p.busy[len(p.busy)-1]
	p.busy[c.slot], last.slot = last, c.slot
	p.busy[len(p.busy)-1] = nil
	p.busy = p.busy[:len(p.busy)-1]
}

// Put gives c back after a whole exchange: request sent to its end, answer read
// to its end, and the backend did not say that it closes. If bytes came beyond
// the answer or the pool is full or closed, c is closed.
func (c *Conn) Put(now time.Time) {
	c.pause = nil
	if c.reader.Buffered() > 0 || c.interrupted.Load() {
		c.Discard()
		return
	}
	c.SetReadDeadline(time.Time{})
	c.idleSince = now
	p := c.pool
	options := p.group.options.Load()
	p.mu.Lock()
	p.delist(c)
	keep := !p.closed && len(p.idle) < options.Idle && p.group.open.Load() <= int64(options.Open)
	if keep {
		p.idle = append(p.idle, c)
	}
	p.mu.Unlock()
	if !keep {
		c.close()
	}
}

// Discard closes c, which is in use.
func (c *Conn) Discard() {
	c.pool.mu.Lock()
	c.pool.delist(c)
	c.pool.mu.Unlock()
	c.close()
}

// Reset closes c, which is in use, so that the backend notices at once: an end
// would wait behind the bytes that it has not taken.
func (c *Conn) Reset() {
	_ = c.tcp.SetLinger(0)
	c.Discard()
}

// close gives the socket back; who calls it has c alone.
func (c *Conn) close() {
	c.pool.group.open.Add(-1)
	_ = c.tcp.Close()
}

// Open is how many connections of the pool are in use, and how many wait for it.
func (p *Pool) Open() (busy, idle int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.busy), len(p.idle)
}

// Sweep closes connections that waited for longer than Options.IdleTime, and
// those that the backend closed.
func (p *Pool) Sweep(now time.Time) {
	idleTime := p.group.options.Load().IdleTime
	p.mu.Lock()
	idle := p.idle
	p.idle = nil
	p.mu.Unlock()
	if len(idle) == 0 {
		return
	}
	kept := make([]*Conn, 0, len(idle))
	for _, c := range idle {
		if now.Sub(c.idleSince) >= idleTime || !c.quiet() {
			c.close()
		} else {
			kept = append(kept, c)
		}
	}
	p.mu.Lock()
	closed := p.closed
	if !closed {
		// Connections that came back meanwhile were used last.
		p.idle = append(kept, p.idle...)
	}
	p.mu.Unlock()
	if closed {
		closeAll(kept)
	}
}

// Relieve closes all connections that wait for use.
func (p *Pool) Relieve() {
	p.mu.Lock()
	idle := p.idle
	p.idle = nil
	p.mu.Unlock()
	closeAll(idle)
}

// Close closes all connections that wait for use, and those in use when they
// come back.
func (p *Pool) Close() {
	p.mu.Lock()
	idle := p.idle
	p.idle, p.closed = nil, true
	p.mu.Unlock()
	closeAll(idle)
}

// Cut closes the pool and breaks off the exchanges that heard nothing from the
// backend since then, and all that still begin. The zero time breaks off all.
func (p *Pool) Cut(since time.Time) {
	p.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = true
	for _, c := range p.busy {
		if since.IsZero() || c.heard.Load() < since.UnixNano() {
			c.Interrupt()
		}
	}
}

// WasCut reports whether Cut was called.
func (p *Pool) WasCut() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cut
}

func closeAll(conns []*Conn) {
	for _, c := range conns {
		c.close()
	}
}

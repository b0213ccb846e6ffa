package backend

import (
	"bufio"
	"errors"
	"io"
	"math"
	"net"
	"sync/atomic"
	"syscall"
	"time"
)

// readerBytes is the buffer of a connection: heads fit, bodies pass it by.
const readerBytes = 4 << 10

// ErrHeadTooLarge: the head of an answer is longer than Options.HeadBytes.
var ErrHeadTooLarge = errors.New("backend: the head of the answer is too large")

// Conn is a connection to a backend, with at most one exchange at a time.
type Conn struct {
	pool   *Pool
	tcp    *net.TCPConn
	raw    syscall.RawConn
	reader *bufio.Reader

	left    int64        // bytes that may be read before the head ends
	failed  error        // of the last read in this exchange
	written atomic.Int64 // bytes written in this exchange
	reused  bool         // it carried an exchange before

	slot        int          // in the pool's busy, guarded by its lock
	idleSince   time.Time    // guarded by it while the connection waits
	heard       atomic.Int64 // unix ns of the last byte, or of the connect
	interrupted atomic.Bool

	// pause is called when a read would have to wait.
	pause    func() error
	probe    func(fd uintptr) bool // reads into waiting, bound once
	waiting  waitingRead
	probing  func(fd uintptr) bool // reads into one, bound once
	one      [1]byte
	probeErr error
}

// waitingRead is the read that probe carries out.
type waitingRead struct {
	into   []byte
	n      int
	err    error
	paused bool
}

func newConn(p *Pool, tcp *net.TCPConn) (*Conn, error) {
	raw, err := tcp.SyscallConn()
	if err != nil {
		return nil, err
	}
	c := &Conn{pool: p, tcp: tcp, raw: raw}
	c.reader = bufio.NewReaderSize((*source)(c), readerBytes)
	c.probe, c.probing = c.readOrPause, c.readOne
	c.heard.Store(time.Now().UnixNano())
	return c, nil
}

// Reused reports whether an exchange went over c before: then its end may have
// crossed the request on the way.
func (c *Conn) Reused() bool { return c.reused }

// BytesWritten is how many bytes of the exchange the kernel has taken.
func (c *Conn) BytesWritten() int64 { return c.written.Load() }

// Reader reads what the backend sends.
func (c *Conn) Reader() *bufio.Reader { return c.reader }

// TCP is the socket, for a tunnel.
func (c *Conn) TCP() *net.TCPConn { return c.tcp }

// Write writes to the backend and counts.
func (c *Conn) Write(p []byte) (int, error) {
	n, err := c.tcp.Write(p)
	c.written.Add(int64(n))
	return n, err
}

// OnPause makes reads call f once each before they wait for the backend; an
// error of f is that of the read. nil ends it.
func (c *Conn) OnPause(f func() error) { c.pause = f }

// Interrupt makes the reads and writes of c fail from now on. It may be called
// by any goroutine, and does not wait.
func (c *Conn) Interrupt() {
	c.interrupted.Store(true)
	_ = c.tcp.SetDeadline(past())
}

// Interrupted reports whether Interrupt was called.
func (c *Conn) Interrupted() bool { return c.interrupted.Load() }

// SetReadDeadline bounds reads; the zero time is no bound. An interrupt
// outlasts it.
func (c *Conn) SetReadDeadline(t time.Time) {
	_ = c.tcp.SetReadDeadline(t)
	// Invariant: the deadline of an interrupted connection is in the past. It
	// is set before the flag is read here, and after it is written there.
	if c.interrupted.Load() {
		_ = c.tcp.SetReadDeadline(past())
	}
}

// SetWriteDeadline bounds writes as SetReadDeadline bounds reads.
func (c *Conn) SetWriteDeadline(t time.Time) {
	_ = c.tcp.SetWriteDeadline(t)
	if c.interrupted.Load() {
		_ = c.tcp.SetWriteDeadline(past())
	}
}

// past is a deadline that is over.
func past() time.Time { return time.Unix(1, 0) }

// begin prepares for an exchange.
func (c *Conn) begin() {
	c.failed = nil
	c.written.Store(0)
	c.left = c.pool.group.options.Load().HeadBytes
}

// quiet reports whether an idle connection is as it should be: open, and without
// bytes that nobody asked for.
func (c *Conn) quiet() bool {
	if c.reader.Buffered() > 0 {
		return false
	}
	c.probeErr = nil
	if err := c.raw.Read(c.probing); err != nil {
		return false
	}
	return errors.Is(c.probeErr, syscall.EAGAIN)
}

// readOne tries to read. Whatever it finds, end or bytes, the connection is of
// no use, so a byte that is lost does no harm.
func (c *Conn) readOne(fd uintptr) bool {
	_, c.probeErr = ignoringEINTR(int(fd), c.one[:])
	return true
}

// readOrPause reads what is there. If nothing is, it calls pause and then lets
// the poller wait.
func (c *Conn) readOrPause(fd uintptr) bool {
	w := &c.waiting
	w.n, w.err = ignoringEINTR(int(fd), w.into)
	if !errors.Is(w.err, syscall.EAGAIN) {
		return true
	}
	if w.paused {
		return false
	}
	w.paused = true
	if err := c.pause(); err != nil {
		w.n, w.err = 0, err
		return true
	}
	return false
}

func ignoringEINTR(fd int, p []byte) (int, error) {
	for {
		n, err := syscall.Read(fd, p)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			n = 0
		}
		return n, err
	}
}

// source is the Conn as its own buffered reader sees it.
type source Conn

// Read reads from the socket and keeps to the bound of a head.
func (s *source) Read(p []byte) (int, error) {
	c := (*Conn)(s)
	if c.left <= 0 {
		return 0, ErrHeadTooLarge
	}
	if int64(len(p)) > c.left {
		p = p[:c.left]
	}
	n, err := c.readSocket(p)
	if n > 0 {
		c.heard.Store(time.Now().UnixNano())
	}
	c.failed = err
	c.left -= int64(n)
	return n, err
}

func (c *Conn) readSocket(p []byte) (int, error) {
	if c.pause == nil || len(p) == 0 {
		return c.tcp.Read(p)
	}
	c.waiting = waitingRead{into: p}
	err := c.raw.Read(c.probe)
	n, readErr := c.waiting.n, c.waiting.err
	c.waiting.into = nil
	switch {
	case err != nil: // the deadline, or closed
		return 0, err
	case readErr != nil:
		if errno, ok := errors.AsType[syscall.Errno](readErr); ok {
			return 0, &net.OpError{Op: "read", Net: "tcp", Addr: c.tcp.RemoteAddr(), Err: errno}
		}
		return 0, readErr
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

// unbounded ends the bound of the head: the body has none.
func (c *Conn) unbounded() { c.left = math.MaxInt64 }

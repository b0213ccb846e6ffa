package proxy

import (
	"errors"
	"io"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/plugins/l7/internal/backend"
)

const (
	// bodyBytes is the size of the buffers of bodies.
	bodyBytes = 32 << 10
	// chunkHead is room before a chunk for its size, and chunkTail after it.
	chunkHead, chunkTail = 10, 2
	// discardBytes is how much of a body that nobody wants is read, so that its
	// client comes to read the answer.
	discardBytes = 64 << 20
)

// upload passes a request's body on, in a goroutine of its own: the answer may
// begin, and end, before it does. The goroutine is joined before the request
// ends, as the body must not be read afterwards.
type upload struct {
	x    *exchange
	c    *backend.Conn
	done chan struct{} // closed when it ended; nil: not begun

	unwanted atomic.Bool  // read on, but send nothing
	while    atomic.Int64 // ns, how long
	complete atomic.Bool  // the whole body was read
	writing  atomic.Int64 // unix ns since when a write waits; 0: none does
	read     atomic.Int64 // bytes
	aborted  atomic.Bool  // see abort
	stalled  atomic.Bool  // the backend took no bytes for too long

	// Of the goroutine until done is closed.
	clientErr, backendErr error
	sent                  bool // to its end
	ended                 time.Time
}

// errClientGone: the client ended its connection in the middle of its body.
var errClientGone = errors.New("l7: the client went away")

func newUpload(x *exchange, c *backend.Conn) *upload { return &upload{x: x, c: c} }

// begin starts it, once.
func (u *upload) begin() {
	if u.done != nil {
		return
	}
	u.done = make(chan struct{})
	u.x.begun = true
	_ = u.x.control.EnableFullDuplex()
	go u.run()
}

// waitsForContinue reports whether it has not begun.
func (u *upload) waitsForContinue() bool { return u.done == nil }

// finished reports whether there is nothing more to do.
func (u *upload) finished() bool {
	if u.done == nil {
		return false
	}
	select {
	case <-u.done:
		return true
	default:
		return false
	}
}

// lastedUntil is when it ended, if that was after a time, else that time. It may
// be called without an upload.
func (u *upload) lastedUntil(t time.Time) time.Time {
	if u == nil || !u.finished() || u.ended.Before(t) {
		return t
	}
	return u.ended
}

// stuck reports whether the backend takes no bytes for a while.
func (u *upload) stuck(now time.Time) bool {
	since := u.writing.Load()
	return since != 0 && now.UnixNano()-since >= int64(glance)
}

// settle waits a moment for the end.
func (u *upload) settle() {
	timer := time.NewTimer(glance)
	defer timer.Stop()
	select {
	case <-u.done:
	case <-timer.C:
	}
}

// abort notes that the client is gone, though its bytes are still there.
func (u *upload) abort() { u.aborted.Store(true) }

func (u *upload) run() {
	buffer := u.x.p.buffers.Get().(*[]byte)
	u.copy(*buffer)
	u.x.p.buffers.Put(buffer)
	if u.aborted.Load() {
		u.clientErr = errClientGone
	}
	failed := u.clientErr != nil
	u.ended = time.Now()
	close(u.done)
	// From here on the exchange may be over. The connection is not used again
	// if its request was not sent to the end, so this does no harm.
	if failed {
		u.c.Interrupt() // wakes the goroutine of the request
	}
}

func (u *upload) copy(buffer []byte) {
	chunked := u.x.r.ContentLength < 0
	payload := buffer[chunkHead : len(buffer)-chunkTail]
	unwanted := 0
	for unwanted <= discardBytes {
		u.bound()
		n, err := u.x.r.Body.Read(payload)
		u.read.Add(int64(n))
		end := errors.Is(err, io.EOF)
		if end {
			u.complete.Store(true)
			_ = u.x.control.SetReadDeadline(time.Time{}) // the server watches the client from now on
		}
		if u.backendErr != nil || u.unwanted.Load() {
			// The answer is there or on its way, and the client comes to read it
			// only once its body is taken.
			unwanted += n
		} else if n > 0 {
			u.write(frame(buffer, n, chunked))
		}
		switch {
		case end:
			if chunked && u.backendErr == nil {
				// Trailers of requests are not passed on: who reads them takes
				// them for headers that a proxy has seen.
				u.write([]byte("0\r\n\r\n"))
			}
			u.sent = u.backendErr == nil && !u.unwanted.Load()
			return
		case err != nil:
			u.clientErr = err
			return
		}
	}
}

// frame returns the n bytes of payload as they go over the wire.
func frame(buffer []byte, n int, chunked bool) []byte {
	if !chunked {
		return buffer[chunkHead : chunkHead+n]
	}
	size := strconv.AppendInt(make([]byte, 0, chunkHead), int64(n), 16)
	size = append(size, '\r', '\n')
	begin := chunkHead - len(size)
	copy(buffer[begin:], size)
	copy(buffer[chunkHead+n:], "\r\n")
	return buffer[begin : chunkHead+n+chunkTail]
}

// write sends to the backend.
func (u *upload) write(b []byte) {
	now := time.Now()
	if idle := u.x.options.bodyIdle; idle > 0 {
		u.c.SetWriteDeadline(now.Add(idle))
	}
	u.writing.Store(now.UnixNano())
	_, u.backendErr = u.c.Write(b)
	u.writing.Store(0)
	if timeout(u.backendErr) && !u.c.Interrupted() {
		u.stalled.Store(true)
		u.c.Interrupt()
	}
}

// bound is the time that the client may take for its next bytes.
func (u *upload) bound() {
	switch idle := u.x.options.bodyIdle; {
	case u.unwanted.Load():
		return
	case idle > 0:
		_ = u.x.control.SetReadDeadline(time.Now().Add(idle))
	}
	// Invariant: once unwanted, the time is that of discard. It is set before the
	// flag is read here, and after it is written there.
	if u.unwanted.Load() {
		_ = u.x.control.SetReadDeadline(time.Now().Add(time.Duration(u.while.Load())))
	}
}

// discard reads on without sending, for a while.
func (u *upload) discard(while time.Duration) {
	u.while.Store(int64(while))
	u.unwanted.Store(true)
	_ = u.x.control.SetReadDeadline(time.Now().Add(while))
	u.c.Interrupt()
}

// timeout reports whether a deadline passed.
func timeout(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }

// dropUpload gives up an upload that has not begun, and tells one that has that
// nobody wants the rest.
func (x *exchange) dropUpload() {
	switch u := x.upload; {
	case u == nil:
	case u.done == nil:
		x.upload = nil
	case !u.finished():
		u.discard(bodyGrace)
	}
}

// joinUpload waits for the end of the upload, which has none of its own for at
// most while, and counts.
func (x *exchange) joinUpload(while time.Duration) {
	u := x.upload
	if u == nil {
		return
	}
	x.upload = nil
	if u.done == nil {
		return
	}
	if !u.finished() {
		if idle := x.options.bodyIdle; idle > 0 {
			// The end of the answer may still have to be written.
			_ = x.control.SetWriteDeadline(time.Now().Add(while + idle))
		}
		u.discard(while)
	}
	<-u.done
	x.in = u.read.Load()
	x.at.sent.Add(uint64(x.in))
}

// clientGone looks whether the client has ended its connection, behind bytes
// that were not read yet.
func (x *exchange) clientGone() bool {
	raw := rawClient(x.r)
	if raw == nil {
		return false
	}
	gone := false
	err := raw.Control(func(fd uintptr) {
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		_, _ = unix.Poll(poll, 0)
		gone = poll[0].Revents&(unix.POLLRDHUP|unix.POLLHUP|unix.POLLERR) != 0
	})
	return err != nil || gone
}

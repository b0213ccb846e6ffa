package proxy

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/fairlead/fairlead/plugins/l7/internal/backend"
	"github.com/fairlead/fairlead/plugins/l7/internal/http1"
)

// relay is the way of the answer to the client.
type relay struct {
	x       *exchange
	c       *backend.Conn
	stop    func() bool // ends the watch for the client; nil: none
	paused  func() error
	written bool // bytes wait to be flushed
	armed   time.Time
}

func (a *relay) reset() {
	a.c, a.stop, a.written, a.armed = nil, nil, false, time.Time{}
}

// watch breaks the exchange off when the client goes away.
func (a *relay) watch(c *backend.Conn) {
	if a.stop == nil {
		a.stop = context.AfterFunc(a.x.r.Context(), c.Interrupt)
	}
}

// unwatch ends that. It reports whether c was not touched, nor will be.
func (a *relay) unwatch() bool {
	if a.stop == nil {
		return true
	}
	stopped := a.stop()
	a.stop = nil
	return stopped
}

// pause is called when the backend pauses: the client gets what is there, and
// is watched, as nothing may come for hours.
func (a *relay) pause() error {
	a.watch(a.c)
	if !a.written {
		return nil
	}
	a.written = false
	err := a.flush()
	if a.x.r.ProtoMajor > 1 {
		// A deadline that passes ends a stream of HTTP/2, also while nobody
		// writes. The next bytes set another one.
		_ = a.x.control.SetWriteDeadline(time.Time{})
		a.armed = time.Time{}
	}
	return err
}

// errClientStalled and errClientWrite mark errors of the client's side.
var (
	errClientStalled = errors.New("l7: the client takes nothing")
	errClientWrite   = errors.New("l7: the client went away")
)

func (a *relay) flush() error { return clientError(a.x.control.Flush()) }

func clientError(err error) error {
	switch {
	case err == nil:
		return nil
	case timeout(err):
		return errClientStalled
	}
	return errClientWrite
}

// relay passes the answer on. On a failure before the first byte of it went to
// the client, that may still be told of it.
func (x *exchange) relay(c *backend.Conn) *failure {
	a := &x.answer
	a.c = c
	if !headComplete(c) {
		x.boundHead(c)
	}
	answer, err := c.ReadHead(x.r, x.informational)
	if err != nil {
		return x.badHead(c, err)
	}
	if answer.StatusCode == http.StatusSwitchingProtocols {
		return x.switched(c, answer)
	}
	x.begun = true
	if int64(c.Reader().Buffered()) < answer.ContentLength || answer.ContentLength < 0 {
		c.SetReadDeadline(time.Time{})
		c.OnPause(a.paused)
	}
	x.writeHead(answer)
	err = a.copy(answer.Body)
	c.OnPause(nil)
	if err != nil {
		x.broken(c, err)
		return nil
	}
	x.writeTrailer(answer)
	x.part(c, answer)
	return nil
}

// headComplete reports whether the head of the answer has come already.
func headComplete(c *backend.Conn) bool {
	there, _ := c.Reader().Peek(c.Reader().Buffered())
	for i := 0; i+3 < len(there); i++ {
		if there[i] == '\n' && (there[i+1] == '\n' || there[i+1] == '\r' && there[i+2] == '\n') {
			return true
		}
	}
	return false
}

// boundHead bounds the time for the rest of a head.
func (x *exchange) boundHead(c *backend.Conn) {
	if x.options.firstByte <= 0 {
		c.SetReadDeadline(time.Time{})
	} else {
		c.SetReadDeadline(time.Now().Add(x.options.firstByte))
	}
	x.answer.watch(c)
}

// informational passes a 1xx on, and begins with the body at a 100.
func (x *exchange) informational(answer *http.Response) error {
	x.begun = true
	if answer.StatusCode == http.StatusContinue {
		if x.upload != nil {
			x.upload.begin() // reading the body makes the server tell the client
		}
		x.boundHead(x.answer.c)
		return nil
	}
	x.boundHead(x.answer.c)
	if !x.r.ProtoAtLeast(1, 1) || x.upload != nil && x.upload.waitsForContinue() {
		return nil
	}
	h := x.w.Header()
	kept := h[headerConnection]
	delete(h, headerConnection)
	copyHeader(h, answer.Header)
	x.w.WriteHeader(answer.StatusCode)
	clear(h)
	if kept != nil {
		h[headerConnection] = kept
	}
	return nil
}

// badHead judges an answer that began and has no proper head.
func (x *exchange) badHead(c *backend.Conn, err error) *failure {
	x.answer.unwatch()
	gone := c.Interrupted() && x.at.pool.WasCut()
	clientErr := x.quit(c)
	switch {
	case clientErr != nil:
		x.clientFailed(clientErr)
		return nil
	case x.r.Context().Err() != nil:
		x.reason = ReasonClientAbort
		return nil
	}
	f := &failure{reason: readReason(err, true), err: err}
	if gone {
		f.reason = ReasonEndpointGone
	}
	return f
}

// copyHeader copies what concerns more than one connection.
func copyHeader(to, from http.Header) {
	var named []string
	if len(from[headerConnection]) > 0 {
		connectionTokens(from, func(name string) { named = append(named, name) })
	}
	for name, values := range from {
		if !hopByHop(name) && !slices.Contains(named, name) {
			to[name] = values
		}
	}
}

// writeHead hands the head of the final answer to the server.
func (x *exchange) writeHead(answer *http.Response) {
	h := x.w.Header()
	copyHeader(h, answer.Header)
	if _, ok := h["Content-Type"]; !ok {
		h["Content-Type"] = nil // the server must not guess one
	}
	for name := range answer.Trailer {
		if inTrailer(name) {
			h.Add(headerTrailer, name)
		}
	}
	if u := x.upload; u != nil && !u.complete.Load() {
		if u.waitsForContinue() {
			x.upload = nil // the backend has decided without the body
			x.leaveBody()
		} else if x.r.ProtoMajor == 1 {
			// Invariant: what is left of a body is never read as a request.
			h[headerConnection] = []string{"close"}
		}
	}
	x.status = answer.StatusCode
	x.answer.written = true
	x.bound()
	x.w.WriteHeader(answer.StatusCode)
}

// bound is the time that the client may take for the next bytes.
func (x *exchange) bound() {
	idle := x.options.bodyIdle
	if idle <= 0 {
		return
	}
	// To set a deadline for every few bytes would cost more than they do.
	if now := time.Now(); now.Sub(x.answer.armed) > idle/8 {
		x.answer.armed = now
		_ = x.control.SetWriteDeadline(now.Add(idle))
	}
}

// copy passes the body on, as it comes.
func (a *relay) copy(body io.Reader) error {
	if body == http.NoBody {
		return nil
	}
	buffer := a.x.p.buffers.Get().(*[]byte)
	defer a.x.p.buffers.Put(buffer)
	for {
		n, err := body.Read(*buffer)
		if n > 0 {
			a.x.bound()
			written, werr := a.x.w.Write((*buffer)[:n])
			a.x.out += int64(written)
			a.written = true
			if werr != nil && !errors.Is(werr, http.ErrBodyNotAllowed) {
				return clientError(werr)
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			a.x.bound() // the last time was set before the pause, and the end has still to be written
			return nil
		case err != nil:
			return err
		}
	}
}

// writeTrailer passes the trailer on, which is known only after the body. Fields
// that were not announced need net/http's prefix, and a body in chunks.
func (x *exchange) writeTrailer(answer *http.Response) {
	if len(answer.Trailer) == 0 {
		return
	}
	if x.out == 0 || answer.ContentLength < 0 {
		_ = x.answer.flush()
	}
	h := x.w.Header()
	announced := h[headerTrailer]
	for name, values := range answer.Trailer {
		if len(values) == 0 || !inTrailer(name) {
			continue
		}
		if slices.Contains(announced, name) {
			h[name] = values
		} else {
			h[http.TrailerPrefix+name] = values
		}
	}
}

// part gives the connection back after a whole answer, or closes it.
func (x *exchange) part(c *backend.Conn, answer *http.Response) {
	untouched := x.answer.unwatch()
	x.at.received.Add(uint64(x.out))
	reuse := untouched && !answer.Close
	if u := x.upload; u != nil {
		if !u.complete.Load() {
			_ = x.answer.flush() // the client reads it while its body is taken
		} else if !u.finished() {
			// The backend has all of the body but its end, perhaps.
			u.settle()
		}
		reuse = reuse && u.finished() && u.sent
	}
	if reuse {
		c.Put(time.Now())
	} else {
		c.Discard()
	}
	x.joinUpload(bodyGrace)
}

// broken ends an answer in the middle: the client must not take it for a whole
// one (golang#23643).
func (x *exchange) broken(c *backend.Conn, err error) {
	a := &x.answer
	a.unwatch()
	x.at.received.Add(uint64(x.out))
	gone := c.Interrupted() && x.at.pool.WasCut()
	clientErr := x.quit(c)
	switch {
	case errors.Is(err, errClientStalled):
		x.reason = ReasonClientStalled
	case errors.Is(err, errClientWrite), clientErr != nil, x.r.Context().Err() != nil:
		x.reason = ReasonClientAbort
	case gone:
		x.reason = ReasonEndpointGone
	default:
		x.reason = ReasonTruncated
	}
	if x.reason == ReasonTruncated || x.reason == ReasonEndpointGone {
		x.bound()
		_ = a.flush() // what a backend says before it dies is often why
	}
	x.breakOff()
	if x.p.log != nil {
		x.p.log.Debug("answer broken off", "service", x.target.name, "endpoint", x.at.name, "backend", x.at.pool.AddrText(),
			"reason", string(x.reason), "error", err, "bytes", x.out, "id", x.head.requestID)
	}
}

// breakOff ends the client's connection, or its stream of HTTP/2, so that no
// part of an answer looks whole. It does what a panic with http.ErrAbortHandler
// would do.
func (x *exchange) breakOff() {
	x.joinUpload(0)
	if x.r.ProtoMajor > 1 {
		_ = x.control.SetWriteDeadline(time.Unix(1, 0)) // resets the stream at once
		return
	}
	if client, _, err := x.control.Hijack(); err == nil {
		_ = client.Close()
	}
}

// quit ends the exchange with the backend at once, and tells what the client did
// wrong before that, if anything.
func (x *exchange) quit(c *backend.Conn) error {
	u := x.upload
	if u == nil || u.done == nil {
		x.dropUpload()
		c.Discard()
		return nil
	}
	if u.aborted.Load() || x.r.Context().Err() != nil {
		u.settle() // it ends by itself, and knows why
	}
	var clientErr error
	if u.finished() {
		clientErr = u.clientErr
	}
	x.dropUpload()
	c.Reset()
	return clientErr
}

// clientFailed answers a client whose body is at fault, if it is still there.
func (x *exchange) clientFailed(err error) {
	guard := http1.FromContext(x.r.Context())
	switch {
	case guard != nil && guard.Refusal() != nil:
		// err may not say so: net/http has one of its own for trailers.
		refusal := guard.Refusal()
		x.refuse(refusal.Status, ReasonClientBody, refusal.Reason)
		guard.Linger()
	case timeout(err):
		x.refuse(http.StatusRequestTimeout, ReasonClientBodyStall, "the rest of the request's body did not come")
	default:
		x.reason = ReasonClientAbort
	}
}

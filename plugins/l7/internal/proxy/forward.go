package proxy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/fairlead/fairlead/plugins/l7/internal/backend"
	"github.com/fairlead/fairlead/plugins/l7/internal/balance"
)

// failure is a try that brought no answer.
type failure struct {
	reason Reason
	err    error
	again  bool // the request may be tried once more
	unsent bool // there was no connection, so the backend has had no work by it
	stale  bool // the connection was an old one; a new one to the same endpoint may do
}

// forward tries endpoints until one answers, as far as trying again is safe,
// allowed by the budget, and there is another one, or one that was only slow.
func (x *exchange) forward() {
	now := x.target.endpoints.Load()
	if now == nil || now.pool.Len() == 0 {
		x.unavailable()
		return
	}
	now.pool.Budget().Request()
	choice := balance.Choice{NoTrial: !x.repeatable()}
	if now.pool.Hashed() {
		choice.Hash = balance.HashAddr(x.head.peer)
	}
	var last *failure
tries:
	for x.tries < len(x.tried) {
		lease, ok := now.pool.Pick(time.Now(), globalRandom{}, choice)
		if !ok {
			break
		}
		x.tried[x.tries] = lease.Endpoint
		x.tries++
		last = x.attempt(now, lease)
		if last == nil {
			return
		}
		// The endpoints may be others by now.
		if now = x.target.endpoints.Load(); now == nil || !last.again {
			break
		}
		slow, tried := x.slow, x.tried[:x.tries]
		switch {
		case x.another(now):
			choice.Tried = tried
		case x.mayGoBack(now):
			choice.Tried = slices.DeleteFunc(slices.Clone(tried), func(e *balance.Endpoint) bool { return e == slow })
		default:
			break tries
		}
		// A try that was not sent costs nothing: the budget keeps backends from getting
		// a multiple of their load. What was paid for it, if the request was sent
		// before, pays for the next one.
		if !last.unsent && !x.pay(now) {
			break
		}
		x.series.retries.inc(last.reason)
	}
	if last == nil {
		x.unavailable()
		return
	}
	x.fail(last)
}

// unavailable says that there is no endpoint.
func (x *exchange) unavailable() {
	x.target.noEndpoint.Add(1)
	x.w.Header()["Retry-After"] = []string{"1"}
	x.refuse(http.StatusServiceUnavailable, ReasonNoEndpoint, "the service "+x.target.name+" has no endpoint")
}

// mayGoBack reports whether the request may go once more, and however many tries there
// were, to the endpoint that was too slow for its try: those that it was given up for
// failed, so it is the best there is. This time it is waited for.
func (x *exchange) mayGoBack(now *endpoints) bool {
	slow := x.slow
	x.slow = nil
	return slow != nil && now.of[slow] != nil
}

// pay has the budget pay for a try, unless it has.
func (x *exchange) pay(now *endpoints) bool {
	if x.paid {
		x.paid = false
		return true
	}
	return x.spend(now)
}

// another reports whether one more try is left and an endpoint for it.
func (x *exchange) another(now *endpoints) bool {
	if x.tries > x.options.tries {
		return false
	}
	left := now.pool.Len()
	for _, b := range x.tried[:x.tries] {
		if now.of[b] != nil {
			left--
		}
	}
	return left > 0
}

// spend takes one try from the budget.
func (x *exchange) spend(now *endpoints) bool {
	if now.pool.Budget().Retry(time.Now()) {
		return true
	}
	x.series.refused.Inc()
	return false
}

// repeatable reports whether the request does no harm if a backend gets it
// twice, and can be sent twice: it is safe by its method or its client says so,
// and it has no body. PUT and DELETE are idempotent by their definition only:
// what a second one changes in between is lost.
func (x *exchange) repeatable() bool {
	if x.r.ContentLength != 0 {
		return false
	}
	switch x.r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return true
	}
	return len(x.r.Header["Idempotency-Key"]) > 0 || len(x.r.Header["X-Idempotency-Key"]) > 0
}

// attempt tries one endpoint. It returns nil once the client has its answer, or
// nobody is there to take one.
func (x *exchange) attempt(now *endpoints, lease balance.Lease) *failure {
	defer lease.Release()
	e := x.p.endpointOf(x.target, now, lease.Endpoint)
	if e == nil {
		return &failure{reason: ReasonEndpointGone, err: backend.ErrGone, again: true}
	}
	x.at = e
	x.at.tries.Add(1)
	f := x.exchangeOnce(now, lease, false)
	if f != nil && f.stale && f.again && !x.begun && x.spendStale(now, f) {
		f = x.exchangeOnce(now, lease, true)
	}
	if f != nil {
		x.at.failed.Add(1)
		if x.p.log != nil {
			x.p.log.Debug("try failed", "service", x.target.name, "endpoint", x.at.name, "backend", x.at.pool.AddrText(),
				"reason", string(f.reason), "error", f.err, "id", x.head.requestID)
		}
	}
	return f
}

// spendStale pays for a further try at the same endpoint, on a new connection.
// If nothing was sent, it costs the backend nothing.
func (x *exchange) spendStale(now *endpoints, f *failure) bool {
	return f.reason == reasonNothingSent || x.spend(now)
}

// reasonNothingSent is never shown: an old connection was closed before a byte
// was sent over it.
const reasonNothingSent Reason = "nothing-sent"

// exchangeOnce sends the request over one connection and passes the answer on.
func (x *exchange) exchangeOnce(now *endpoints, lease balance.Lease, fresh bool) *failure {
	timeout := x.options.connect
	if x.another(now) {
		timeout = x.options.connectAgain
	}
	began := time.Now()
	c, dialled, err := x.at.pool.Get(x.r.Context(), timeout, fresh)
	if err != nil && noDescriptor(err) {
		x.p.Relieve()
		c, dialled, err = x.at.pool.Get(x.r.Context(), timeout, fresh)
	}
	if err != nil {
		return x.connectFailed(lease, err)
	}
	if dialled {
		x.p.metrics.connected.Inc()
	}
	if f := x.send(c); f != nil {
		return f
	}
	if answered, f := x.await(c, now, lease, began); !answered {
		return f
	}
	return x.relay(c)
}

// connectFailed judges a connect that failed. Nothing was sent, so any request
// may go elsewhere.
func (x *exchange) connectFailed(lease balance.Lease, err error) *failure {
	if x.r.Context().Err() != nil {
		x.reason = ReasonClientAbort
		return nil
	}
	f := &failure{reason: connectReason(err), err: err, again: true, unsent: true}
	if errors.Is(err, backend.ErrGone) {
		f.reason = ReasonEndpointGone
		return f
	}
	x.p.metrics.connectFailed.Inc()
	if !ours(err) {
		x.eject(lease)
	}
	return f
}

// eject tells balance that a try failed in a way for which the endpoint is left
// out.
func (x *exchange) eject(lease balance.Lease) {
	lease.Failed(time.Now(), globalRandom{})
	x.series.ejections.Inc()
}

// send writes the head of the request and begins with its body.
func (x *exchange) send(c *backend.Conn) *failure {
	hasBody := x.r.ContentLength != 0
	x.head.body = hasBody
	buffer := x.p.heads.Get().(*[]byte)
	head := appendHead((*buffer)[:0], x.r, x.path, x.head)
	// A longer head may not fit into the socket's buffer.
	bounded := len(head) > 8<<10
	if bounded {
		c.SetWriteDeadline(time.Now().Add(x.options.connect))
	}
	_, err := c.Write(head)
	if bounded {
		c.SetWriteDeadline(time.Time{})
	}
	*buffer = head[:0]
	if cap(head) <= 16<<10 {
		x.p.heads.Put(buffer)
	}
	if err != nil {
		f := &failure{reason: ReasonBackendReset, err: err, stale: c.Reused()}
		switch {
		case c.BytesWritten() == 0:
			f.again = true
			if f.stale {
				f.reason = reasonNothingSent
			}
		case x.repeatable():
			f.again = true
		}
		if c.Interrupted() {
			f.reason, f.stale = ReasonEndpointGone, false
		}
		c.Discard()
		return f
	}
	if hasBody {
		x.upload = newUpload(x, c)
		if !expectsContinue(x.r) {
			x.upload.begin()
		}
	}
	return nil
}

const (
	// quickly is how long an answer is waited for before anything is set up to
	// notice that the client goes away: most answers are there by then.
	quickly = 20 * time.Millisecond
	// glance is how often the client is looked at while it sends a body.
	glance = 250 * time.Millisecond
	// continueAfter is how long a backend may take to say 100 (Continue)
	// before it is sent the body all the same (RFC 9110 section 10.1.1).
	continueAfter = time.Second
)

// await waits for the first byte of the answer. If none came, c is not used any
// more, and without a failure the exchange is over: nobody waits for the answer.
func (x *exchange) await(c *backend.Conn, now *endpoints, lease balance.Lease, began time.Time) (answered bool, f *failure) {
	abandon := x.options.try > 0 && x.repeatable() && x.another(now)
	since := began // of the silence that is the backend's fault
	wait := quickly
	for {
		c.SetReadDeadline(time.Now().Add(wait))
		_, err := c.Reader().Peek(1)
		if err == nil {
			now := time.Now()
			lease.Succeeded(now, now.Sub(x.upload.lastedUntil(since)))
			return true, nil
		}
		if !timeout(err) || c.Interrupted() {
			return false, x.silent(c, lease, err)
		}
		x.answer.watch(c)
		t := time.Now()
		if u := x.upload; u != nil && !u.finished() {
			// The client's turn, as far as this can see.
			if u.waitsForContinue() && t.Sub(began) >= continueAfter {
				u.begin()
			}
			if u.stuck(t) && x.clientGone() {
				c.Interrupt()
				u.abort()
			}
			since, wait = t, glance
			continue
		}
		silence := t.Sub(since)
		if abandon && silence >= x.options.try {
			if x.spend(now) {
				return false, x.abandon(c, lease)
			}
			abandon = false // what there is has to be waited for
		}
		if x.options.firstByte > 0 && silence >= x.options.firstByte {
			return false, x.silent(c, lease, err)
		}
		wait = x.nextLook(abandon, silence)
	}
}

// nextLook is how long to wait until something is due.
func (x *exchange) nextLook(abandon bool, silence time.Duration) time.Duration {
	next := time.Hour
	if x.options.firstByte > 0 {
		next = x.options.firstByte - silence
	}
	if abandon {
		next = min(next, x.options.try-silence)
	}
	return max(next, time.Millisecond)
}

// abandon gives up a try that takes too long, for which spend has paid.
func (x *exchange) abandon(c *backend.Conn, lease balance.Lease) *failure {
	x.answer.unwatch()
	c.Discard()
	x.eject(lease)
	x.paid, x.slow = true, lease.Endpoint
	return &failure{reason: ReasonNoFirstByte, err: context.DeadlineExceeded, again: true}
}

// silent judges a try of whose answer no byte came.
func (x *exchange) silent(c *backend.Conn, lease balance.Lease, err error) *failure {
	x.answer.unwatch()
	cut := c.Interrupted() && x.at.pool.WasCut()
	reused, stalled := c.Reused(), x.upload != nil && x.upload.stalled.Load()
	if clientErr := x.quit(c); clientErr != nil {
		x.clientFailed(clientErr)
		return nil
	}
	if x.r.Context().Err() != nil {
		x.reason = ReasonClientAbort
		return nil
	}
	f := &failure{reason: readReason(err, false), err: err, again: x.repeatable()}
	switch {
	case cut:
		f.reason = ReasonEndpointGone
	case stalled:
		f.reason = ReasonBackendStalled
		x.eject(lease)
	case f.reason == ReasonNoFirstByte:
		x.eject(lease)
	case reused:
		f.stale = true
	default:
		// It takes connections and ends them: others would be better.
		x.eject(lease)
	}
	return f
}

// fail answers for the last try.
func (x *exchange) fail(f *failure) {
	status := http.StatusBadGateway
	switch f.reason {
	case ReasonConnectTimeout, ReasonNoFirstByte, ReasonSlowHead, ReasonBackendStalled:
		status = http.StatusGatewayTimeout
	case reasonNothingSent:
		f.reason = ReasonBackendReset
	}
	x.refuse(status, f.reason, fmt.Sprintf("the service %s did not answer: %s after %d of at most %d tries", x.target.name, f.reason, x.tries, max(x.tries, x.options.tries+1)))
}

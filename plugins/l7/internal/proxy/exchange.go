package proxy

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead/fairlead/plugins/l7/internal/balance"
	"github.com/fairlead/fairlead/plugins/l7/internal/http1"
	"github.com/fairlead/fairlead/plugins/l7/internal/route"
)

// mostHops is how many proxies of ours a request may come through.
const mostHops = 16

// exchange is one request and what becomes of it. It belongs to the goroutine
// of the request, and is used again for another one.
type exchange struct {
	p       *Proxy
	w       http.ResponseWriter
	r       *http.Request
	options *options
	control *http.ResponseController
	start   time.Time

	target  *Target // nil: no service
	series  *series
	host    string // canonical
	path    string // as the client wrote it, with query: goes to the backend
	logPath string // without query
	head    outbound

	// What tries share.
	tried  [mostTries + 1]*balance.Endpoint // the last may be one of those before: see mayGoBack
	tries  int
	slow   *balance.Endpoint // the last one that was not waited for; nil: there is none to go back to
	at     *endpoint         // of the last try
	upload *upload           // nil: no body, or not begun
	begun  bool              // a byte of an answer was passed on, or of the body was read
	paid   bool              // the budget has paid for the next try
	answer relay

	// What the log says.
	status int
	reason Reason
	in     int64
	out    int64
	tunnel bool
}

func newExchange(p *Proxy) *exchange {
	x := &exchange{p: p}
	x.answer.x = x
	x.answer.paused = x.answer.pause
	return x
}

// ServeHTTP answers a request.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := p.exchanges.Get().(*exchange)
	x.w, x.r, x.options, x.start = w, r, p.options.Load(), time.Now()
	x.control = http.NewResponseController(w)
	x.series = p.metrics.nowhere
	x.logPath = r.URL.Path
	p.metrics.inFlight.Inc()
	defer x.end()
	if x.accept() {
		x.forward()
	}
	if x.status == 0 {
		// Nobody is there to take an answer, and the server would make one up.
		x.breakOff()
	}
}

// accept checks the request and finds its service, or answers it.
func (x *exchange) accept() bool {
	r := x.r
	x.client()
	if r.Method == http.MethodConnect {
		return x.refuse(http.StatusNotImplemented, ReasonMethod, "the method CONNECT is not supported")
	}
	if r.Method == http.MethodTrace {
		return x.refuse(http.StatusMethodNotAllowed, ReasonMethod, "the method TRACE is not allowed")
	}
	if hops := r.Header[headerHops]; len(hops) > 0 {
		n, err := strconv.Atoi(hops[0])
		if err != nil || n >= mostHops || n < 0 {
			return x.refuse(http.StatusLoopDetected, ReasonLoop, fmt.Sprintf("the request came through %d proxies: it goes round in a circle", mostHops))
		}
		x.head.hops = n
	}
	x.head.hops++

	if why := badHTTP2(r); why != "" {
		return x.refuse(http.StatusBadRequest, ReasonBadRequest, why)
	}
	target, err := route.ParseTarget(r.RequestURI)
	if err != nil {
		return x.refuse(http.StatusBadRequest, ReasonBadRequest, err.Error())
	}
	x.logPath = target.Path
	x.path = target.Path
	if target.HasQuery {
		x.path += "?" + target.Query
		if strings.HasPrefix(r.RequestURI, "/") {
			x.path = r.RequestURI // the same, without a copy
		}
	}
	path, err := route.Path(target.Path)
	if err != nil {
		return x.refuse(http.StatusBadRequest, ReasonBadRequest, err.Error())
	}
	if r.Host != "" || r.ProtoAtLeast(1, 1) {
		if x.host, err = route.Canonical(r.Host); err != nil {
			return x.refuse(http.StatusBadRequest, ReasonBadRequest, err.Error())
		}
	}
	return x.find(path) && x.upgrade()
}

// client finds out who asks.
func (x *exchange) client() {
	addr, err := netip.ParseAddrPort(x.r.RemoteAddr)
	if err != nil {
		x.head.peer, x.head.peerText, x.head.trusted = netip.Addr{}, "unknown", false
	} else {
		x.head.peer = addr.Addr().Unmap().WithZone("")
		x.head.peerText = x.head.peer.String()
		x.head.trusted = trusted(x.options.trusted, x.head.peer)
	}
	if id := x.r.Header[headerRequestID]; len(id) == 1 && usableID(id[0]) {
		x.head.requestID = id[0]
		return
	}
	var raw [16]byte
	binary.LittleEndian.PutUint64(raw[:8], rand.Uint64())
	binary.LittleEndian.PutUint64(raw[8:], rand.Uint64())
	var text [32]byte
	hex.Encode(text[:], raw[:])
	x.head.requestID = string(text[:])
}

func trusted(prefixes []netip.Prefix, a netip.Addr) bool {
	for _, p := range prefixes {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// usableID reports whether a client's request id may stand: a word that is not
// too long.
func usableID(id string) bool {
	if len(id) == 0 || len(id) > 128 {
		return false
	}
	for i := range len(id) {
		if id[i] <= ' ' || id[i] >= 0x7f {
			return false
		}
	}
	return true
}

// find looks up the service.
func (x *exchange) find(path string) bool {
	target, verdict := x.p.table.Load().Lookup(route.Request{Host: x.host, Path: path, Method: x.r.Method, Header: x.r.Header})
	switch verdict {
	case route.NoHost:
		if x.p.partial.Load() {
			return x.starting()
		}
		return x.refuse(http.StatusNotFound, ReasonUnknownHost, fmt.Sprintf("no service has the host %q", x.host))
	case route.NoRoute:
		if x.p.partial.Load() {
			return x.starting()
		}
		return x.refuse(http.StatusNotFound, ReasonUnknownRoute, fmt.Sprintf("no service takes this request at the host %q", x.host))
	case route.Found:
	}
	x.target = target
	x.series = target.series()
	target.requests.Add(1)
	return true
}

// starting asks to come again for what may be there as soon as all services are
// known.
func (x *exchange) starting() bool {
	x.w.Header()["Retry-After"] = []string{"1"}
	return x.refuse(http.StatusServiceUnavailable, ReasonStarting, fmt.Sprintf("the proxy does not know all services yet, and none so far for this request at the host %q", x.host))
}

// upgrade checks what else the client would speak. Only WebSockets are passed
// on: any other upgrade would make a tunnel past all checks (CVE-2026-88008).
func (x *exchange) upgrade() bool {
	upgrades := x.r.Header[headerUpgrade]
	if len(upgrades) == 0 {
		return true
	}
	if len(upgrades) == 1 && strings.EqualFold(upgrades[0], "websocket") && hasToken(x.r.Header[headerConnection], "upgrade") {
		if x.r.Method != http.MethodGet || x.r.ProtoMajor != 1 || x.r.ProtoMinor < 1 || x.r.ContentLength != 0 {
			return x.refuse(http.StatusBadRequest, ReasonUpgrade, "a WebSocket begins with a GET of HTTP/1.1 that has no body")
		}
		x.head.upgrade = true
		return true
	}
	x.w.Header().Set(headerUpgrade, "websocket")
	return x.refuse(http.StatusNotImplemented, ReasonUpgrade, fmt.Sprintf("an upgrade to %q is not supported", strings.Join(upgrades, ", ")))
}

// refuse answers in the proxy's own name. It returns false.
func (x *exchange) refuse(status int, reason Reason, text string) bool {
	x.status, x.reason = status, reason
	h := x.w.Header()
	h["Content-Type"] = []string{"text/plain; charset=utf-8"}
	h["X-Content-Type-Options"] = []string{"nosniff"}
	h[headerReason] = []string{string(reason)}
	x.leaveBody()
	body := "fairlead: " + text + "\n"
	h[headerContentLength] = []string{strconv.Itoa(len(body))}
	if x.upload != nil && x.r.ProtoMajor == 1 {
		// Invariant: what is left of a body is never read as a request.
		h[headerConnection] = []string{"close"}
	}
	x.bound()
	x.w.WriteHeader(status)
	if x.r.Method != http.MethodHead {
		n, _ := x.w.Write([]byte(body))
		x.out += int64(n)
	}
	if x.upload != nil {
		_ = x.control.Flush() // the client reads it while its body is taken
	}
	return false
}

// bodyGrace is how long the rest of a client's body is waited for once nobody
// wants it: to keep the connection, and so that the client sees the answer
// rather than a reset.
const bodyGrace = 500 * time.Millisecond

// leaveBody bounds what net/http reads of a body after the answer.
func (x *exchange) leaveBody() {
	if x.r.ContentLength != 0 && x.upload == nil {
		_ = x.control.SetReadDeadline(time.Now().Add(bodyGrace))
	}
}

// end counts and logs.
func (x *exchange) end() {
	p := x.p
	x.joinUpload(bodyGrace)
	p.metrics.inFlight.Dec()
	took := time.Since(x.start)
	status := x.status
	if x.reason == ReasonClientAbort || x.reason == ReasonClientStalled {
		p.metrics.aborts.Inc()
		if status == 0 {
			status = statusClientClosed
		}
	}
	x.series.code(status).Inc()
	if !x.tunnel {
		x.series.seconds.Observe(took.Seconds())
	}
	if x.reason != ReasonNone {
		x.series.failures.inc(x.reason)
	}
	if l := x.options.log; l != nil {
		l.put(x.line(status, took))
	}
	if p.flows != nil {
		p.flows.observed(x, took)
	}
	answer := x.answer
	answer.reset()
	*x = exchange{p: p, answer: answer}
	p.exchanges.Put(x)
}

// line is the line of the access log.
func (x *exchange) line(status int, took time.Duration) []byte {
	e := entry{
		time: x.start, duration: took, client: x.head.peerText, requestID: x.head.requestID,
		method: x.r.Method, host: x.host, target: x.logPath, proto: x.r.Proto, status: status,
		in: x.in, out: x.out, tries: x.tries, reason: x.reason, tunnel: x.tunnel,
	}
	if x.target != nil {
		e.service = x.target.name
	}
	if x.at != nil {
		e.endpoint, e.backend = x.at.name, x.at.pool.AddrText()
	}
	return e.appendTo(make([]byte, 0, 512))
}

// Refused counts and logs a request that http1 refused.
func (p *Proxy) Refused(r *http.Request, why *http1.Refusal) {
	p.metrics.guarded.WithLabelValues(strconv.Itoa(why.Status)).Inc()
	if l := p.options.Load().log; l != nil {
		peer := r.RemoteAddr
		if a, err := netip.ParseAddrPort(peer); err == nil {
			peer = a.Addr().Unmap().WithZone("").String()
		}
		e := entry{
			time: time.Now(), client: peer, method: "-", proto: "-", target: "-", status: why.Status, reason: ReasonBadRequest, detail: why.Reason,
		}
		l.put(e.appendTo(make([]byte, 0, 256)))
	}
}

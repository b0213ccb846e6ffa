package proxy

import (
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// outbound is what the head of a request to a backend is made of, besides the
// client's own headers.
type outbound struct {
	peer      netip.Addr // who connected
	peerText  string
	trusted   bool // peer is a proxy that is believed
	requestID string
	hops      int  // proxies of ours that the request came through, this one included
	upgrade   bool // to a WebSocket
	body      bool // a body follows
}

// appendHead writes the head of the request to a backend. What the Connection
// fields name is left out first; what the proxy says itself comes afterwards, so
// no client can name it away (CVE-2024-45410).
func appendHead(b []byte, r *http.Request, target string, o outbound) []byte {
	b = append(b, r.Method...)
	b = append(b, ' ')
	b = append(b, target...)
	b = append(b, " HTTP/1.1\r\nHost: "...)
	b = append(b, r.Host...)
	b = append(b, "\r\n"...)

	var named []string
	if fields := r.Header[headerConnection]; len(fields) > 0 {
		connectionTokens(r.Header, func(name string) { named = append(named, name) })
	}
	for name, values := range r.Header {
		if managed(name) || alias(name) || slices.Contains(named, name) {
			continue
		}
		for _, v := range values {
			b = appendField(b, name, v, o.upgrade)
		}
	}
	return append(appendManaged(b, r, o), "\r\n"...)
}

// appendField writes one field. Names of the WebSocket handshake are written as
// RFC 6455 does: there are servers that know no other case.
func appendField(b []byte, name, value string, upgrade bool) []byte {
	if rest, ok := strings.CutPrefix(name, "Sec-Websocket-"); ok && upgrade {
		b = append(b, "Sec-WebSocket-"...)
		name = rest
	}
	b = append(b, name...)
	b = append(b, ": "...)
	b = append(b, value...)
	return append(b, "\r\n"...)
}

// appendManaged writes what the proxy says itself.
func appendManaged(b []byte, r *http.Request, o outbound) []byte {
	b = appendForwarded(b, r, o)
	b = appendField(b, headerRequestID, o.requestID, false)
	b = append(b, headerHops+": "...)
	b = strconv.AppendInt(b, int64(o.hops), 10)
	b = append(b, "\r\n"...)
	if o.upgrade {
		return append(b, "Connection: Upgrade\r\nUpgrade: websocket\r\n"...)
	}
	if hasToken(r.Header[headerTe], "trailers") {
		// The only coding that a proxy may pass on: the answer's trailers are.
		b = append(b, "Te: trailers\r\n"...)
	}
	switch {
	case o.body && r.ContentLength < 0:
		b = append(b, "Transfer-Encoding: chunked\r\n"...)
	case o.body || len(r.Header[headerContentLength]) > 0:
		b = append(b, headerContentLength+": "...)
		b = strconv.AppendInt(b, max(r.ContentLength, 0), 10)
		b = append(b, "\r\n"...)
	}
	if o.body && expectsContinue(r) {
		b = append(b, "Expect: 100-continue\r\n"...)
	}
	return b
}

// appendForwarded says where the request came from. A peer that is not trusted
// is the origin, whatever it says; one that is has its word kept, and is added.
func appendForwarded(b []byte, r *http.Request, o outbound) []byte {
	proto := "http"
	if r.TLS != nil {
		proto = "https"
	}
	prior := func(name string) []string {
		if o.trusted {
			return r.Header[name]
		}
		return nil
	}
	b = append(b, headerForwardedFor+": "...)
	for _, v := range prior(headerForwardedFor) {
		b = append(b, v...)
		b = append(b, ", "...)
	}
	b = append(b, o.peerText...)
	b = append(b, "\r\n"...)
	b = appendPrior(b, headerForwardedHost, prior(headerForwardedHost), r.Host)
	b = appendPrior(b, headerForwardedProto, prior(headerForwardedProto), proto)
	b = appendPrior(b, headerRealIP, prior(headerRealIP), o.peerText)
	if !o.trusted {
		return b
	}
	for name, values := range r.Header {
		switch name {
		case headerForwardedFor, headerForwardedHost, headerForwardedProto:
			continue
		}
		if strings.HasPrefix(name, forwardedPrefix) { // -Port, -Prefix, -Server
			for _, v := range values {
				b = appendField(b, name, v, false)
			}
		}
	}
	if values := r.Header[headerForwarded]; len(values) > 0 {
		for _, v := range values {
			b = appendField(b, headerForwarded, v, false)
		}
		b = append(b, headerForwarded+": for="...)
		if o.peer.Is4() {
			b = append(b, o.peerText...)
		} else {
			b = append(b, "\"["...)
			b = append(b, o.peerText...)
			b = append(b, "]\""...)
		}
		b = append(b, ";proto="...)
		b = append(b, proto...)
		b = append(b, "\r\n"...)
	}
	return b
}

// appendPrior writes what a trusted peer said, or else what this proxy knows.
func appendPrior(b []byte, name string, prior []string, own string) []byte {
	if len(prior) > 0 {
		own = prior[0]
	}
	return appendField(b, name, own, false)
}

func expectsContinue(r *http.Request) bool {
	return r.ProtoAtLeast(1, 1) && hasToken(r.Header[headerExpect], "100-continue")
}

package http1

import (
	"bytes"
	"math"
	"net/http"

	"github.com/fairlead/fairlead/plugins/l7/internal/route"
)

// head is what the lines of a request's head said so far.
type head struct {
	version  byte // the minor one
	get      bool
	hosts    int
	length   int64 // of the body; valid if hasLength
	upgrades int
	ws       bool // the upgrade is to websocket
	connUp   bool // Connection names upgrade

	hasLength bool
	chunked   bool
	upgrade   bool // a valid one: see check
}

// refusedMethod is the method of the guard's own requests. No client can send
// it.
const refusedMethod = "FAIRLEAD-REFUSED"

// requestLine reads METHOD SP target SP version (RFC 9112, section 3).
func (h *head) requestLine(line []byte, s *Scanner) *Refusal {
	method, rest, ok := bytes.Cut(line, []byte{' '})
	if !ok {
		return bad("the request line has no target")
	}
	for _, c := range method {
		if !isToken(c) {
			return bad("the method is no token")
		}
	}
	target, version, _ := bytes.Cut(rest, []byte{' '})
	switch {
	case len(target) == 0:
		return bad("the request line has two spaces in a row")
	case string(version) == "HTTP/1.1":
		h.version = 1
	case string(version) == "HTTP/1.0":
	case len(version) == 8 && bytes.HasPrefix(version, []byte("HTTP/")) && version[6] == '.' && isDigit(version[5]) && isDigit(version[7]):
		return &Refusal{http.StatusHTTPVersionNotSupported, "a version of HTTP other than 1.0 and 1.1"}
	default:
		return bad("the request line does not end in a version of HTTP")
	}
	switch string(method) {
	case "GET":
		h.get = true
	case http.MethodConnect, http.MethodTrace:
		return &Refusal{http.StatusNotImplemented, "the method " + string(method) + " is not served"}
	case refusedMethod:
		return &Refusal{http.StatusNotImplemented, "the method is not served"}
	}
	return h.target(target, string(method) == http.MethodOptions, s)
}

// target checks the origin, absolute and asterisk forms (RFC 9112, section
// 3.2).
func (h *head) target(target []byte, options bool, s *Scanner) *Refusal {
	for _, c := range target {
		if c <= ' ' || c >= 0x7f {
			return bad("a byte in the target that has to be escaped")
		}
		if c == '#' {
			return bad("a fragment in the target")
		}
	}
	if string(target) == "*" {
		if !options {
			return bad("the target * is for OPTIONS only")
		}
		return nil
	}
	if target[0] != '/' {
		scheme, rest, ok := bytes.Cut(target, []byte("://"))
		if !ok || !bytes.EqualFold(scheme, []byte("http")) && !bytes.EqualFold(scheme, []byte("https")) {
			return bad("the target is neither a path nor an http URL")
		}
		end := bytes.IndexAny(rest, "/?")
		if end < 0 {
			end = len(rest)
		}
		if !s.goodHost(rest[:end]) {
			return bad("no valid host in the target")
		}
		target = rest[end:]
	}
	path, _, _ := bytes.Cut(target, []byte{'?'})
	for i := bytes.IndexByte(path, '%'); i >= 0; {
		if i+2 >= len(path) || unhex(path[i+1]) > 15 || unhex(path[i+2]) > 15 {
			return bad("a broken escape in the target")
		}
		next := bytes.IndexByte(path[i+3:], '%')
		if next < 0 {
			break
		}
		i += 3 + next
	}
	return nil
}

// goodHost remembers the last host: a connection's requests are for the same
// one nearly always.
func (s *Scanner) goodHost(host []byte) bool {
	if len(host) > 0 && bytes.Equal(host, s.host) {
		return true
	}
	if _, err := route.Canonical(string(host)); err != nil {
		return false
	}
	s.host = append(s.host[:0], host...)
	return true
}

// field reads one header field.
func (h *head) field(line []byte, s *Scanner) *Refusal {
	name, value, r := splitField(line)
	if r != nil {
		return r
	}
	switch len(name) {
	case len("Host"):
		if is(name, "host") {
			if h.hosts++; h.hosts > 1 {
				return bad("two Host headers")
			}
			if !s.goodHost(value) {
				return bad("the Host header is no valid host")
			}
		}
	case len("Trailer"):
		if is(name, "trailer") {
			for announced := range bytes.SplitSeq(value, []byte{','}) {
				if isFraming(bytes.Trim(announced, " \t")) {
					return bad("the Trailer header announces a field that belongs into the header")
				}
			}
		} else if is(name, "upgrade") {
			if h.upgrades++; h.upgrades > 1 {
				return bad("two Upgrade headers")
			}
			if h.ws = is(value, "websocket"); is(value, "h2c") {
				return &Refusal{http.StatusNotImplemented, "an upgrade to h2c: HTTP/2 is not served by upgrade"}
			} else if !h.ws {
				return &Refusal{http.StatusNotImplemented, "an upgrade to anything but websocket"}
			}
		}
	case len("Expect"):
		if is(name, "expect") && len(value) > 0 && !is(value, "100-continue") {
			return &Refusal{http.StatusExpectationFailed, "an expectation other than 100-continue"}
		}
	case len("Connection"):
		if is(name, "connection") {
			for option := range bytes.SplitSeq(value, []byte{','}) {
				h.connUp = h.connUp || is(bytes.Trim(option, " \t"), "upgrade")
			}
		}
	case len("Content-Length"):
		if is(name, "content-length") {
			if h.hasLength {
				return bad("two Content-Length headers")
			}
			h.hasLength = true
			return h.contentLength(value)
		}
		if is(name, "http2-settings") {
			return &Refusal{http.StatusNotImplemented, "HTTP2-Settings: HTTP/2 is not served by upgrade"}
		}
	case len("Transfer-Encoding"):
		if is(name, "transfer-encoding") {
			if h.chunked {
				return bad("two Transfer-Encoding headers")
			}
			if !is(value, "chunked") {
				return bad("a Transfer-Encoding other than chunked")
			}
			h.chunked = true
		}
	}
	return nil
}

func (h *head) contentLength(value []byte) *Refusal {
	if len(value) == 0 {
		return bad("an empty Content-Length")
	}
	for _, c := range value {
		if !isDigit(c) {
			return bad("a Content-Length that is no number")
		}
		d := int64(c - '0')
		if h.length > (math.MaxInt64-d)/10 {
			return bad("a Content-Length that is out of range")
		}
		h.length = h.length*10 + d
	}
	return nil
}

// check looks at the whole of a head.
func (h *head) check() *Refusal {
	switch {
	case h.version == 1 && h.hosts == 0:
		return bad("no Host header")
	case h.chunked && h.hasLength:
		return bad("both Transfer-Encoding and Content-Length")
	case h.chunked && h.version == 0:
		return bad("Transfer-Encoding in HTTP/1.0")
	case h.upgrades == 0:
		return nil
	case h.version == 0:
		return bad("Upgrade in HTTP/1.0")
	case !h.connUp:
		return bad("Upgrade that Connection does not name")
	case !h.get || h.chunked || h.length > 0:
		return bad("an upgrade to websocket that is no GET without body")
	}
	h.upgrade = true
	return nil
}

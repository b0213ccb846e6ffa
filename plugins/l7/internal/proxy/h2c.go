package proxy

import (
	"net/http"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/fairlead/fairlead/plugins/l7/internal/route"
)

// badHTTP2 says what is wrong with the head of a request of HTTP/2 that net/http
// lets pass, "" if nothing is. The requests of HTTP/1 were checked by http1.
func badHTTP2(r *http.Request) string {
	if r.ProtoMajor < 2 {
		return ""
	}
	if why := badRequestLine(r); why != "" {
		return why
	}
	// net/http goes by :authority, or else by the first Host, and by the first
	// Content-Length. Who reads another one reads another request.
	hosts := r.Header["Host"]
	switch {
	case len(hosts) > 1:
		return "two Host headers"
	case len(hosts) == 1 && !sameHost(hosts[0], r.Host):
		return "a Host header that is not what :authority says"
	case len(r.Header[headerContentLength]) > 1:
		return "two Content-Length headers"
	}
	return ""
}

// badRequestLine says why method and target of a request cannot be written as a
// line. HTTP/2 has no such line, and net/http lets blanks pass there: "GET /admin
// HTTP/1.1" would be a method. It lets a URL pass as well, whose host counts for
// nothing there.
func badRequestLine(r *http.Request) string {
	if !httpguts.ValidHeaderFieldName(r.Method) { // a token, as a method is
		return "the method is no token"
	}
	for i := range len(r.RequestURI) {
		if c := r.RequestURI[i]; c <= ' ' || c >= 0x7f {
			return "a byte in the target that has to be escaped"
		}
	}
	if !strings.HasPrefix(r.RequestURI, "/") && r.RequestURI != "*" {
		return "the target is no path"
	}
	return ""
}

// sameHost reports whether two hosts are the same but for their spelling.
func sameHost(a, b string) bool {
	if a == b {
		return true
	}
	x, err := route.Canonical(a)
	if err != nil {
		return false
	}
	y, err := route.Canonical(b)
	return err == nil && x == y
}

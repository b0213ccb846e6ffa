package proxy

import (
	"net/http"
	"strings"
)

// The names of headers as net/http writes them.
const (
	headerConnection     = "Connection"
	headerContentLength  = "Content-Length"
	headerExpect         = "Expect"
	headerForwarded      = "Forwarded"
	headerForwardedFor   = "X-Forwarded-For"
	headerForwardedHost  = "X-Forwarded-Host"
	headerForwardedProto = "X-Forwarded-Proto"
	headerHops           = "X-Fairlead-Hops"
	headerRealIP         = "X-Real-Ip"
	headerReason         = "X-Fairlead-Reason"
	headerRequestID      = "X-Request-Id"
	headerTe             = "Te"
	headerTrailer        = "Trailer"
	headerUpgrade        = "Upgrade"

	forwardedPrefix = "X-Forwarded-"
)

// hopByHop reports whether a header concerns one connection only (RFC 9110
// section 7.6.1, and those that RFC 2616 section 13.5.1 listed).
func hopByHop(name string) bool {
	switch name {
	case headerConnection, "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization",
		headerTe, headerTrailer, "Transfer-Encoding", headerUpgrade, "Http2-Settings":
		return true
	}
	return false
}

// managed reports whether the proxy writes this header of a request itself, or
// a backend may believe that a proxy wrote it. name is as net/http writes it.
func managed(name string) bool {
	switch name {
	case "Host", headerContentLength, headerForwarded, headerRealIP, headerHops, headerRequestID, headerExpect:
		return true
	}
	return strings.HasPrefix(name, forwardedPrefix) || hopByHop(name)
}

// alias reports whether name reads like a managed header once '_' and '.' are
// taken for '-', as CGI and its heirs do (CVE-2026-39858, CVE-2026-52845).
func alias(name string) bool {
	if !strings.ContainsAny(name, "_.") {
		return false
	}
	return managed(http.CanonicalHeaderKey(strings.Map(func(r rune) rune {
		if r == '_' || r == '.' {
			return '-'
		}
		return r
	}, name)))
}

// inTrailer reports whether a field may stand in a trailer: it must not say
// where a message ends, goes to or comes from, how it is read, or who sent it
// (RFC 9110 section 6.5.1).
func inTrailer(name string) bool {
	switch name {
	case "Authorization", "Cache-Control", "Content-Encoding", "Content-Range", "Content-Type", "Cookie",
		"Expires", "Location", "Max-Forwards", "Pragma", "Range", "Set-Cookie", "Vary", "Www-Authenticate":
		return false
	}
	return !managed(name) && !alias(name)
}

// connectionTokens calls f with each name in the Connection fields, as net/http
// writes names.
func connectionTokens(h http.Header, f func(name string)) {
	for _, field := range h[headerConnection] {
		for token := range strings.SplitSeq(field, ",") {
			if token = strings.Trim(token, " \t"); token != "" {
				f(http.CanonicalHeaderKey(token))
			}
		}
	}
}

// hasToken reports whether one of the comma-separated fields holds the token,
// whatever its case.
func hasToken(fields []string, token string) bool {
	for _, field := range fields {
		for t := range strings.SplitSeq(field, ",") {
			if strings.EqualFold(strings.Trim(t, " \t"), token) {
				return true
			}
		}
	}
	return false
}

package route

import (
	"fmt"
	"strings"
)

// Target is a request target (RFC 9112, section 3.2) in its parts, which are
// the bytes of the request. Path and Query go to the backend unchanged.
type Target struct {
	Authority string // of the absolute form: it wins over the Host header
	Path      string // "/…", or "*" of OPTIONS
	Query     string // without its "?"
	HasQuery  bool   // also of an empty query
}

// ParseTarget splits a request target of origin, absolute or asterisk form. An
// absolute one without a path has the path "/".
func ParseTarget(target string) (Target, error) {
	var t Target
	if i := strings.IndexByte(target, '#'); i >= 0 {
		return t, fmt.Errorf("%w target %q: a fragment is never sent", ErrInvalid, short(target))
	}
	rest := target
	if rest != "*" && !strings.HasPrefix(rest, "/") {
		scheme, after, ok := strings.Cut(rest, "://")
		if !ok || !strings.EqualFold(scheme, "http") && !strings.EqualFold(scheme, "https") {
			return t, fmt.Errorf("%w target %q: neither a path nor an http URL", ErrInvalid, short(target))
		}
		end := strings.IndexAny(after, "/?")
		if end < 0 {
			end = len(after)
		}
		t.Authority, rest = after[:end], after[end:]
		if t.Authority == "" {
			return t, fmt.Errorf("%w target %q: it has no host", ErrInvalid, short(target))
		}
	}
	t.Path, t.Query, t.HasQuery = strings.Cut(rest, "?")
	if t.Path == "" {
		t.Path = "/"
	}
	return t, nil
}

// Path returns the form of a raw path (without query) that routes are compared
// with: every escape decoded but %2F and %25, which stay, because an escaped
// slash is no border between segments. So two raw paths have one form only if
// every backend reads them alike. Paths that some backend might read as another
// one are refused with ErrInvalid: "." and ".." segments however they are
// written, also before a semicolon; backslashes, control bytes, fragments and
// broken escapes. It allocates only for escapes.
func Path(raw string) (string, error) {
	if raw == "*" {
		return raw, nil
	}
	if raw == "" || raw[0] != '/' {
		return "", fmt.Errorf("%w path %q: it does not begin with a slash", ErrInvalid, short(raw))
	}
	escapes := false
	for i := range len(raw) {
		switch c := raw[i]; {
		case c == '%':
			escapes = true
		case c <= ' ' || c == 0x7f || c == '#' || c == '?' || c == '\\':
			return "", fmt.Errorf("%w path %q: byte 0x%02x has to be escaped", ErrInvalid, short(raw), c)
		}
	}
	path := raw
	if escapes {
		var err error
		if path, err = unescape(raw); err != nil {
			return "", err
		}
	}
	if hasDotSegment(path) {
		return "", fmt.Errorf("%w path %q: a segment of one or two dots: send the path that is meant", ErrInvalid, short(raw))
	}
	return path, nil
}

// Prefix is Path for the prefix of a route: a slash at its end counts for
// nothing, and what matches every path is "".
func Prefix(raw string) (string, error) {
	if raw == "" {
		return "", nil
	}
	path, err := Path(raw)
	if err == nil && path == "*" {
		err = fmt.Errorf("%w path %q: a prefix begins with a slash", ErrInvalid, raw)
	}
	return strings.TrimSuffix(path, "/"), err
}

func unescape(raw string) (string, error) {
	out := make([]byte, 0, len(raw))
	for i := 0; i < len(raw); i++ {
		if raw[i] != '%' {
			out = append(out, raw[i])
			continue
		}
		if i+2 >= len(raw) || unhex(raw[i+1]) > 15 || unhex(raw[i+2]) > 15 {
			return "", fmt.Errorf("%w path %q: a broken escape", ErrInvalid, short(raw))
		}
		c := unhex(raw[i+1])<<4 | unhex(raw[i+2])
		i += 2
		switch {
		case c < ' ' || c == 0x7f:
			return "", fmt.Errorf("%w path %q: control byte 0x%02x", ErrInvalid, short(raw), c)
		case c == '/':
			out = append(out, "%2F"...)
		case c == '%':
			out = append(out, "%25"...)
		default:
			out = append(out, c)
		}
	}
	return string(out), nil
}

func unhex(c byte) byte {
	switch {
	case '0' <= c && c <= '9':
		return c - '0'
	case 'a' <= c|0x20 && c|0x20 <= 'f':
		return c | 0x20 - 'a' + 10
	}
	return 255
}

// hasDotSegment looks at a path in the form of Path. What some server takes for
// a border is one here.
func hasDotSegment(path string) bool {
	for i := 0; i < len(path); i++ {
		rest := path[i:]
		switch {
		case rest[0] == '/' || rest[0] == '\\':
			rest = rest[1:]
		case strings.HasPrefix(rest, "%2F"):
			rest = rest[3:]
		default:
			continue
		}
		dots := 0
		for dots < len(rest) && rest[dots] == '.' {
			dots++
		}
		if dots != 1 && dots != 2 {
			continue
		}
		if rest = rest[dots:]; rest == "" || strings.IndexByte("/\\;", rest[0]) >= 0 || strings.HasPrefix(rest, "%2F") {
			return true
		}
	}
	return false
}

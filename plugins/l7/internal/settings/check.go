package settings

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Check says what is wrong with the settings as a whole: each error in it is a
// *Problem.
func (s Settings) Check() error {
	var errs []error
	problem := func(key, format string, args ...any) {
		errs = append(errs, &Problem{key, fmt.Sprintf(format, args...)})
	}
	if len(s.Listen) == 0 {
		problem("listen", "is empty: name an address to take requests at, such as 127.0.0.1:8080")
	}
	for i, a := range s.Listen {
		if why := CheckListen(a); why != "" {
			problem("listen", "is %q: %s", a, why)
		} else if slices.Contains(s.Listen[:i], a) && !anyPort(a) {
			problem("listen", "has %s twice: remove one", a)
		}
	}
	if s.Admin != Off {
		if why := CheckListen(s.Admin); why != "" {
			problem("admin", "is %q: %s, or %s", s.Admin, why, Off)
		} else if slices.Contains(s.Listen, s.Admin) && !anyPort(s.Admin) {
			problem("admin", "is %s, where requests are taken already: choose another port", s.Admin)
		}
	}
	if why := checkZone(s.Zone); why != "" {
		problem("zone", "is %q: %s", s.Zone, why)
	}
	switch s.AccessLog {
	case Off, AccessLogStderr, AccessLogStdout:
	default:
		problem("access_log", "is %q: want %s, %s or %s", s.AccessLog, Off, AccessLogStderr, AccessLogStdout)
	}
	if s.Ejection.First > s.Ejection.Most {
		problem("eject_first", "is %v, above eject_most, %v: lower it", s.Ejection.First, s.Ejection.Most)
	}
	if t := s.Timeouts; t.FirstByte != 0 && t.Try > t.FirstByte {
		problem("try_timeout", "is %v, above first_byte_timeout, %v: lower it", t.Try, t.FirstByte)
	}
	return errors.Join(errs...)
}

// CheckListen says what is wrong with an address to listen at, "" if nothing is.
func CheckListen(address string) string {
	const want = "want IP:PORT or localhost:PORT"
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return want
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return want + ", with a port from 0 to 65535"
	}
	if host == "" {
		return want + "; all addresses are 0.0.0.0 and [::]"
	}
	if _, err := netip.ParseAddr(host); err != nil && host != "localhost" {
		return want
	}
	return ""
}

func anyPort(address string) bool { return strings.HasSuffix(address, ":0") }

func checkZone(zone string) string {
	if zone == "" || len(zone) > 200 {
		return "want a domain such as mesh.internal"
	}
	for label := range strings.SplitSeq(zone, ".") {
		if label == "" || len(label) > 63 || strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" || strings.HasPrefix(label, "-") || strings.HasSuffix(label, "-") {
			return "want a domain in lower case, such as mesh.internal"
		}
	}
	return ""
}

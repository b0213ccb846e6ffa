package health

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/fairlead/fairlead/core/model"
)

// ErrCheck is wrapped by whatever is wrong with a check.
var ErrCheck = errors.New("health: bad check")

// Limits of a check.
const (
	MinInterval = 100 * time.Millisecond
	MaxInterval = time.Hour
	// MaxThreshold bounds SuccessBeforePassing and FailuresBeforeCritical.
	MaxThreshold = 100
	// MaxTargetBytes bounds a path and the name of a gRPC service.
	MaxTargetBytes = 1024
	// DefaultTimeout applies where a check has none, and its interval is not
	// shorter.
	DefaultTimeout = time.Second
)

// Kind is how a check probes.
type Kind uint8

// The kinds of checks.
const (
	HTTP Kind = 1 // GET; a status from 200 to 399 passes, redirects are not followed
	TCP  Kind = 2 // a connection that is accepted passes; it is closed at once
	GRPC Kind = 3 // grpc.health.v1.Health/Check; SERVING passes
)

// Check is one health check of an instance.
type Check struct {
	Kind    Kind
	Address netip.AddrPort // zero: the instance's
	Path    string         // of HTTP: path and query
	Service string         // of GRPC: what to ask for; "" is the server as a whole

	Interval time.Duration // from the start of one probe to that of the next; MinInterval to MaxInterval
	Timeout  time.Duration // of one probe, connecting included; at most Interval; 0: DefaultTimeout or Interval

	SuccessBeforePassing   int // consecutive successes that make it passing; 0 is 1
	FailuresBeforeCritical int // consecutive failures that make it critical; 0 is 1
}

// InstanceKey names an instance on this node.
type InstanceKey struct {
	Service model.ServiceKey
	ID      string
}

// Instance is what to check.
type Instance struct {
	Key    InstanceKey
	Addr   netip.AddrPort // where it listens, as seen from the agent
	Checks []Check        // none: it passes
}

// ParseHTTP reads the target of an HTTP check: a path at the instance's address
// ("/healthz") or a URL whose host is ip:port ("http://127.0.0.1:9001/healthz").
func ParseHTTP(target string) (Check, error) {
	c := Check{Kind: HTTP, Path: target}
	if rest, ok := strings.CutPrefix(target, "http://"); ok {
		host, path, _ := strings.Cut(rest, "/")
		addr, err := parseAddress(host)
		if err != nil {
			return Check{}, err
		}
		c.Address, c.Path = addr, "/"+path
	}
	return c, c.validTarget()
}

func parseAddress(s string) (netip.AddrPort, error) {
	a, err := netip.ParseAddrPort(s)
	if err != nil || !isTarget(a) {
		return netip.AddrPort{}, fmt.Errorf("%w: the address %.80q: want ip:port, such as 127.0.0.1:9001; names are not looked up", ErrCheck, s)
	}
	return a, nil
}

func isTarget(a netip.AddrPort) bool {
	return a.IsValid() && a.Port() != 0 && !a.Addr().IsUnspecified() && !a.Addr().IsMulticast()
}

// Validate says what is wrong with the check, as an error that wraps ErrCheck.
func (c Check) Validate() error {
	if err := c.validTarget(); err != nil {
		return err
	}
	if c.Interval < MinInterval || c.Interval > MaxInterval {
		return fmt.Errorf("%w: the interval is %s: set %s to %s", ErrCheck, c.Interval, MinInterval, MaxInterval)
	}
	if c.Timeout < 0 || c.Timeout > c.Interval {
		return fmt.Errorf("%w: the timeout is %s: set at most the interval, %s, or probes would overlap", ErrCheck, c.Timeout, c.Interval)
	}
	if n := c.SuccessBeforePassing; n < 0 || n > MaxThreshold {
		return fmt.Errorf("%w: success_before_passing is %d: set 0 to %d", ErrCheck, n, MaxThreshold)
	}
	if n := c.FailuresBeforeCritical; n < 0 || n > MaxThreshold {
		return fmt.Errorf("%w: failures_before_critical is %d: set 0 to %d", ErrCheck, n, MaxThreshold)
	}
	return nil
}

func (c Check) validTarget() error {
	if c.Address != (netip.AddrPort{}) && !isTarget(c.Address) {
		return fmt.Errorf("%w: the address %s: set one ip:port, such as 127.0.0.1:9001", ErrCheck, c.Address)
	}
	switch c.Kind {
	case HTTP:
		if !strings.HasPrefix(c.Path, "/") || len(c.Path) > MaxTargetBytes || strings.ContainsFunc(c.Path, breaksRequest) {
			return fmt.Errorf("%w: the path %.80q: set one that begins with a slash, such as /healthz, without blanks or #, of at most %d bytes",
				ErrCheck, c.Path, MaxTargetBytes)
		}
	case TCP:
	case GRPC:
		if len(c.Service) > MaxTargetBytes || strings.ToValidUTF8(c.Service, "") != c.Service {
			return fmt.Errorf("%w: the gRPC service %.80q: set a name of at most %d bytes", ErrCheck, c.Service, MaxTargetBytes)
		}
	default:
		return fmt.Errorf("%w: it has no kind: set http, tcp or grpc", ErrCheck)
	}
	return nil
}

// breaksRequest tells what cannot stand in a request line.
func breaksRequest(r rune) bool { return r <= ' ' || r >= 0x7f || r == '#' }

// timeout is that of one probe.
func (c Check) timeout() time.Duration {
	if c.Timeout > 0 {
		return c.Timeout
	}
	return min(c.Interval, DefaultTimeout)
}

// Target is where the check of an instance at addr connects to.
func (c Check) Target(addr netip.AddrPort) netip.AddrPort {
	if c.Address.IsValid() {
		return c.Address
	}
	return addr
}

// identity is what makes it the same check of the same instance when a list is
// set anew: all but the timing and the thresholds.
func (c Check) identity(addr netip.AddrPort) string {
	return fmt.Sprintf("%s %s at %s: %s%s", c.Kind, addr, c.Target(addr), c.Path, c.Service)
}

// String prints http, tcp or grpc.
func (k Kind) String() string {
	switch k {
	case HTTP:
		return "http"
	case TCP:
		return "tcp"
	case GRPC:
		return "grpc"
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// String prints "namespace/name/id".
func (k InstanceKey) String() string { return k.Service.String() + "/" + k.ID }

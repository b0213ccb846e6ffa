package dataplane

import (
	"fmt"
	"net/netip"
	"strings"
	"unicode/utf8"
)

// Reasons of a service that is not simply programmed. They are stable words:
// scripts and tests match them.
const (
	ReasonBadFrontend       = "bad-frontend"       // an address that cannot be captured
	ReasonDuplicateFrontend = "duplicate-frontend" // another service has it
	ReasonBadEndpoint       = "bad-endpoint"       // an address that cannot be reached
	ReasonLoop              = "loop"               // an endpoint that is a frontend
	ReasonBadValue          = "bad-value"          // a name or a time that cannot be
	ReasonUnknownValue      = "unknown-value"      // a choice of a later version
	ReasonLimit             = "limit"              // more than the provider, or the contract, takes
	ReasonUnsupported       = "unsupported"        // a feature that the provider lacks
	ReasonApplyFailed       = "apply-failed"       // the system refused it
)

// What one service may say of itself. Both leave room in a message of 1 MiB.
const (
	// MaxDefinitionBytes bounds the strings of a definition, with 32 bytes
	// more for each frontend, host, route, header and method.
	MaxDefinitionBytes = 256 << 10
	// MaxEndpointTextBytes bounds the name and the zone of an endpoint together.
	MaxEndpointTextBytes = 4 << 10
)

// Problem is why a service cannot be programmed as it is.
type Problem struct {
	Status  Status
	Reason  string
	Message string
}

func rejected(reason, format string, args ...any) *Problem {
	return &Problem{StatusRejected, reason, fmt.Sprintf(format, args...)}
}

func unknown(format string, args ...any) *Problem {
	return &Problem{StatusUnsupported, ReasonUnknownValue, fmt.Sprintf(format, args...) + ", which this version does not know: upgrade the provider"}
}

// Check returns what is wrong with the service by itself, or nil.
func (s *Service) Check() *Problem {
	for _, part := range []func() *Problem{s.checkDefinition, s.checkFrontends, s.checkEndpoints} {
		if p := part(); p != nil {
			return p
		}
	}
	return nil
}

func (s *Service) checkDefinition() *Problem {
	size, ok := s.size()
	switch {
	case !ok:
		return rejected(ReasonBadValue, "a name, host or route is no UTF-8 text: write it anew")
	case s.Key.Namespace == "" || s.Key.Name == "" || strings.Contains(s.Key.Namespace+s.Key.Name, "/"):
		return rejected(ReasonBadValue, "service %q: both parts have to be set, and none may hold a slash", s.Key)
	case size > MaxDefinitionBytes:
		return rejected(ReasonLimit, "the definition takes %d bytes, %d at most: split the service", size, MaxDefinitionBytes)
	case s.Balance > BalanceHash:
		return unknown("balance or affinity is %v", s.Balance)
	case s.DrainTime < 0:
		return rejected(ReasonBadValue, "drain time %v is below 0", s.DrainTime)
	case s.Affinity.TTL < 0:
		return rejected(ReasonBadValue, "affinity %v is below 0", s.Affinity.TTL)
	}
	return nil
}

// size is what MaxDefinitionBytes bounds, and whether all of it is UTF-8.
func (s *Service) size() (n int, ok bool) {
	ok = true
	add := func(extra int, parts ...string) {
		for _, p := range parts {
			n += len(p) + extra
			ok = ok && utf8.ValidString(p)
		}
	}
	const part = 32
	add(0, s.Key.Namespace, s.Key.Name)
	n += part * len(s.Frontends)
	add(part, s.Hosts...)
	for _, r := range s.Routes {
		add(0, r.Host, r.PathPrefix)
		n += part
		add(part, r.Methods...)
		for k, v := range r.Headers {
			add(0, k, v)
			n += part
		}
	}
	return n, ok
}

func (s *Service) checkFrontends() *Problem {
	seen := make(map[Binding]bool, len(s.Frontends))
	for _, f := range s.Frontends {
		switch b := f.Binding(); {
		case f.Protocol != TCP && f.Protocol != UDP, f.Kind != FrontendVIP && f.Kind != FrontendIntercept, f.OnEmpty > OnEmptyPass:
			return unknown("frontend %v has protocol %v, kind %v, on_empty %v", f.Addr, f.Protocol, f.Kind, f.OnEmpty)
		case !usable(f.Addr) || f.Addr.Addr().IsMulticast() || f.Addr.Addr().Is4In6():
			return rejected(ReasonBadFrontend, "frontend %v is no address of a service: give an IP address and a port", f.Addr)
		case seen[b]:
			return rejected(ReasonDuplicateFrontend, "frontend %v/%v is listed twice: remove one", f.Addr, f.Protocol)
		default:
			seen[b] = true
		}
	}
	return nil
}

func (s *Service) checkEndpoints() *Problem {
	for e := range s.Endpoints.All() {
		switch {
		case e.ID == 0:
			return rejected(ReasonBadEndpoint, "endpoint %s has no id: give it one that no other endpoint of the service has", e.label())
		case e.State > Draining:
			return unknown("endpoint %s has state %v", e.label(), e.State)
		case !usable(e.Addr) || !usable(e.Foreign()):
			return rejected(ReasonBadEndpoint, "endpoint %s has no address to connect to (%v, foreign %v): give its instance one", e.label(), e.Addr, e.AddrForeign)
		case len(e.Name)+len(e.Zone) > MaxEndpointTextBytes:
			return rejected(ReasonLimit, "endpoint %016x has a name and a zone of %d bytes, %d at most: shorten them", e.ID, len(e.Name)+len(e.Zone), MaxEndpointTextBytes)
		case !utf8.ValidString(e.Name) || !utf8.ValidString(e.Zone):
			return rejected(ReasonBadValue, "endpoint %016x has a name or zone that is no UTF-8 text: write it anew", e.ID)
		}
		for _, f := range s.Frontends {
			if f.Addr == e.Addr || f.Addr == e.Foreign() {
				return rejected(ReasonLoop, "endpoint %s is at %v, which is a frontend of the service itself: connections would go in a circle; give the instance another address", e.label(), f.Addr)
			}
		}
	}
	return nil
}

func (e Endpoint) label() string {
	if e.Name != "" {
		return e.Name
	}
	return fmt.Sprintf("%016x", e.ID)
}

// usable reports whether another host could connect to a.
func usable(a netip.AddrPort) bool {
	return a.IsValid() && a.Port() != 0 && !a.Addr().IsUnspecified() && a.Addr().Zone() == ""
}

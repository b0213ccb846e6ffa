package dataplane

import (
	"fmt"
	"net/netip"
)

// Reasons of a service that is not simply programmed. They are stable words:
// scripts and tests match them.
const (
	ReasonBadFrontend       = "bad-frontend"       // an address that cannot be captured
	ReasonDuplicateFrontend = "duplicate-frontend" // another service has it
	ReasonBadEndpoint       = "bad-endpoint"       // an address that cannot be reached
	ReasonLoop              = "loop"               // an endpoint that is a frontend
	ReasonUnknownValue      = "unknown-value"      // a choice of a later version
	ReasonLimit             = "limit"              // more than the provider takes
	ReasonUnsupported       = "unsupported"        // a feature that the provider lacks
	ReasonApplyFailed       = "apply-failed"       // the system refused it
)

// Problem is why a service cannot be programmed as it is.
type Problem struct {
	Status  Status
	Reason  string
	Message string
}

// Check returns what is wrong with the service by itself, or nil.
func (s *Service) Check() *Problem {
	seen := make(map[Binding]bool, len(s.Frontends))
	for _, f := range s.Frontends {
		switch b := f.Binding(); {
		case f.Protocol != TCP && f.Protocol != UDP, f.Kind != FrontendVIP && f.Kind != FrontendIntercept, f.OnEmpty > OnEmptyPass:
			return &Problem{StatusUnsupported, ReasonUnknownValue, fmt.Sprintf("frontend %v has protocol %v, kind %v, on_empty %v, which this version does not know: upgrade the provider", f.Addr, f.Protocol, f.Kind, f.OnEmpty)}
		case !usable(f.Addr) || f.Addr.Addr().IsMulticast():
			return &Problem{StatusRejected, ReasonBadFrontend, fmt.Sprintf("frontend %v is no address of a service: give an IP address and a port", f.Addr)}
		case seen[b]:
			return &Problem{StatusRejected, ReasonDuplicateFrontend, fmt.Sprintf("frontend %v/%v is listed twice: remove one", f.Addr, f.Protocol)}
		default:
			seen[b] = true
		}
	}
	if s.Balance > BalanceHash {
		return &Problem{StatusUnsupported, ReasonUnknownValue, fmt.Sprintf("balance %v is not known to this version: upgrade the provider", s.Balance)}
	}
	for _, e := range s.Endpoints {
		switch {
		case e.State > Draining:
			return &Problem{StatusUnsupported, ReasonUnknownValue, fmt.Sprintf("endpoint %s has state %v, which this version does not know: upgrade the provider", e.label(), e.State)}
		case !usable(e.Addr) || e.AddrForeign.IsValid() && !usable(e.AddrForeign):
			return &Problem{StatusRejected, ReasonBadEndpoint, fmt.Sprintf("endpoint %s has no address to connect to (%v, foreign %v): give its instance one", e.label(), e.Addr, e.AddrForeign)}
		}
		for b := range seen {
			if b.Addr == e.Addr || b.Addr == e.Foreign() {
				return &Problem{StatusRejected, ReasonLoop, fmt.Sprintf("endpoint %s is at %v, which is a frontend of the service itself: connections would go in a circle; give the instance another address", e.label(), b.Addr)}
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

func usable(a netip.AddrPort) bool {
	return a.IsValid() && a.Port() != 0 && !a.Addr().IsUnspecified()
}

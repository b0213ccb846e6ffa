package fake

import (
	"fmt"
	"strings"
	"time"

	"github.com/fairlead/fairlead/dataplane"
)

// endpointMark begins the line of an endpoint.
const endpointMark = "  endpoint "

// render prints all of a service that a data plane acts on.
func render(s *dataplane.Service) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s", s.Key)
	if s.Balance != dataplane.BalanceDefault {
		fmt.Fprintf(&b, " balance %v", s.Balance)
	}
	if s.Affinity.ByClient {
		fmt.Fprintf(&b, " affinity %v", s.Affinity.TTL)
	}
	if s.DrainTime != 0 {
		fmt.Fprintf(&b, " drain %v", s.DrainTime)
	}
	for _, h := range s.Hosts {
		fmt.Fprintf(&b, " host %s", h)
	}
	b.WriteByte('\n')
	for _, r := range s.Routes {
		fmt.Fprintf(&b, "  route %s%s headers %v methods %v\n", r.Host, r.PathPrefix, r.Headers, r.Methods)
	}
	for _, f := range s.Frontends {
		empty := "pass"
		if f.Refuses() {
			empty = "refuse"
		}
		fmt.Fprintf(&b, "  %v %v/%v on empty %s\n", f.Kind, f.Addr, f.Protocol, empty)
	}
	for e := range s.Endpoints.All() {
		fmt.Fprintf(&b, endpointMark+"%016x %s %v %v weight %d", e.ID, e.Name, e.Addr, e.State, e.Weight)
		if e.AddrForeign.IsValid() {
			fmt.Fprintf(&b, " foreign %v", e.AddrForeign)
		}
		if e.Zone != "" {
			fmt.Fprintf(&b, " zone %s", e.Zone)
		}
		if !e.DrainUntil.IsZero() {
			fmt.Fprintf(&b, " until %s", e.DrainUntil.UTC().Format(time.RFC3339))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

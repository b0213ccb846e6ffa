package layout

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/fairlead/fairlead/dataplane"
)

// Plan is what the maps should say of one service, before anything has a place in
// them.
type Plan struct {
	Frontends []dataplane.Frontend
	// Slots are the sets' endpoints. A family without frontends has none, nor has
	// one whose addresses are the same for all: there Foreign is nil, see Shared.
	Slots    [Families][Scopes][]Slot
	Needs    [Families]bool // has frontends of the family
	Shared   [Families]bool // home and foreign are the same set
	Affinity uint32         // seconds; 0: none
}

// Compile plans a service. What it says beside the plan is what cannot be done:
// StatusPartial goes with a plan that is good, anything else with none.
func Compile(svc *dataplane.Service) (Plan, *dataplane.Problem) {
	p := Plan{Frontends: svc.Frontends, Affinity: affinity(svc.Affinity)}
	if name := svc.Key.String(); len(name) > NameBytes-1 {
		return p, problem(dataplane.StatusRejected, dataplane.ReasonLimit, "the name has %d bytes, %d at most: shorten it", len(name), NameBytes-1)
	}
	for _, f := range svc.Frontends {
		p.Needs[FamilyOf(f.Addr.Addr())] = true
	}
	usable := svc.Usable()
	var reachable int
	for f := range Families {
		if !p.Needs[f] {
			continue
		}
		home, weights := pick(usable, f, Home)
		foreign, foreignWeights := pick(usable, f, Foreign)
		reachable += len(home)
		for _, n := range []int{len(home), len(foreign)} {
			if n > MaxCount {
				return p, problem(dataplane.StatusRejected, dataplane.ReasonLimit, "%d endpoints, %d at most: split the service", n, MaxCount)
			}
		}
		p.Slots[f][Home] = spread(home, weights)
		p.Slots[f][Foreign] = spread(foreign, foreignWeights)
		if equal(p.Slots[f][Home], p.Slots[f][Foreign]) {
			p.Shared[f], p.Slots[f][Foreign] = true, nil
		}
	}
	return p, partial(svc, usable, reachable)
}

// partial says what of a service works differently than it asks for.
func partial(svc *dataplane.Service, usable []dataplane.Endpoint, reachable int) *dataplane.Problem {
	switch svc.Balance {
	case dataplane.BalanceDefault, dataplane.BalanceRandom:
	default:
		return problem(dataplane.StatusPartial, dataplane.ReasonUnsupported, "balance %v is asked for, random by weight is what a socket gets", svc.Balance)
	}
	if len(svc.Frontends) > 0 && reachable == 0 && len(usable) > 0 {
		return problem(dataplane.StatusPartial, dataplane.ReasonUnsupported,
			"none of %d endpoints has an address of a frontend's family: a socket of one family cannot be led to another", len(usable))
	}
	return nil
}

func problem(s dataplane.Status, reason, format string, args ...any) *dataplane.Problem {
	return &dataplane.Problem{Status: s, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// affinity is the time in whole seconds, rounded up; a client without a time of
// its own stays for three hours, as in Kubernetes.
func affinity(a dataplane.Affinity) uint32 {
	switch {
	case !a.ByClient:
		return 0
	case a.TTL == 0:
		return uint32(3 * time.Hour / time.Second)
	}
	return uint32(min((a.TTL+time.Second-1)/time.Second, math.MaxInt32))
}

// pick returns the endpoints that have an address of a family which sockets of a
// scope can reach, with their weights.
func pick(endpoints []dataplane.Endpoint, f Family, s Scope) (slots []Slot, weights []uint16) {
	for i, e := range endpoints {
		addr := e.Addr
		if s == Foreign {
			addr = e.Foreign()
			if addr.Addr().IsLoopback() {
				continue // there it means the other namespace itself
			}
		}
		if FamilyOf(addr.Addr()) == f {
			if slots == nil {
				slots, weights = make([]Slot, 0, len(endpoints)-i), make([]uint16, 0, len(endpoints)-i)
			}
			slots, weights = append(slots, Slot{Addr: addr, ID: e.ID}), append(weights, e.Weight)
		}
	}
	return slots, weights
}

// spread repeats each endpoint as often as its weight is worth.
func spread(endpoints []Slot, weights []uint16) []Slot {
	if !slices.ContainsFunc(weights, func(w uint16) bool { return w != weights[0] }) {
		return endpoints // all the same: once each
	}
	var out []Slot
	for i, n := range Share(weights) {
		for range n {
			out = append(out, endpoints[i])
		}
	}
	return out
}

func equal(a, b []Slot) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

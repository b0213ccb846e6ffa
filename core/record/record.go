package record

import (
	"errors"
	"fmt"
	"net/netip"
	"unicode/utf8"

	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/swim/wire"
)

// ErrRecord is wrapped by every refusal of a definition or a vector.
var ErrRecord = errors.New("record: bad node record")

// What one node may say of itself. The counts also bound the memory that a
// definition from elsewhere can take.
const (
	// MaxBytes is the longest encoded definition: what members pull.
	MaxBytes = wire.MaxDefinition
	// MaxInstances is how many instances a node may run.
	MaxInstances = 8192
	// MaxServices is how many services a node may define.
	MaxServices = 8192
	// MaxPorts bounds the ports of a service, and its intercept addresses.
	MaxPorts = 64
	// MaxRoutes bounds the routes of a service, and its hosts.
	MaxRoutes = 256
	// MaxMatches bounds the headers of a route, and its methods.
	MaxMatches = 32
	// MaxText is the longest name, host, path or header, in bytes.
	MaxText = 2048
)

// Definition is what a node says of itself that changes rarely.
type Definition struct {
	Advertise netip.Addr // where other nodes reach this one; zero: its gossip address
	Zone      string
	Services  []model.Service  // in any order; keys are unique
	Instances []model.Instance // in the order of the vector
	Server    *Server          // nil: the node takes no part in the store
}

// Server is a node's part in the store. Its node id is not its raft id for ever: who
// was removed from a group comes back under a new one.
type Server struct {
	ID    uint64         // raft id
	Group uint64         // of servers that it is in; 0: it waits for one
	RPC   netip.AddrPort // of its agents' port
	API   netip.AddrPort // of its client API; not valid: it has none
	// Expect is bootstrap_expect, of a server that may form a group.
	Expect uint8
	// Term is the term in which this server leads, 0 if it does not. It routes calls
	// and proves nothing.
	Term uint64
	// Learner says that this server has no vote, or none yet.
	Learner bool
}

// check refuses what no reader could use. Both sides call it, so that a writer
// hears of it first.
func (d *Definition) check() error {
	switch {
	case len(d.Services) > MaxServices:
		return fmt.Errorf("%w: %d services on one node, at most %d: spread them over more nodes", ErrRecord, len(d.Services), MaxServices)
	case len(d.Instances) > MaxInstances:
		return tooManyInstances(len(d.Instances))
	case d.Advertise.IsValid() && (d.Advertise.IsUnspecified() || d.Advertise.IsMulticast() || d.Advertise.Zone() != ""):
		return fmt.Errorf("%w: advertise address %v: want one that other nodes can connect to", ErrRecord, d.Advertise)
	}
	if err := text("zone", d.Zone); err != nil {
		return err
	}
	if s := d.Server; s != nil && (s.ID == 0 || !reachable(s.RPC)) {
		return fmt.Errorf("%w: server %016x of the store at %v: want an id, and the address and port where it listens", ErrRecord, s.ID, s.RPC)
	}
	keys := make(map[model.ServiceKey]bool, len(d.Services))
	for i := range d.Services {
		s := &d.Services[i]
		if keys[s.Key] {
			return fmt.Errorf("%w: service %s is defined twice: remove one", ErrRecord, s.Key)
		}
		keys[s.Key] = true
		if err := checkService(s); err != nil {
			return err
		}
	}
	type name struct {
		service model.ServiceKey
		id      string
	}
	names := make(map[name]bool, len(d.Instances))
	for i := range d.Instances {
		in := &d.Instances[i]
		if names[name{in.Service, in.ID}] {
			return fmt.Errorf("%w: service %s has two instances %q: rename one", ErrRecord, in.Service, in.ID)
		}
		names[name{in.Service, in.ID}] = true
		if err := checkInstance(in); err != nil {
			return err
		}
	}
	return nil
}

func checkService(s *model.Service) error {
	if err := checkKey(s.Key); err != nil {
		return err
	}
	switch {
	case len(s.Ports) > MaxPorts || len(s.Intercept) > MaxPorts:
		return fmt.Errorf("%w: service %s has %d ports and %d intercept addresses, at most %d of each: split it", ErrRecord, s.Key, len(s.Ports), len(s.Intercept), MaxPorts)
	case len(s.Hosts) > MaxRoutes || len(s.Routes) > MaxRoutes:
		return fmt.Errorf("%w: service %s has %d hosts and %d routes, at most %d of each: split it", ErrRecord, s.Key, len(s.Hosts), len(s.Routes), MaxRoutes)
	case s.VIP.Zone() != "":
		return fmt.Errorf("%w: service %s: VIP %v has a zone, which means nothing on other nodes: remove it", ErrRecord, s.Key, s.VIP)
	case s.Affinity < 0 || s.DrainTime < 0:
		return fmt.Errorf("%w: service %s: affinity %v, drain time %v: neither may be below 0", ErrRecord, s.Key, s.Affinity, s.DrainTime)
	}
	for _, p := range s.Ports {
		if p.Port == 0 {
			return fmt.Errorf("%w: service %s has port 0: set 1 to 65535", ErrRecord, s.Key)
		}
	}
	for _, a := range s.Intercept {
		if !reachable(a) {
			return fmt.Errorf("%w: service %s: intercept address %v: want one address and port", ErrRecord, s.Key, a)
		}
	}
	return checkHTTP(s)
}

func checkHTTP(s *model.Service) error {
	where := "service " + s.Key.String()
	if err := text(where, s.Hosts...); err != nil {
		return err
	}
	for _, r := range s.Routes {
		if len(r.Headers) > MaxMatches || len(r.Methods) > MaxMatches {
			return fmt.Errorf("%w: service %s: a route has %d headers and %d methods, at most %d of each", ErrRecord, s.Key, len(r.Headers), len(r.Methods), MaxMatches)
		}
		if err := text(where, append([]string{r.Host, r.PathPrefix}, r.Methods...)...); err != nil {
			return err
		}
		for k, v := range r.Headers {
			if err := text(where, k, v); err != nil {
				return err
			}
		}
	}
	return nil
}

func checkInstance(in *model.Instance) error {
	if err := checkKey(in.Service); err != nil {
		return err
	}
	if in.ID == "" {
		return fmt.Errorf("%w: service %s has an instance without an id", ErrRecord, in.Service)
	}
	if !reachable(in.Addr) {
		return fmt.Errorf("%w: instance %s of %s is at %v: want the address and port where it listens", ErrRecord, in.ID, in.Service, in.Addr)
	}
	return text("instance of "+in.Service.String(), in.ID)
}

func checkKey(k model.ServiceKey) error {
	if again, err := model.ParseServiceKey(k.String()); err != nil || again != k {
		return fmt.Errorf("%w: service %q: want namespace and name, neither with a slash", ErrRecord, k)
	}
	return text("service", k.Namespace, k.Name)
}

// reachable reports whether one could connect to a.
func reachable(a netip.AddrPort) bool {
	return a.IsValid() && a.Port() != 0 && !a.Addr().IsUnspecified() && !a.Addr().IsMulticast() && a.Addr().Zone() == ""
}

func text(where string, all ...string) error {
	for _, s := range all {
		if len(s) > MaxText || !utf8.ValidString(s) {
			return fmt.Errorf("%w: %s: %.40q has %d bytes: want UTF-8 text of at most %d", ErrRecord, where, s, len(s), MaxText)
		}
	}
	return nil
}

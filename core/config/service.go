package config

import (
	"errors"
	"net/netip"
	"reflect"
	"strings"
	"time"
)

// Service is one service with the instances of it that run on this node. All
// but Intercept and OnEmpty, which concern this node, and Instances should be
// the same on every node.
type Service struct {
	Namespace string           `key:"namespace" doc:"Namespace of the service."`
	Name      string           `key:"name" doc:"Name of the service: a DNS label."`
	Port      uint16           `key:"port" doc:"The service's port on its VIP."`
	Protocol  string           `key:"protocol" enum:"tcp,udp,both" doc:"Transport of the port; both captures it for tcp and for udp."`
	VIP       netip.Addr       `key:"vip" default:"none" doc:"Its address. None is allocated from vip_pools yet."`
	Intercept []netip.AddrPort `key:"intercept" default:"[]" doc:"Further addresses on this node that lead to the service."`
	OnEmpty   string           `key:"on_empty" enum:"pass,refuse" doc:"What its intercept addresses do while it has no endpoint: pass lets a connection through untouched; a VIP always refuses."`
	Balance   string           `key:"balance" enum:"default,random,round-robin,least-load,hash" doc:"How connections are shared out; default is the data plane's own choice."`
	Affinity  time.Duration    `key:"affinity" doc:"How long a client stays at its endpoint after its last connection; 0 is no affinity, at most 24h."`
	Hosts     []string         `key:"hosts" default:"[]" doc:"HTTP hosts that lead to the service, beside NAME, NAME.NAMESPACE and NAME.NAMESPACE.ZONE; *.example.com is every name below, * every host that nobody else has."`
	Routes    []Route          `key:"routes" default:"[]" doc:"HTTP requests that lead to the service whatever else they match."`
	Drain     time.Duration    `key:"drain" doc:"How long connections to an endpoint that is taken out may go on; 0 is no limit, at most 1h."`
	Instances []Instance       `key:"instances" default:"[]" doc:"The instances that run on this node."`
}

// Route matches HTTP requests; all parts that are set have to match.
type Route struct {
	Host       string            `key:"host" doc:"Host of the request, without a port."`
	PathPrefix string            `key:"path_prefix" doc:"How its path begins, a slash first."`
	Headers    map[string]string `key:"headers" default:"{}" doc:"Headers that it has, with these values."`
	Methods    []string          `key:"methods" default:"[]" doc:"Methods, one of which it has; none is all."`
}

// Instance is one running copy of a service on this node.
type Instance struct {
	ID       string         `key:"id" doc:"Name of the instance, unique in its service on this node."`
	Address  netip.AddrPort `key:"address" doc:"Where it listens."`
	HostPort uint16         `key:"host_port" default:"the port of address" doc:"Port at the node's advertised address through which other nodes reach it."`
	Weight   int            `key:"weight" unit:"shares" doc:"Its share of new connections beside the other instances'; 0 takes none, at most 65535."`
	Checks   []Check        `key:"checks" default:"[]" doc:"All of them have to pass for the instance to be healthy; without any it always is."`
}

// Check is one health check of an instance. One of HTTP, TCP and GRPC is set.
type Check struct {
	HTTP string    `key:"http" omit:"true" doc:"Path, or http:// URL with ip:port, that answers GET with a status from 200 to 399; redirects are not followed."`
	TCP  TCPTarget `key:"tcp" omit:"true" doc:"true for a connection to the instance's address, or the ip:port to connect to."`
	GRPC GRPCCheck `key:"grpc" omit:"true" doc:"Service to ask for by the gRPC health protocol at the instance's address; empty text is the server as a whole."`

	Interval               time.Duration `key:"interval" default:"none: it is required" doc:"Time between two checks; 100ms to 1h."`
	Timeout                time.Duration `key:"timeout" default:"1s, or the interval if that is shorter" doc:"How long one check may take; at most the interval."`
	SuccessBeforePassing   int           `key:"success_before_passing" unit:"checks" doc:"Successes in a row after which a failing check passes; 0 to 100, and 0 is like 1."`
	FailuresBeforeCritical int           `key:"failures_before_critical" unit:"checks" doc:"Failures in a row after which a passing check fails; 0 to 100, and 0 is like 1."`
}

// unwritten marks a duration whose default depends on another key. No text is
// read as it.
const unwritten = -1 << 62

// maxDefaultTimeout is the default of a check's timeout where the interval is
// not shorter.
const maxDefaultTimeout = time.Second

// maxTargetBytes bounds a path and the name of a gRPC service.
const maxTargetBytes = 1024

// setDefaults gives a new list entry the values of its absent keys.
func (s *Service) setDefaults() {
	s.Namespace = "default"
	s.Protocol = "tcp"
	s.OnEmpty = "pass"
	s.Balance = "default"
	s.Intercept = []netip.AddrPort{}
	s.Hosts = []string{}
	s.Routes = []Route{}
	s.Instances = []Instance{}
}

func (r *Route) setDefaults() {
	r.Headers = map[string]string{}
	r.Methods = []string{}
}

func (i *Instance) setDefaults() {
	i.Weight = 1
	i.Checks = []Check{}
}

func (c *Check) setDefaults() {
	c.Timeout = unwritten
	c.SuccessBeforePassing = 1
	c.FailuresBeforeCritical = 1
}

// derive fills what was not written once the rest is known.
func (c *Check) derive() {
	if c.Timeout == unwritten {
		c.Timeout = maxDefaultTimeout
		if c.Interval > 0 {
			c.Timeout = min(c.Timeout, c.Interval)
		}
	}
}

// TCPTarget is the target of a TCP check. Its zero value is no check.
type TCPTarget struct {
	own  bool // the instance's address
	addr netip.AddrPort
}

// IsSet says whether there is a check.
func (t TCPTarget) IsSet() bool { return t != TCPTarget{} }

// AddrPort is the address to connect to, own the instance's.
func (t TCPTarget) AddrPort(own netip.AddrPort) netip.AddrPort {
	if t.own {
		return own
	}
	return t.addr
}

// String is false, true or ip:port.
func (t TCPTarget) String() string {
	switch {
	case t.own:
		return "true"
	case t.IsSet():
		return t.addr.String()
	}
	return "false"
}

// MarshalText is String for encoders.
func (t TCPTarget) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText reads true, false, or ip:port.
func (t *TCPTarget) UnmarshalText(text []byte) error {
	switch s := string(text); s {
	case "true":
		*t = TCPTarget{own: true}
	case "false":
		*t = TCPTarget{}
	default:
		addr, err := parseAddrPort(s)
		if err != nil || addr.Port() == 0 {
			return errors.New(expected(reflect.TypeFor[TCPTarget]()))
		}
		*t = TCPTarget{addr: addr}
	}
	return nil
}

// GRPCCheck is a check by the gRPC health protocol. Its zero value is no check.
type GRPCCheck struct {
	set     bool
	service string
}

// IsSet says whether there is a check.
func (g GRPCCheck) IsSet() bool { return g.set }

// Service is the service to ask for, empty for the whole server.
func (g GRPCCheck) Service() string { return g.service }

// MarshalText is Service for encoders.
func (g GRPCCheck) MarshalText() ([]byte, error) { return []byte(g.service), nil }

// UnmarshalText reads the name of a service.
func (g *GRPCCheck) UnmarshalText(text []byte) error {
	if len(text) > maxTargetBytes || strings.ContainsAny(string(text), " \t") {
		return errors.New(expected(reflect.TypeFor[GRPCCheck]()))
	}
	*g = GRPCCheck{set: true, service: string(text)}
	return nil
}

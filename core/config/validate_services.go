package config

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/core/model"
)

// taken remembers what only one service may have.
type taken struct {
	names      map[string]string         // namespace/name → path of the entry
	intercepts map[netip.AddrPort]string // → path of the key
}

func newTaken() *taken {
	return &taken{names: map[string]string{}, intercepts: map[netip.AddrPort]string{}}
}

func (v *validator) services() {
	t := newTaken()
	for i, s := range v.cfg.Services {
		v.service(fmt.Sprintf("services[%d]", i), s, t)
	}
}

// service checks the entry at path, which is empty for one that is a whole file.
func (v *validator) service(path string, s Service, t *taken) {
	if !isLabel(s.Name) {
		v.failf(join(path, "name"), "is %s; %s", quote(s.Name), labelRule)
	}
	if !isLabel(s.Namespace) {
		v.failf(join(path, "namespace"), "is %s; %s", quote(s.Namespace), labelRule)
	}
	if s.Namespace == model.BuiltinNamespace {
		v.failf(join(path, "namespace"), "is %s, which has the services that the servers of the store publish themselves; set another one", s.Namespace)
	}
	full := s.Namespace + "/" + s.Name
	if other, dup := t.names[full]; dup {
		v.failf(join(path, "name"), "is %s, like %s; list all instances under one entry", full, other)
	}
	t.names[full] = path
	if s.Port == 0 {
		v.failf(join(path, "port"), "is 0 or missing; set the service's port on its VIP, 1 to 65535")
	}
	v.enum(join(path, "protocol"), s.Protocol, "tcp", "udp", "both")
	v.enum(join(path, "on_empty"), s.OnEmpty, "pass", "refuse")
	v.enum(join(path, "balance"), s.Balance, "default", "random", "round-robin", "least-load", "hash")
	if vip := s.VIP; vip.IsValid() && !isUsableVIP(vip) {
		v.failf(join(path, "vip"), "is %s; a VIP cannot be a loopback, link-local, multicast or unspecified address", vip)
	}
	for j, f := range s.Intercept {
		v.intercept(fmt.Sprintf("%s[%d]", join(path, "intercept"), j), f, t.intercepts)
	}
	v.duration(join(path, "affinity"), s.Affinity, 0, 24*time.Hour)
	v.duration(join(path, "drain"), s.Drain, 0, time.Hour)
	for j, h := range s.Hosts {
		v.httpHost(fmt.Sprintf("%s[%d]", join(path, "hosts"), j), h)
	}
	for j, r := range s.Routes {
		v.route(fmt.Sprintf("%s[%d]", join(path, "routes"), j), r)
	}
	v.instances(join(path, "instances"), s.Instances)
}

func isUsableVIP(a netip.Addr) bool {
	return !a.IsLoopback() && !a.IsMulticast() && !a.IsUnspecified() && !a.IsLinkLocalUnicast() && a.Zone() == ""
}

func (v *validator) intercept(path string, f netip.AddrPort, taken map[netip.AddrPort]string) {
	if !f.IsValid() || f.Port() == 0 || f.Addr().IsUnspecified() {
		v.failf(path, "is %s; set one address and port to capture, such as 127.0.0.1:8001", quote(addrText(f)))
		return
	}
	if other, dup := taken[f]; dup {
		v.failf(path, "is %s, which %s captures too; an address leads to one service", f, other)
	}
	taken[f] = path
}

// httpHost checks a host that requests name, without port and path, or a
// pattern: "*.example.com" is every name below, "*" every host.
func (v *validator) httpHost(path, host string) {
	if addr, err := parseIP(host); err == nil && addr.Zone() == "" || host == "*" {
		return
	}
	name := strings.TrimSuffix(strings.TrimPrefix(host, "*."), ".")
	if len(name) > 253 || slices.ContainsFunc(strings.Split(name, "."), func(l string) bool { return !isHostLabel(l) }) {
		v.failf(path, "is %s; set a host as requests name it, without a port, such as shop.example.com or *.example.com", quote(host))
	}
}

func (v *validator) route(path string, r Route) {
	if r.Host == "" && r.PathPrefix == "" && len(r.Headers) == 0 && len(r.Methods) == 0 {
		v.failf(path, "matches every request; set at least one of host, path_prefix, headers and methods")
	}
	if r.Host != "" {
		v.httpHost(join(path, "host"), r.Host)
	}
	if r.PathPrefix != "" && (!strings.HasPrefix(r.PathPrefix, "/") || strings.ContainsAny(r.PathPrefix, "?# ")) {
		v.failf(join(path, "path_prefix"), "is %s; set how the path begins, with a slash first, such as /api", quote(r.PathPrefix))
	}
	for _, name := range sortedNames(r.Headers) {
		if !isToken(name) {
			v.failf(join(path, "headers"), "names the header %s; a name has letters, digits and hyphens", quote(name))
		}
	}
	for i, m := range r.Methods {
		if !isToken(m) || m != strings.ToUpper(m) {
			v.failf(fmt.Sprintf("%s.methods[%d]", path, i), "is %s; set a method in capitals, such as GET", quote(m))
		}
	}
}

// isToken is the token of RFC 9110 §5.6.2.
func isToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool { return !isAlnum(r) && !strings.ContainsRune("!#$%&'*+-.^_`|~", r) })
}

func (v *validator) instances(list string, instances []Instance) {
	ids := map[string]int{}
	for i, in := range instances {
		path := fmt.Sprintf("%s[%d]", list, i)
		v.name(path+".id", in.ID)
		if j, dup := ids[in.ID]; dup && in.ID != "" {
			v.failf(path+".id", "is %s, like that of instances[%d]; ids are unique in a service", quote(in.ID), j)
		}
		ids[in.ID] = i
		if a := in.Address; !isDialable(a) {
			v.failf(path+".address", "is %s; set the ip:port where the instance listens, such as 127.0.0.1:9001", quote(addrText(a)))
		}
		if in.Weight < 0 || in.Weight > 65535 {
			v.failf(path+".weight", "is %d; set 0 to 65535", in.Weight)
		}
		for j, c := range in.Checks {
			v.check(fmt.Sprintf("%s.checks[%d]", path, j), c)
		}
	}
}

func isDialable(a netip.AddrPort) bool {
	return a.IsValid() && a.Port() != 0 && !a.Addr().IsUnspecified() && !a.Addr().IsMulticast() && a.Addr().Zone() == ""
}

func (v *validator) check(path string, c Check) {
	v.checkKind(path, c)
	if c.Interval == 0 {
		v.failf(path+".interval", "is 0s or missing; set the time between two checks, 100ms to 1h")
	} else {
		v.duration(path+".interval", c.Interval, 100*time.Millisecond, time.Hour)
	}
	v.duration(path+".timeout", c.Timeout, time.Millisecond, time.Hour)
	if c.Timeout > c.Interval && c.Interval >= 100*time.Millisecond && !v.isBroken(path+".interval") {
		v.failf(path+".timeout", "is %s, longer than the interval of %s, so that checks would overlap; lower it or raise the interval",
			formatDuration(c.Timeout), formatDuration(c.Interval))
	}
	v.count(path+".success_before_passing", c.SuccessBeforePassing)
	v.count(path+".failures_before_critical", c.FailuresBeforeCritical)
}

func (v *validator) count(path string, n int) {
	if n < 0 || n > 100 {
		v.failf(path, "is %d; set 0 to 100", n)
	}
}

func (v *validator) checkKind(path string, c Check) {
	var kinds []string
	if c.HTTP != "" {
		kinds = append(kinds, "http")
	}
	if c.TCP.IsSet() {
		kinds = append(kinds, "tcp")
	}
	if c.GRPC.IsSet() {
		kinds = append(kinds, "grpc")
	}
	switch {
	case len(kinds) == 0:
		v.failf(path, "says not what to check; set one of http, tcp and grpc")
	case len(kinds) > 1:
		v.failf(path, "is %s at once; make each a check of its own", strings.Join(kinds, " and "))
	case c.HTTP != "" && !isCheckURL(c.HTTP):
		v.failf(path+".http", "is %s; set the path to ask for, starting with a slash, such as /healthz, or a URL such as http://127.0.0.1:9001/healthz", quote(c.HTTP))
	case c.TCP.IsSet() && !c.TCP.own && !isDialable(c.TCP.addr):
		v.failf(path+".tcp", "is %s; set true, or the ip:port to connect to, such as 127.0.0.1:9001", c.TCP)
	}
}

// isCheckURL reports whether s is a path, or http://ip:port with or without one.
func isCheckURL(s string) bool {
	if len(s) > maxTargetBytes || strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '#' }) {
		return false // it would break the request's first line
	}
	if rest, ok := strings.CutPrefix(s, "http://"); ok {
		host, _, _ := strings.Cut(rest, "/")
		addr, err := netip.ParseAddrPort(host)
		return err == nil && isDialable(addr)
	}
	return strings.HasPrefix(s, "/")
}

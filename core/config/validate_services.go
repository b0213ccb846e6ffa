package config

import (
	"fmt"
	"net/netip"
	"strings"
	"time"
)

func (v *validator) services() {
	names := map[string]int{}
	frontends := map[netip.AddrPort]string{}
	for i, s := range v.cfg.Services {
		path := fmt.Sprintf("services[%d]", i)
		if !isLabel(s.Name) {
			v.failf(path+".name", "is %s; %s", quote(s.Name), labelRule)
		}
		if !isLabel(s.Namespace) {
			v.failf(path+".namespace", "is %s; %s", quote(s.Namespace), labelRule)
		}
		full := s.Namespace + "/" + s.Name
		if j, dup := names[full]; dup {
			v.failf(path+".name", "is %s, like services[%d]; list all instances under one entry", full, j)
		}
		names[full] = i
		if s.Port == 0 {
			v.failf(path+".port", "is 0 or missing; set the service's port on its VIP, 1 to 65535")
		}
		if vip := s.VIP; vip.IsValid() && !isUsableVIP(vip) {
			v.failf(path+".vip", "is %s; a VIP cannot be a loopback, link-local, multicast or unspecified address", vip)
		}
		for j, f := range s.Intercept {
			v.intercept(fmt.Sprintf("%s.intercept[%d]", path, j), f, frontends)
		}
		v.instances(path, s.Instances)
	}
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

func (v *validator) instances(service string, instances []Instance) {
	ids := map[string]int{}
	for i, in := range instances {
		path := fmt.Sprintf("%s.instances[%d]", service, i)
		v.name(path+".id", in.ID)
		if j, dup := ids[in.ID]; dup && in.ID != "" {
			v.failf(path+".id", "is %s, like that of instances[%d]; ids are unique in a service", quote(in.ID), j)
		}
		ids[in.ID] = i
		if a := in.Address; !a.IsValid() || a.Port() == 0 || a.Addr().IsUnspecified() || a.Addr().IsMulticast() {
			v.failf(path+".address", "is %s; set the ip:port where the instance listens, such as 127.0.0.1:9001", quote(addrText(a)))
		}
		for j, c := range in.Checks {
			v.check(fmt.Sprintf("%s.checks[%d]", path, j), c)
		}
	}
}

func (v *validator) check(path string, c Check) {
	if !strings.HasPrefix(c.HTTP, "/") || strings.ContainsAny(c.HTTP, " #") {
		v.failf(path+".http", "is %s; set the path to ask for, starting with a slash, such as /healthz", quote(c.HTTP))
	}
	v.duration(path+".interval", c.Interval, 100*time.Millisecond, time.Hour)
	v.duration(path+".timeout", c.Timeout, time.Millisecond, time.Hour)
	if c.Timeout > c.Interval && !v.isBroken(path+".interval") {
		v.failf(path+".timeout", "is %s, longer than the interval of %s, so that checks would overlap; lower it or raise the interval",
			formatDuration(c.Timeout), formatDuration(c.Interval))
	}
}

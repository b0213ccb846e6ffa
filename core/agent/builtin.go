package agent

import (
	"fmt"
	"net/netip"

	"github.com/fairlead/fairlead/core/config"
	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/record"
)

// sourceBuiltin is where the services are written that nobody writes.
const sourceBuiltin = "built-in"

// builtinInstance is the instance that each server has of each built-in service.
const builtinInstance = "api"

// builtin is how data planes lead to the client API of the servers of the store.
type builtin struct {
	at              netip.AddrPort // of this node's API
	leader, servers netip.Addr     // VIPs
}

// newBuiltin returns what this node publishes while it is a server. It is nil if the
// API is not for other hosts, and so with a reason if something is in the way.
func newBuiltin(cfg *config.Config, listen string) (b *builtin, why string) {
	at, err := netip.ParseAddrPort(listen)
	if err != nil || at.Addr().Unmap().IsLoopback() || cfg.API.TLS == (config.APITLS{}) || len(cfg.VIPPools) == 0 {
		return nil, ""
	}
	// Others reach instances at the advertised address.
	advertise := cfg.AdvertiseAddr().Addr().Unmap()
	if own := at.Addr().Unmap(); !own.IsUnspecified() && own != advertise {
		return nil, fmt.Sprintf("api.listen is on %s and the node advertises %s: listen on that, or on all addresses", own, advertise)
	}
	pool := cfg.VIPPools[0]
	if pool.Addr().Is4() != advertise.Is4() {
		return nil, fmt.Sprintf("the first of vip_pools is %s and the node advertises %s: begin vip_pools with a prefix of that family", pool, advertise)
	}
	b = &builtin{at: netip.AddrPortFrom(advertise, at.Port())}
	b.leader, b.servers = builtinVIPs(pool)
	return b, ""
}

// listening is where a listener of this agent is bound, "" if it is off.
func (a *Agent) listening(name string) string {
	for _, l := range a.listeners {
		if l.Name == name {
			return l.Address
		}
	}
	return ""
}

// builtinVIPs are the second and the third last address of a prefix: the last one may
// be that for broadcasts.
func builtinVIPs(pool netip.Prefix) (leader, servers netip.Addr) {
	last := pool.Masked().Addr().AsSlice()
	for i := pool.Bits(); i < 8*len(last); i++ {
		last[i/8] |= 0x80 >> (i % 8)
	}
	addr, _ := netip.AddrFromSlice(last) // has the length of one
	return addr.Prev(), addr.Prev().Prev()
}

func isBuiltin(key model.ServiceKey) bool {
	return key == model.LeaderService() || key == model.ServersService()
}

// add adds the built-in services to what a server says of itself.
func (b *builtin) add(def *record.Definition) {
	for _, s := range []struct {
		key model.ServiceKey
		vip netip.Addr
	}{{model.LeaderService(), b.leader}, {model.ServersService(), b.servers}} {
		// Of no time: older than whatever anybody says of a service of this name.
		def.Services = append(def.Services, model.Service{Key: s.key, VIP: s.vip, Ports: []model.ServicePort{{Port: b.at.Port(), Protocol: model.TCP}}})
		def.Instances = append(def.Instances, model.Instance{ID: builtinInstance, Service: s.key, Addr: b.at, Weight: 1})
	}
}

// states are those of the instances that add added. Maintenance does not take them
// out: what this server is, others have to decide.
func (b *builtin) states(s *record.Server, stopping bool) []model.InstanceState {
	leader, server := model.InstanceCritical, model.InstanceCritical
	if s.Term != 0 {
		leader = model.InstancePassing // also while it stops, until another one leads
	}
	switch {
	case s.Group == 0:
	case stopping:
		server = model.InstanceDraining
	default:
		server = model.InstancePassing
	}
	return []model.InstanceState{leader, server}
}

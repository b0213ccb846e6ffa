package hostcheck

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// What a datagram has around its payload: IPv6 and UDP.
const headerBytes = 40 + 8

// The skew of the clock from which logs and events of several nodes are hard to
// read side by side.
const maxClockError = time.Second

func ports(f Facts) []Finding {
	var all []Finding
	for _, p := range f.Network.Ports {
		all = append(all, port(f, p)...)
	}
	return all
}

func port(f Facts, p Port) []Finding {
	check := "port " + p.Key + "/" + p.Transport
	at := p.Addr.String()
	switch p.State {
	case PortFree:
		return ok(check, at+" is free")
	case PortTaken:
		switch {
		case slices.Contains(f.Agent.Holds, at):
			return ok(check, at+" is the running agent's")
		case f.Agent.Denied:
			return found(check, Skipped, at+" is taken, maybe by the agent, which this user may not ask", "run it as root")
		}
		return found(check, Failed, at+" is taken by another process", fmt.Sprintf("set %s to another port, or stop what ss -lnp 'sport = :%d' shows", p.Key, p.Addr.Port()))
	case PortForbidden:
		return found(check, Skipped, "this user may not listen at "+at, "run it as the user of the agent, or take a port above 1023")
	case PortAbsent:
		return found(check, Failed, at+" is no address of this host", "set "+p.Key+" to one: ip address shows them")
	}
	return unknown(check, at+": "+p.Error)
}

// local returns the address of this host that a is.
func (n Network) local(a netip.Addr) (Address, bool) {
	for _, own := range n.Addresses {
		if own.Prefix.Addr() == a || own.Loopback && own.Prefix.Masked().Contains(a) {
			return own, true
		}
	}
	return Address{}, false
}

func advertise(f Facts) []Finding {
	const check = "advertise"
	a := f.Config.Advertise
	own, isOwn := f.Network.local(a.Addr())
	switch {
	case a.Addr().IsUnspecified():
		return found(check, Failed, a.String()+" is no address that others could reach", "set node.advertise to the address of this host")
	case a.Addr().IsLoopback() && !f.Config.Bind.Addr().IsLoopback():
		return found(check, Failed, a.String()+" is loopback: others would reach themselves", "set node.advertise to the address of this host")
	case a.Addr().IsLoopback() && joinsElsewhere(f.Config.Join):
		return found(check, Failed, a.String()+" is loopback, and "+strings.Join(f.Config.Join, ", ")+" cannot reach it", "set gossip.bind to an address of this host, with gossip.insecure")
	case a.Addr().IsLoopback():
		return ok(check, a.String()+": nodes on this host only")
	case !isOwn:
		return found(check, Warning, a.String()+" is no address of this host", "if no translation of addresses leads it here, set node.advertise to an address of this host")
	}
	return ok(check, a.String()+" on "+own.Device)
}

func joinsElsewhere(join []string) bool {
	return slices.ContainsFunc(join, func(entry string) bool {
		a, err := netip.ParseAddrPort(entry)
		return err == nil && !a.Addr().IsLoopback()
	})
}

// pools are compared with what the host is told to find elsewhere. A VIP that
// somebody put on a loopback device is meant.
func pools(f Facts) []Finding {
	var all []Finding
	for _, pool := range f.Config.Pools {
		check := "vip-pool " + pool.String()
		var others []string
		for _, a := range f.Network.Addresses {
			if !a.Loopback && a.Prefix.Overlaps(pool) {
				others = append(others, fmt.Sprintf("the network %v of %s", a.Prefix.Masked(), a.Device))
			}
		}
		for _, r := range f.Network.Routes {
			if what := fmt.Sprintf("the network %v of %s", r.Prefix, r.Device); r.Prefix.Overlaps(pool) && !slices.Contains(others, what) {
				others = append(others, what)
			}
		}
		if len(others) > 0 {
			all = append(all, found(check, Warning, "overlaps "+strings.Join(others, ", "), "set vip_pools to a prefix that nothing here leads to")...)
			continue
		}
		all = append(all, ok(check, "no address and no route of this host is in it")...)
	}
	return all
}

func mtu(f Facts) []Finding {
	const check = "mtu"
	own, isOwn := f.Network.local(f.Config.Bind.Addr())
	if f.Config.Bind.Addr().IsUnspecified() || !isOwn {
		own, isOwn = f.Network.local(f.Config.Advertise.Addr())
	}
	need := f.Config.PacketSize + headerBytes
	switch {
	case !isOwn:
		return unknown(check, "no device of this host has the address of gossip")
	case own.MTU < need:
		return found(check, Warning, fmt.Sprintf("%d bytes on %s; a gossip packet may take %d", own.MTU, own.Device, need), fmt.Sprintf("ip link set %s mtu %d, or see that fragments pass", own.Device, need))
	}
	return ok(check, fmt.Sprintf("%d bytes on %s", own.MTU, own.Device))
}

func sysctls(f Facts) []Finding {
	n := f.Network
	for _, v := range []Known[int]{n.Forward, n.Localnet, n.RPFilter} {
		if v.Why != "" {
			return unknown("sysctls", v.Why)
		}
	}
	seen := fmt.Sprintf("ip_forward %d, route_localnet %d, rp_filter %d", n.Forward.Value, n.Localnet.Value, n.RPFilter.Value)
	switch {
	case n.Forward.Value == 1 && n.RPFilter.Value == 1:
		return found("sysctls", Warning, seen, "sysctl -w net.ipv4.conf.all.rp_filter=2, if answers to forwarded clients may come another way")
	case n.Localnet.Value == 0 && slices.Contains(f.Config.Planes, "iptables"):
		return found("sysctls", Warning, seen, "frontends on loopback need sysctl -w net.ipv4.conf.all.route_localnet=1; others work without")
	}
	return ok("sysctls", seen)
}

func clock(f Facts) []Finding {
	v := f.Network.Clock
	switch {
	case v.Why != "":
		return unknown("clock", v.Why)
	case !v.Value.Synchronised:
		return found("clock", Warning, "nothing keeps it in time", "run an NTP client, such as chrony or systemd-timesyncd")
	case v.Value.MaxError > maxClockError:
		return found("clock", Warning, fmt.Sprintf("may be wrong by %v", v.Value.MaxError), "look at the NTP client: chronyc tracking, or timedatectl timesync-status")
	}
	return ok("clock", fmt.Sprintf("in time, within %v", v.Value.MaxError.Round(time.Millisecond)))
}

// peers have to answer on TCP and UDP. One that does is enough to join.
func peers(f Facts) []Finding {
	some := slices.ContainsFunc(f.Network.Peers, func(p Peer) bool { return !p.Own && p.trouble() == "" })
	state, others := Failed, "no peer answers"
	if some {
		state, others = Warning, "another peer answers"
	}
	var all []Finding
	for _, p := range f.Network.Peers {
		check := "peer " + p.Addr
		fix := "start its agent, or open the port between the hosts: " + others
		if p.TCP == "" {
			fix = "open UDP between the hosts, and see that its cluster.name is " + f.Config.Cluster + ": " + others
		}
		switch {
		case p.Own:
			all = append(all, ok(check, "this node itself")...)
		case p.trouble() == "":
			all = append(all, ok(check, fmt.Sprintf("answers TCP and UDP within %v", p.RTT.Round(10*time.Microsecond)))...)
		default:
			all = append(all, found(check, state, p.trouble(), fix)...)
		}
	}
	return all
}

// doubles are names and addresses that two nodes have. The running agent knows
// them; without one nobody does.
func doubles(f Facts) []Finding {
	var all []Finding
	names, addrs := make(map[string]Member), make(map[string]Member)
	for _, m := range f.Agent.Members {
		if o, taken := names[m.Name]; taken {
			all = append(all, found("node "+m.Name, Failed, fmt.Sprintf("%s at %s and %s at %s have this name", o.ID, o.Addr, m.ID, m.Addr),
				"give one of them another node.name, and delete its data directory if it was copied")...)
		}
		if o, taken := addrs[m.Addr]; taken {
			all = append(all, found("node "+m.Addr, Failed, fmt.Sprintf("%s (%s) and %s (%s) advertise this address", o.Name, o.ID, m.Name, m.ID),
				"give one of them another node.advertise")...)
		}
		names[m.Name], addrs[m.Addr] = m, m
	}
	if len(all) == 0 && len(f.Agent.Members) > 0 {
		return ok("nodes", fmt.Sprintf("each of %d has its own name and address", len(f.Agent.Members)))
	}
	return all
}

package main

import (
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/fairlead/fairlead/dataplane"
)

func join(ip net.IP, port uint16) string {
	addr, _ := netip.AddrFromSlice(ip)
	return netip.AddrPortFrom(addr.Unmap(), port).String()
}

// render is the transaction that makes the tables what a snapshot says. Their
// chains stay: a packet that passes two of them, the old and the new one, may see
// the rules of neither. And there are no maps: a packet keeps to the rules that were in
// force when it came into a chain, but looks up what is in force then; in the map of
// rules that are gone it finds nothing, and is led nowhere for good.
func (p *plane) render(s *dataplane.Snapshot) string {
	var b strings.Builder
	for _, v6 := range []bool{false, true} {
		family := "ip"
		if v6 {
			family = "ip6"
		}
		fmt.Fprintf(&b, "add table %[1]s %[2]s\nflush table %[1]s %[2]s\ntable %[1]s %[2]s {\n", family, p.table)
		b.WriteString("chain out { type nat hook output priority -100; policy accept;\n")
		p.rules(&b, s, v6, true)
		b.WriteString("}\nchain pre { type nat hook prerouting priority -100; policy accept;\n")
		if p.flaw != "local-only" {
			p.rules(&b, s, v6, false)
		}
		b.WriteString("}\nchain post { type nat hook postrouting priority 100; policy accept;\n")
		if p.flaw != "no-masquerade" {
			b.WriteString("ct status dnat masquerade\n")
		}
		b.WriteString("}\n")
		if p.flaw == "drops-when-empty" {
			b.WriteString("chain filter { type filter hook output priority 0; policy accept;\n")
			p.drops(&b, s, v6)
			b.WriteString("}\n")
		}
		b.WriteString("}\n")
	}
	return b.String()
}

func match(f dataplane.Frontend, flaw string) string {
	family := "ip"
	if f.Addr.Addr().Is6() {
		family = "ip6"
	}
	protocol := f.Protocol.String()
	if flaw == "protocols-mixed" {
		protocol = "meta l4proto { tcp, udp } th"
	}
	if flaw == "ports-mixed" {
		return fmt.Sprintf("%s daddr %s meta l4proto %s", family, f.Addr.Addr(), protocol)
	}
	return fmt.Sprintf("%s daddr %s %s dport %d", family, f.Addr.Addr(), protocol, f.Addr.Port())
}

func (p *plane) rules(b *strings.Builder, s *dataplane.Snapshot, v6, local bool) {
	n := 0
	for svc := range s.Services() {
		if n++; p.flaw == "silent-limit" && n > most || p.flaw == "one-too-few" && n > 5 {
			return
		}
		for _, f := range svc.Frontends {
			if f.Addr.Addr().Is6() != v6 || f.Addr.Addr().IsLoopback() {
				continue
			}
			slots := p.slots(svc, v6, local)
			switch {
			case len(slots) > 0:
				for i, to := range slots {
					chance := ""
					if left := len(slots) - i; left > 1 {
						chance = fmt.Sprintf("numgen random mod %d 0 ", left)
					}
					fmt.Fprintf(b, "%s %sdnat to %s\n", match(f, p.flaw), chance, to)
				}
			case !f.Refuses() || p.flaw == "drops-when-empty" || p.flaw == "lets-through-when-empty":
			case !local:
				fmt.Fprintf(b, "%s redirect to :0\n", match(f, ""))
			case v6:
				fmt.Fprintf(b, "%s dnat to [::1]:0\n", match(f, ""))
			default:
				fmt.Fprintf(b, "%s dnat to 127.0.0.1:0\n", match(f, ""))
			}
		}
	}
}

// slots are what a random number chooses from.
func (p *plane) slots(svc *dataplane.Service, v6, local bool) []netip.AddrPort {
	list := svc.Usable()
	switch p.flaw {
	case "takes-all":
		list = svc.Endpoints.Slice()
	case "shuns-suspects", "trusts-suspects":
		list = nil
		for e := range svc.Endpoints.All() {
			if e.State == dataplane.Ready || e.State == dataplane.Suspect && p.flaw == "trusts-suspects" {
				list = append(list, e)
			}
		}
	}
	var slots []netip.AddrPort
	for i, e := range list {
		addr := e.Foreign()
		if local || p.flaw == "knows-no-foreign" {
			addr = e.Addr
		}
		if addr.Addr().Is6() != v6 || !local && addr.Addr().IsLoopback() {
			continue
		}
		weight := int(e.Weight)
		if p.flaw == "weighs-nothing" || p.flaw == "takes-all" {
			weight = 1
		}
		if p.flaw == "prefers-the-first" && i == 0 {
			weight *= 2
		}
		for range weight {
			slots = append(slots, addr)
		}
	}
	return slots
}

func (p *plane) drops(b *strings.Builder, s *dataplane.Snapshot, v6 bool) {
	for svc := range s.Services() {
		for _, f := range svc.Frontends {
			if f.Addr.Addr().Is6() == v6 && len(svc.Usable()) == 0 && f.Refuses() {
				fmt.Fprintf(b, "%s reject\n", match(f, ""))
			}
		}
	}
}

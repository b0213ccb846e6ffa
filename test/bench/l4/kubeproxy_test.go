package l4

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"net/netip"
	"strings"

	"github.com/fairlead/fairlead/dataplane"
)

// The layouts of rules that kube-proxy makes, as far as a packet or a change meets
// them: one rule for each service in a row, or one map from address to chain. They
// are what others use; the text is written here.

// largeCluster is the number of endpoints from which kube-proxy leaves comments off.
const largeCluster = 1000

// ownClients are the addresses whose connections kube-proxy need not masquerade.
const ownClients = "127.0.0.0/8"

// kubeName is the hash that ends the name of a chain.
func kubeName(parts ...any) string {
	sum := sha256.Sum256([]byte(fmt.Sprint(parts...)))
	return base32.StdEncoding.EncodeToString(sum[:])[:16]
}

// linear is the layout of kube-proxy's iptables mode.
type linear struct{ comments bool }

// full is a sync from nothing.
func (l linear) full(services []*dataplane.Service) string {
	return l.text(services, services) + "-I PREROUTING 1 -j KUBE-SERVICES\n-I OUTPUT 1 -j KUBE-SERVICES\n-I POSTROUTING 1 -j KUBE-POSTROUTING\nCOMMIT\n"
}

// partial is a sync after services changed: their chains, and the list of all.
func (l linear) partial(all, changed []*dataplane.Service) string {
	return l.text(all, changed) + "COMMIT\n"
}

func (l linear) text(all, changed []*dataplane.Service) string {
	var chains, rules strings.Builder
	chains.WriteString("*filter\n:KUBE-SERVICES - [0:0]\n:KUBE-FORWARD - [0:0]\n" +
		"-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP\n-A KUBE-FORWARD -m mark --mark 0x4000/0x4000 -j ACCEPT\n" +
		"-A KUBE-FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\nCOMMIT\n" +
		"*nat\n:KUBE-SERVICES - [0:0]\n:KUBE-POSTROUTING - [0:0]\n:KUBE-MARK-MASQ - [0:0]\n")
	rules.WriteString("-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN\n-A KUBE-POSTROUTING -j MARK --xor-mark 0x4000\n" +
		"-A KUBE-POSTROUTING -j MASQUERADE --random-fully\n-A KUBE-MARK-MASQ -j MARK --or-mark 0x4000\n")
	for _, svc := range changed {
		l.chains(&chains, &rules, svc)
	}
	for _, svc := range all {
		fmt.Fprintf(&rules, "-A KUBE-SERVICES%s %s -j KUBE-SVC-%s\n", l.comment(svc, "cluster IP"), to(svc), kubeName(svc.Key))
	}
	return chains.String() + rules.String()
}

// chains are those of one service: a choice, and one for each endpoint.
func (l linear) chains(chains, rules *strings.Builder, svc *dataplane.Service) {
	name := "KUBE-SVC-" + kubeName(svc.Key)
	fmt.Fprintf(chains, ":%s - [0:0]\n", name)
	fmt.Fprintf(rules, "-A %s%s ! -s %s %s -j KUBE-MARK-MASQ\n", name, l.comment(svc, "cluster IP"), ownClients, to(svc))
	left := svc.Endpoints.Len()
	for e := range svc.Endpoints.All() {
		endpoint := "KUBE-SEP-" + kubeName(svc.Key, e.ID, e.Addr)
		fmt.Fprintf(chains, ":%s - [0:0]\n", endpoint)
		chance := ""
		if left > 1 {
			chance = fmt.Sprintf(" -m statistic --mode random --probability %.10f", 1/float64(left))
		}
		fmt.Fprintf(rules, "-A %s%s%s -j %s\n", name, l.comment(svc, "-> "+e.Addr.String()), chance, endpoint)
		fmt.Fprintf(rules, "-A %s%s -s %s -j KUBE-MARK-MASQ\n", endpoint, l.comment(svc, ""), e.Addr.Addr())
		fmt.Fprintf(rules, "-A %s%s -p tcp -m tcp -j DNAT --to-destination %s\n", endpoint, l.comment(svc, ""), e.Addr)
		left--
	}
}

func (l linear) comment(svc *dataplane.Service, what string) string {
	if !l.comments {
		return ""
	}
	return fmt.Sprintf(" -m comment --comment %q", strings.TrimSpace(svc.Key.String()+" "+what))
}

func to(svc *dataplane.Service) string {
	a := svc.Frontends[0].Addr
	return fmt.Sprintf("-d %s -p tcp -m tcp --dport %d", netip.PrefixFrom(a.Addr(), a.Addr().BitLen()), a.Port())
}

// mapped is the layout of kube-proxy's nftables mode, as text for nft.
type mapped struct{}

const mappedBase = `add table ip kube-proxy
add map ip kube-proxy service-ips { type ipv4_addr . inet_proto . inet_service : verdict ; }
add chain ip kube-proxy nat-prerouting { type nat hook prerouting priority dstnat ; }
add chain ip kube-proxy nat-output { type nat hook output priority -100 ; }
add chain ip kube-proxy nat-postrouting { type nat hook postrouting priority srcnat ; }
add chain ip kube-proxy services
add chain ip kube-proxy masquerading
add chain ip kube-proxy mark-for-masquerade
add rule ip kube-proxy nat-prerouting jump services
add rule ip kube-proxy nat-output jump services
add rule ip kube-proxy nat-postrouting jump masquerading
add rule ip kube-proxy services ip daddr . meta l4proto . th dport vmap @service-ips
add rule ip kube-proxy masquerading mark and 0x4000 == 0 return
add rule ip kube-proxy masquerading mark set mark xor 0x4000
add rule ip kube-proxy masquerading masquerade fully-random
add rule ip kube-proxy mark-for-masquerade mark set mark or 0x4000
`

// full is a sync from nothing.
func (m mapped) full(services []*dataplane.Service) string {
	var b strings.Builder
	b.WriteString(mappedBase)
	for _, svc := range services {
		m.chains(&b, svc)
	}
	return b.String() + m.elements(services)
}

// elements lead to the chains of services.
func (mapped) elements(services []*dataplane.Service) string {
	var b strings.Builder
	for _, svc := range services {
		a := svc.Frontends[0].Addr
		fmt.Fprintf(&b, "add element ip kube-proxy service-ips { %s . tcp . %d : goto service-%s }\n", a.Addr(), a.Port(), kubeName(svc.Key))
	}
	return b.String()
}

// partial is a sync after services changed: their chains are filled anew.
func (m mapped) partial(changed []*dataplane.Service) string {
	var b strings.Builder
	for _, svc := range changed {
		m.chains(&b, svc)
	}
	return b.String()
}

func (mapped) chains(b *strings.Builder, svc *dataplane.Service) {
	var choice []string
	for e := range svc.Endpoints.All() {
		name := "endpoint-" + kubeName(svc.Key, e.ID, e.Addr)
		fmt.Fprintf(b, "add chain ip kube-proxy %s\nflush chain ip kube-proxy %s\n", name, name)
		fmt.Fprintf(b, "add rule ip kube-proxy %s ip saddr %s jump mark-for-masquerade\n", name, e.Addr.Addr())
		fmt.Fprintf(b, "add rule ip kube-proxy %s meta l4proto tcp dnat to %s\n", name, e.Addr)
		choice = append(choice, fmt.Sprintf("%d : goto %s", len(choice), name))
	}
	name, a := "service-"+kubeName(svc.Key), svc.Frontends[0].Addr
	fmt.Fprintf(b, "add chain ip kube-proxy %s\nflush chain ip kube-proxy %s\n", name, name)
	fmt.Fprintf(b, "add rule ip kube-proxy %s ip daddr %s tcp dport %d ip saddr != %s jump mark-for-masquerade\n", name, a.Addr(), a.Port(), ownClients)
	fmt.Fprintf(b, "add rule ip kube-proxy %s numgen random mod %d vmap { %s }\n", name, len(choice), strings.Join(choice, ", "))
}

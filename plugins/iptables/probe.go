package iptables

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/coreos/go-iptables/iptables"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/plugins/iptables/internal/host"
)

// rights is the remedy for a lack of them.
const rights = "run the agent as root, or give it CAP_NET_ADMIN and CAP_NET_RAW"

const install = "install the package iptables (`apt-get install iptables`)"

// scratch is the chain in which features are tried: nothing leads to it.
const scratch = "FAIRLEAD-PROBE"

// probeLock is how long a probe waits for the lock, in seconds.
const probeLock = 2

// feature is what rules need, tried as a rule.
type feature struct {
	id       string
	required bool
	rule     string // with ADDR for an address of the family
	module   string // of the kernel
}

func features() []feature {
	return []feature{
		{"comment", true, "-m comment --comment fairlead -j RETURN", "xt_comment"},
		{"dnat", true, "-d ADDR -p tcp --dport 1 -j DNAT --to-destination TARGET:1", "xt_nat"},
		{"redirect", true, "-p tcp -j REDIRECT --to-ports 0", "xt_REDIRECT"},
		{"masquerade", true, "-j MASQUERADE", "xt_MASQUERADE"},
		{"statistic", true, "-m statistic --mode random --probability 0.5 -j RETURN", "xt_statistic"},
		{"conntrack", true, "-m conntrack --ctstate DNAT --ctorigdst ADDR -j RETURN", "xt_conntrack"},
		{"recent", false, "-m recent --name FAIRLEAD-PROBE --set --rsource -j RETURN", "xt_recent"},
		{"addrtype", true, "-m addrtype --src-type LOCAL --limit-iface-out -j RETURN", "xt_addrtype"},
	}
}

// Probe tries all that the rules need, in a chain that nothing leads to; where it may,
// in a network namespace of its own, so that not even an empty table is left. It
// names the settings of the kernel that are missing, and changes none.
func (p *Provider) Probe(ctx context.Context) (dataplane.Report, error) {
	var r report
	tools, err := p.find(ctx)
	if err != nil {
		r.add(dataplane.Check{ID: "binaries", Required: true, Result: dataplane.Unsupported, Reason: err.Error(), Remedy: install})
		return r.Report, nil
	}
	setting := "auto"
	if s := p.probeSettings(); s.Variant != "" {
		setting = s.Variant
	}
	uses, err := usage(ctx, tools, "")
	if err != nil {
		r.add(dataplane.Check{ID: "permission", Required: true, Result: dataplane.Unsupported, Reason: err.Error(), Remedy: rights})
		return r.Report, nil
	}
	v, remark, err := pick(setting, tools, uses)
	if err != nil {
		r.add(dataplane.Check{ID: "variant", Required: true, Result: dataplane.Unsupported, Reason: err.Error(), Remedy: install})
		return r.Report, nil
	}
	t := tools[v]
	r.add(dataplane.Check{ID: "binaries", Required: true, Result: dataplane.Supported, Reason: t.String()})
	if remark != "" {
		r.add(dataplane.Check{ID: "variant", Result: dataplane.Degraded, Reason: remark, Remedy: "move all rules to one of the variants, or say which with the setting variant"})
	} else {
		r.add(dataplane.Check{ID: "variant", Result: dataplane.Supported, Reason: fmt.Sprintf("the %s tables are used", v)})
	}
	if !r.lock(ctx, t) {
		return r.Report, nil
	}
	six := host.HasIPv6() // here, not apart
	host.Apart(func() {
		r.family(t, host.V4, true)
		if r.Verdict != dataplane.Unsupported {
			r.family(t, host.V6, six)
		}
	})
	r.settings(p.probeSettings())
	return r.Report, nil
}

// probeSettings are those of Configure; the zero settings before it.
func (p *Provider) probeSettings() settings {
	select {
	case <-p.turn:
		defer func() { p.turn <- struct{}{} }()
		return p.settings
	default:
		return settings{}
	}
}

// report is a report under way.
type report struct{ dataplane.Report }

func (r *report) add(c dataplane.Check) {
	if !c.Required && c.Result == dataplane.Unsupported {
		c.Result = dataplane.Degraded
	}
	r.Verdict = max(r.Verdict, c.Result, dataplane.Supported)
	r.Checks = append(r.Checks, c)
}

// lock reports whether the tables can be read and the lock is to be had.
func (r *report) lock(ctx context.Context, t host.Tools) bool {
	if t.Variant != host.Legacy {
		r.add(dataplane.Check{ID: "lock", Required: true, Result: dataplane.Supported, Reason: "the nft tables need no lock"})
		return true
	}
	err := host.TryLock(ctx, probeLock*time.Second)
	if err == nil {
		r.add(dataplane.Check{ID: "lock", Required: true, Result: dataplane.Supported, Reason: "the lock of the tables can be had"})
		return true
	}
	c := dataplane.Check{ID: "lock", Required: true, Result: dataplane.Inconclusive, Reason: err.Error(), Remedy: "end the process that holds " + host.LockFile() + ", or wait for it"}
	if who := host.LockHolder(); who != "" {
		c.Reason += " by " + who
	}
	if errors.Is(err, os.ErrPermission) {
		c.Result, c.Remedy = dataplane.Unsupported, rights
	}
	r.add(c)
	return false
}

// family tries the features of one family, if this host has it.
func (r *report) family(t host.Tools, f host.Family, has bool) {
	id, required := "ipv4", true
	if f == host.V6 {
		id, required = "ipv6", false
		if !has {
			r.add(dataplane.Check{ID: id, Result: dataplane.Degraded, Reason: "this host has no IPv6: services with IPv6 frontends are UNSUPPORTED", Remedy: "none is needed without such services; else boot without ipv6.disable"})
			return
		}
	}
	missing, err := try(t, f)
	switch {
	case err != nil && forbidden(err):
		r.add(dataplane.Check{ID: id, Required: required, Result: dataplane.Unsupported, Reason: err.Error(), Remedy: rights})
	case err != nil:
		reason := err.Error()
		if !required {
			reason += ": services with frontends of this family are UNSUPPORTED"
		}
		r.add(dataplane.Check{ID: id, Required: required, Result: dataplane.Unsupported, Reason: reason, Remedy: "use a kernel with the nat table of this variant (ip_tables or nf_tables with nft_compat)"})
	default:
		r.add(dataplane.Check{ID: id, Required: required, Result: dataplane.Supported, Reason: "chains can be made in the nat table, and are gone again"})
	}
	if err != nil {
		return
	}
	for _, feature := range features() {
		c := dataplane.Check{ID: id + "-" + feature.id, Required: required && feature.required, Result: dataplane.Supported, Reason: "the kernel takes such a rule"}
		if why, bad := missing[feature.id]; bad {
			c.Result, c.Reason = dataplane.Unsupported, why
			c.Remedy = fmt.Sprintf("load the module: `modprobe %s`, or use a kernel that has it", feature.module)
		}
		r.add(c)
	}
}

// try makes the scratch chain and a rule for each feature, and removes both. It says
// what the features lack that do not work.
func try(t host.Tools, f host.Family) (missing map[string]string, err error) {
	protocol, addr, target := iptables.ProtocolIPv4, "192.0.2.1", "192.0.2.2"
	if f == host.V6 {
		protocol, addr, target = iptables.ProtocolIPv6, "2001:db8::1", "[2001:db8::2]"
	}
	if t.Command(f) == "" {
		return nil, fmt.Errorf("no binaries for %v are installed", f)
	}
	ipt, err := iptables.New(iptables.IPFamily(protocol), iptables.Path(t.Command(f)), iptables.Timeout(probeLock))
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf("%s-%d", scratch, os.Getpid())
	if err := ipt.NewChain("nat", name); err != nil {
		return nil, short(err)
	}
	missing = make(map[string]string)
	for _, feature := range features() {
		rule := strings.NewReplacer("ADDR", addr, "TARGET", target).Replace(feature.rule)
		if err := ipt.Append("nat", name, strings.Fields(rule)...); err != nil {
			missing[feature.id] = short(err).Error()
		}
	}
	return missing, short(ipt.ClearAndDeleteChain("nat", name))
}

// short is what a binary complained of, in one line.
func short(err error) error {
	var e *iptables.Error
	if !errors.As(err, &e) {
		return err
	}
	_, said, ok := strings.Cut(e.Error(), "]: exit status ")
	if !ok {
		said = e.Error()
	}
	line, _, _ := strings.Cut(strings.TrimSpace(said), "\n")
	return errors.New("exit status " + line)
}

func forbidden(err error) bool {
	return errors.Is(err, host.ErrForbidden) || errors.Is(err, os.ErrPermission) ||
		strings.Contains(err.Error(), "Permission denied") || strings.Contains(err.Error(), "not permitted")
}

// settings looks at what the kernel is set to, and changes nothing.
func (r *report) settings(s settings) {
	forwards := dataplane.Check{ID: "ip-forward", Result: dataplane.Supported, Reason: "this host forwards packets, and leads those to VIPs"}
	if !host.Forwards(host.V4) && !host.Forwards(host.V6) {
		forwards.Reason = "this host forwards no packets: sockets of its own are served, and nobody else"
		if s.Mode == "forwarded" {
			forwards.Result, forwards.Reason, forwards.Remedy = dataplane.Degraded, "this host forwards no packets, so there is nobody to serve", "sysctl -w net.ipv4.ip_forward=1"
		}
	}
	r.add(forwards)
	local := dataplane.Check{ID: "route-localnet", Result: dataplane.Supported, Reason: "net.ipv4.conf.all.route_localnet is 1: frontends on 127.0.0.0/8 are served"}
	if !host.RouteLocalnet() {
		local.Reason = "net.ipv4.conf.all.route_localnet is 0, as it should be: services with frontends on 127.0.0.0/8 are UNSUPPORTED"
	}
	r.add(local)
	filter := dataplane.Check{ID: "rp-filter", Result: dataplane.Supported, Reason: "answers may come by another way than the packets went"}
	if host.StrictPathFilter() {
		filter.Reason = "net.ipv4.conf.all.rp_filter is 1: answers that come by another device than the packets went by are dropped"
		filter.Remedy = "if endpoints are reached asymmetrically: sysctl -w net.ipv4.conf.all.rp_filter=2"
	}
	r.add(filter)
	vip := dataplane.Check{ID: "vip-route", Result: dataplane.Supported, Reason: "VIPs are reached by the routes of this host"}
	if ok, err := host.Reachable(defaultPool().Addr()); err != nil || !ok {
		vip.Reason = "this host has no route to VIPs: routes of our own will be made, to the loopback device (see the setting routes)"
	}
	r.add(vip)
}

// Command plane is a small data plane by NAT, which keeps what the traffic suite
// demands of one, or has the flaw that FLAW names. It writes its whole table
// with each generation.
package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/sdk"
)

func main() { os.Exit(sdk.Serve(&plane{flaw: os.Getenv("FLAW")})) }

// most is how many services it takes.
const most = 20

// prefix begins the names of its tables; the instance id follows.
const prefix = "plane_"

type plane struct {
	flaw  string
	table string
	now   *dataplane.Snapshot // what was asked for last
}

func (p *plane) Info() dataplane.Info {
	info := dataplane.Info{
		Name: "plane", Version: "1", Layers: []dataplane.Layer{dataplane.L4},
		Scopes: []dataplane.Scope{dataplane.ScopeLocal, dataplane.ScopeForwarded}, Limits: dataplane.Limits{Services: most},
	}
	if p.flaw == "silent-limit" {
		info.Limits = dataplane.Limits{}
	}
	return info
}

func (p *plane) Probe(context.Context) (dataplane.Report, error) {
	return dataplane.Report{Verdict: dataplane.Supported}, nil
}

func (p *plane) Configure(_ context.Context, c dataplane.Config) ([]dataplane.Diagnostic, error) {
	p.table = tableOf(c.InstanceID)
	p.now = &dataplane.Snapshot{}
	if p.flaw == "begins-anew" {
		return nil, p.remove(p.table)
	}
	return nil, nil
}

func (p *plane) Reconcile(_ context.Context, next *dataplane.Snapshot, delta dataplane.Delta) (dataplane.Result, error) {
	r := dataplane.Result{Operations: 1}
	for svc := range next.Services() {
		for _, f := range svc.Frontends {
			if f.Addr.Addr().IsLoopback() {
				r.Statuses = append(r.Statuses, dataplane.ServiceStatus{Service: svc.Key, Status: dataplane.StatusUnsupported, Reason: dataplane.ReasonUnsupported, Message: "frontends on loopback need route_localnet"})
			}
		}
	}
	switch p.flaw {
	case "does-nothing":
		return r, nil
	case "flushes-all":
		_ = nft("flush ruleset")
	case "keeps-removed":
		e := next.Edit()
		for svc := range p.now.Services() {
			if e.Service(svc.Key) == nil {
				e.Set(svc)
			}
		}
		next = e.Done()
	case "two-steps":
		if err := p.remove(p.table); err != nil {
			return r, err
		}
	case "adopts-the-vip":
		for svc := range next.Services() {
			_ = exec.Command("ip", "addr", "replace", svc.Frontends[0].Addr.Addr().String(), "dev", "lo").Run()
		}
	case "ends-direct":
		for _, c := range delta.Changes {
			for _, gone := range c.Removed {
				_ = exec.Command("ss", "-K", "-t", "dst", gone.Endpoint.Addr.String()).Run()
			}
		}
	}
	if err := nft(p.render(next)); err != nil {
		return r, err
	}
	p.now = next
	if p.flaw == "keeps-flows" {
		return r, nil
	}
	return r, forget(next, p.flaw)
}

func (p *plane) Health(context.Context) dataplane.Health {
	if p.flaw == "ill-when-empty" && p.now != nil {
		for svc := range p.now.Services() {
			if svc.Endpoints.Len() == 0 {
				return dataplane.Health{State: dataplane.HealthDegraded, Reasons: []string{svc.Key.String() + " has no endpoints"}}
			}
		}
	}
	return dataplane.Health{State: dataplane.HealthReady}
}

func (p *plane) Cleanup(_ context.Context, what dataplane.CleanupOptions) (items []dataplane.CleanupItem, err error) {
	out, err := exec.Command("nft", "list", "tables").Output()
	if err != nil {
		return nil, fmt.Errorf("%w: nft list tables: %w", dataplane.ErrFailed, err)
	}
	for line := range strings.Lines(string(out)) {
		words := strings.Fields(line) // table ip NAME
		if len(words) != 3 || !strings.HasPrefix(words[2], prefix) || words[1] != "ip" {
			continue
		}
		item := dataplane.CleanupItem{Object: words[2], Result: dataplane.Kept}
		if what.AllKnown || words[2] == tableOf(what.InstanceID) {
			item.Result = dataplane.WouldRemove
			if !what.DryRun && p.flaw != "leaves-rules" {
				item.Result = dataplane.Removed
				err = p.remove(words[2])
			}
		}
		items = append(items, item)
	}
	return items, err
}

func (p *plane) Shutdown(_ context.Context, policy dataplane.ShutdownPolicy) error {
	if policy == dataplane.ShutdownRemove || p.flaw == "cleans-up-at-end" {
		return p.remove(p.table)
	}
	return nil
}

func (p *plane) remove(table string) error {
	return nft(empty(table))
}

// empty is a transaction that removes a table, whether it is there or not.
func empty(table string) string {
	var b strings.Builder
	for _, family := range []string{"ip", "ip6"} {
		fmt.Fprintf(&b, "add table %[1]s %[2]s\ndelete table %[1]s %[2]s\n", family, table)
	}
	return b.String()
}

func tableOf(instance string) string {
	return prefix + strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '_'
	}, instance)
}

// nft applies a transaction.
func nft(text string) error {
	cmd := exec.Command("nft", "-f", "-")
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: nft: %w: %s", dataplane.ErrFailed, err, bytes.TrimSpace(out))
	}
	return nil
}

// forget drops what is tracked of datagrams that would go to who is gone.
func forget(now *dataplane.Snapshot, flaw string) error {
	usable := make(map[string]bool) // frontend and endpoint
	for svc := range now.Services() {
		for _, f := range svc.Frontends {
			for _, e := range svc.Usable() {
				usable[f.Addr.String()+e.Addr.String()], usable[f.Addr.String()+e.Foreign().String()] = true, true
			}
		}
	}
	for _, family := range []netlink.InetFamily{unix.AF_INET, unix.AF_INET6} {
		if _, err := netlink.ConntrackDeleteFilters(netlink.ConntrackTable, family, stale{usable, flaw}); err != nil {
			return fmt.Errorf("%w: conntrack: %w", dataplane.ErrFailed, err)
		}
	}
	return nil
}

// stale chooses entries of datagrams to a VIP whose endpoint is not usable.
type stale struct {
	usable map[string]bool
	flaw   string
}

func (s stale) MatchConntrackFlow(f *netlink.ConntrackFlow) bool {
	if f.Forward.Protocol != unix.IPPROTO_UDP || f.Forward.DstPort != 53 && f.Forward.DstPort != 80 {
		return false
	}
	return !s.usable[join(f.Forward.DstIP, f.Forward.DstPort)+join(f.Reverse.SrcIP, f.Reverse.SrcPort)] || s.flaw == "forgets-all"
}

package rules

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/test/await"
	"github.com/fairlead/fairlead/test/netns"
)

// variants are the two programs that go by the name of iptables.
var variants = []string{"legacy", "nft"}

// real is a family's nat table in a network namespace.
type real struct {
	t      *testing.T
	node   *netns.Node
	prefix string // ip6tables-nft
}

func (r real) run(args ...string) string {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	path, err := exec.LookPath(r.prefix + args[0])
	if err != nil {
		r.t.Fatalf("%v: run `make setup` (Debian package iptables)", err)
	}
	out, err := r.node.Run(ctx, path, args[1:]...)
	if err != nil {
		r.t.Fatal(err)
	}
	return out
}

// restore applies a text, if there is one.
func (r real) restore(text []byte) {
	r.t.Helper()
	if text == nil {
		return
	}
	file := filepath.Join(r.t.TempDir(), "text")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		r.t.Fatal(err)
	}
	r.run("-restore", "--noflush", "-w", "5", file)
}

func (r real) found() *Table {
	r.t.Helper()
	table, err := Parse([]byte(r.run("-save", "-c", "-t", "nat")))
	if err != nil {
		r.t.Fatal(err)
	}
	return table
}

// TestIptables: both programs take every text, and show the table that the model has:
// the same rules in the same words, so what they show can be compared with a plan.
func TestIptables(t *testing.T) {
	t.Setenv("XTABLES_LOCKFILE", filepath.Join(t.TempDir(), "lock")) // not that of the machine
	for _, variant := range variants {
		t.Run(variant, func(t *testing.T) {
			node := netns.New(t, netns.Options{Nodes: 1}).Node(0)
			for seed := range uint64(3) {
				w := newWorld(t, 100+seed)
				w.opts.NoIPv6, w.opts.Features.RandomFully = false, seed > 0
				for _, f := range Families() {
					r := real{t, node, map[Family]string{IPv4: "iptables-", IPv6: "ip6tables-"}[f] + variant}
					r.restore([]byte(foreign[f]))
					w.real(f, r)
					r.run("", "-t", "nat", "-F")
					r.run("", "-t", "nat", "-X")
				}
			}
		})
	}
}

// TestAffinityLists: what the kernel remembers of clients outlives the chains that it
// is noted by, and ends with the endpoint.
func TestAffinityLists(t *testing.T) {
	t.Setenv("XTABLES_LOCKFILE", filepath.Join(t.TempDir(), "lock"))
	for _, variant := range variants {
		t.Run(variant, func(t *testing.T) {
			r := real{t, netns.New(t, netns.Options{Nodes: 1}).Node(0), "iptables-" + variant}
			svc := *plain(1, netip.MustParseAddrPort("10.200.0.1:80"), 3)
			svc.Affinity = dataplane.Affinity{ByClient: true}
			plan := Build(IPv4, slices.Values([]*dataplane.Service{&svc}), fleetOptions(), nil)
			r.restore(Repair(r.found(), plan))
			lists := r.lists()
			if len(lists) != 3 {
				t.Fatalf("three endpoints have the lists %v", lists)
			}
			for name := range lists {
				if err := r.node.Do(func() error { return os.WriteFile(recentDir+name, []byte("+192.0.2.7\n"), 0o600) }); err != nil {
					t.Fatal(err)
				}
			}
			for _, endpoints := range []int{4, 2} {
				next := svc
				next.Endpoints = plain(1, svc.Frontends[0].Addr, endpoints).Endpoints
				after := Build(IPv4, slices.Values([]*dataplane.Service{&next}), fleetOptions(), plan)
				r.restore(Restore(plan, after))
				plan = after
				want := min(3, endpoints)
				// The nft variant's lists end with the old rules, which the kernel frees a moment later.
				netns.EventuallyNil(t, await.Patience, func() error {
					now, known := r.lists(), 0
					for name := range lists {
						if strings.Contains(now[name], "192.0.2.7") {
							known++
						}
					}
					if known != want || len(now) != endpoints {
						return fmt.Errorf("lists %q", now)
					}
					return nil
				}, "lists of %d endpoints, %d of which know the client", endpoints, want)
			}
		})
	}
}

const recentDir = "/proc/thread-self/net/xt_recent/"

// lists are the kernel's of the recent match, by name.
func (r real) lists() map[string]string {
	r.t.Helper()
	lists := make(map[string]string)
	if err := r.node.Do(func() error {
		entries, err := os.ReadDir(recentDir)
		for _, e := range entries {
			text, _ := os.ReadFile(recentDir + e.Name()) // it may have gone since
			lists[e.Name()] = string(text)
		}
		return err
	}); err != nil {
		r.t.Fatal(err)
	}
	return lists
}

// real follows a few edits in a real table.
func (w *world) real(f Family, r real) {
	t := r.t
	t.Helper()
	var was *Plan
	for step := range 6 {
		for range 4 {
			w.edit()
		}
		w.follow()
		plan := w.plans[f]
		if step == 0 {
			r.restore(Repair(r.found(), plan))
		} else {
			r.restore(Restore(was, plan))
		}
		was = plan
		if drift := Drift(r.found(), plan); drift != nil {
			t.Fatalf("step %d: %s\n%s", step, strings.Join(drift, "\n"), r.run("-save", "-t", "nat"))
		}
		if got, want := sortedOurs(r.found()), sortedOurs(w.found(f)); got != want {
			t.Fatalf("step %d: iptables shows\n%s\nthe model\n%s", step, got, want)
		}
	}
	if services := was.Services(); services == 0 {
		t.Error("no service of the family was made")
	}

	r.run("", "-t", "nat", "-F", "OUTPUT")
	r.run("", "-t", "nat", "-F", rootName(was.tag, pre))
	if drift := Drift(r.found(), was); len(drift) != 2 && was.opts.Mode == All {
		t.Fatalf("after two flushes: %q", drift)
	}
	r.restore(Repair(r.found(), was))
	if drift := Drift(r.found(), was); drift != nil {
		t.Fatalf("after the repair: %q", drift)
	}

	text, _ := Cleanup(r.found(), w.opts.Instance, false, true)
	r.restore(text)
	if left, want := sortedOurs(r.found()), "-A POSTROUTING "+inertRule(was.tag)+"\n"; left != want {
		t.Fatalf("a plane that leaves keeps\n%s", left)
	}
	text, _ = Cleanup(r.found(), w.opts.Instance, true, false)
	r.restore(text)
	if left := sortedOurs(r.found()); left != "" {
		t.Fatalf("left is\n%s", left)
	}
	save := r.run("-save", "-t", "nat")
	for line := range strings.Lines(foreign[f]) {
		if strings.HasPrefix(line, "-A") && !strings.Contains(line, "OUTPUT") && !bytes.Contains([]byte(save), []byte(line)) {
			t.Errorf("a rule of others is gone: %s", line)
		}
	}
}

// sortedOurs prints our chains in the order of their names.
func sortedOurs(t *Table) string {
	var lines []string
	for _, c := range t.Chains {
		var b strings.Builder
		if _, ours := tagOf(c.Name); ours {
			fmt.Fprintf(&b, ":%s\n", c.Name)
		}
		for _, r := range c.Rules {
			if strings.Contains(r.Spec, chainPrefix) || strings.Contains(r.Spec, commentPrefix) || strings.HasPrefix(c.Name, chainPrefix) {
				fmt.Fprintf(&b, "-A %s %s\n", c.Name, r.Spec)
			}
		}
		lines = append(lines, b.String())
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}

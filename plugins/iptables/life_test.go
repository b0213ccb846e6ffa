package iptables

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/plugins/iptables/internal/host"
	"github.com/fairlead/fairlead/plugins/iptables/internal/rules"
	"github.com/fairlead/fairlead/test/await"
	"github.com/fairlead/fairlead/test/netns"
	"github.com/fairlead/fairlead/test/runnable"
	"github.com/fairlead/fairlead/test/scale"
)

// sysctls are the settings of the kernel that data planes of this kind like to alter.
func sysctls() string {
	var all []string
	for _, name := range []string{
		"ipv4/ip_forward", "ipv4/conf/all/route_localnet", "ipv4/conf/lo/route_localnet", "ipv4/conf/all/rp_filter", "ipv4/conf/default/rp_filter",
		"ipv6/conf/all/forwarding", "netfilter/nf_conntrack_tcp_be_liberal",
	} {
		all = append(all, name+"="+host.Sysctl("net/"+name))
	}
	return strings.Join(all, " ")
}

// TestLeads: a connection to a VIP gets to its endpoint, IPv4 and IPv6, though this
// host has no route to anywhere; one without endpoints is refused at once; a listener
// of this host is not reached through a VIP; and no setting of the kernel is altered.
func TestLeads(t *testing.T) {
	before := sysctls()
	eachVariant(t, func(t *testing.T, v host.Variant) {
		w := newWorld(t, v)
		four, six := listenTCP(t, "127.0.0.1:0", "four"), listenTCP(t, "[::1]:0", "six")
		w.good(w.apply(
			service("four", vip("10.200.1.1:80", dataplane.TCP), four),
			service("six", vip("[fd00:200::1]:80", dataplane.TCP), six),
			service("empty", append(vip("10.200.1.3:80", dataplane.TCP), vip("[fd00:200::3]:80", dataplane.TCP)...)),
		))
		answers(t, "10.200.1.1:80", "four")
		answers(t, "[fd00:200::1]:80", "six")
		for _, empty := range []string{"10.200.1.3:80", "[fd00:200::3]:80"} {
			if got, err := ask(empty); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("%s without endpoints: %q, %v; want it refused", empty, got, err)
			}
		}
		if h := w.provider.Health(t.Context()); h.State != dataplane.HealthReady {
			t.Errorf("Health says %+v", h)
		}
		everywhere := listenTCP(t, "[::]:0", "a listener of this host")
		for _, ip := range []string{"10.200.1.1", "fd00:200::1"} {
			addr := net.JoinHostPort(ip, fmt.Sprint(everywhere.Port()))
			c, err := net.DialTimeout("tcp", addr, 300*time.Millisecond)
			if err == nil {
				c.Close()
				t.Errorf("%s, of which no service is, was answered by this host", addr)
			}
		}
	})
	if after := sysctls(); after != before {
		t.Errorf("settings of the kernel were\n%s, are\n%s", before, after)
	}
}

// TestRoutes: a host that has routes to VIPs gets none of ours, and one that lost
// ours gets them back.
func TestRoutes(t *testing.T) {
	w := newWorld(t, host.NFT, func(s *settings) { s.CheckInterval = "50ms" })
	endpoint := listenTCP(t, "127.0.0.1:0", "a")
	command(t, "ip", "route", "add", "10.210.0.0/16", "dev", "lo", "src", "127.0.0.1")
	t.Cleanup(func() { command(t, "ip", "route", "del", "10.210.0.0/16", "dev", "lo") })
	a := service("a", vip("10.210.0.1:80", dataplane.TCP), endpoint)
	w.good(w.apply(a))
	answers(t, "10.210.0.1:80", "a")
	if list := command(t, "ip", "rule"); strings.Contains(list, fmt.Sprint(host.RouteProtocol)) {
		t.Errorf("a VIP that has a route got one of ours:\n%s", list)
	}
	b := service("b", vip("10.200.0.2:80", dataplane.TCP), endpoint)
	w.good(w.apply(a, b))
	answers(t, "10.200.0.2:80", "a")
	command(t, "ip", "rule", "del", "pref", "32900")
	netns.Eventually(t, await.Patience, func() bool { got, _ := ask("10.200.0.2:80"); return got == "a" }, "the route to come back")
	w.restart()
	w.good(w.apply(a))
	w.good(w.apply())
	if list := command(t, "ip", "rule"); strings.Contains(list, fmt.Sprint(host.RouteProtocol)) {
		t.Errorf("without VIPs routing rules are left:\n%s", list)
	}
}

// TestDrift: what others do to the tables is found by the fingerprint, told and
// undone within two ticks; their own rules stay.
func TestDrift(t *testing.T) {
	eachVariant(t, func(t *testing.T, v host.Variant) { testDrift(t, v, dearRead) })
	t.Run("nft-dear", func(t *testing.T) { testDrift(t, host.NFT, 0) }) // as if reading the tables took long
}

func testDrift(t *testing.T, v host.Variant, dear time.Duration) {
	w := newWorld(t, v, func(s *settings) { s.CheckInterval = "1h" }) // what finds it is the fingerprint
	w.provider.dear = dear
	ipt := "iptables-" + string(v)
	events := make(chan dataplane.Drift, 64)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		_ = w.provider.Watch(ctx, nil, func(e dataplane.Event) {
			if e.Drift != nil {
				events <- *e.Drift
			}
		})
	}()
	netns.Eventually(t, await.Patience, func() (watched bool) {
		w.provider.show(func(sh *shown) { watched = len(sh.watchers) == 1 })
		return watched
	}, "the watcher")
	endpoint := listenTCP(t, "127.0.0.1:0", "a")
	command(t, ipt, append([]string{"-w", "20", "-t", "nat", "-A", "OUTPUT"}, foreignRule...)...)
	defer func() {
		_ = exec.Command(ipt, append([]string{"-w", "20", "-t", "nat", "-D", "OUTPUT"}, foreignRule...)...).Run()
	}()
	w.good(w.apply(service("a", vip("10.200.2.1:80", dataplane.TCP), endpoint)))
	command(t, ipt, append([]string{"-w", "20", "-t", "nat", "-C", "OUTPUT"}, foreignRule...)...)
	good := saved(t, v)[rules.IPv4]
	root := "FAIRLEAD-" + rules.Tag(w.config.InstanceID) + "-OUT"
	fastest := time.Hour
	for _, damage := range [][]string{
		{ipt, "-w", "20", "-t", "nat", "-F"},
		{ipt, "-w", "20", "-t", "nat", "-F", root},
		{ipt, "-w", "20", "-t", "nat", "-D", "OUTPUT", "1"},
		{"sh", "-c", ipt + "-save -t nat | grep -v 'FAIRLEAD\\|fairlead' | " + ipt + "-restore -w 20 -T nat"}, // as a firewall does that keeps its rules in a file
	} {
		command(t, damage[0], damage[1:]...)
		took := netns.Eventually(t, await.Patience, func() bool {
			c, err := net.DialTimeout("tcp", "10.200.2.1:80", 100*time.Millisecond)
			if err == nil {
				c.Close()
			}
			return err == nil
		}, "repair after %v", damage)
		t.Logf("%v: repaired in %v", damage, took)
		fastest = min(fastest, took)
		select {
		case e := <-events:
			if !e.Repaired || e.What == "" {
				t.Errorf("%v: told of %+v", damage, e)
			}
		case <-time.After(await.Patience):
			t.Errorf("%v: no word of drift", damage)
		}
		if damage[len(damage)-1] == "-F" {
			command(t, ipt, append([]string{"-w", "20", "-t", "nat", "-A", "OUTPUT"}, foreignRule...)...) // it was flushed too
		} else {
			command(t, ipt, append([]string{"-w", "20", "-t", "nat", "-C", "OUTPUT"}, foreignRule...)...)
		}
	}
	// The other times are those of a machine that is busy with much else.
	if most := scale.Bound(2*tickTime, 10*tickTime); fastest > most {
		t.Errorf("the fastest repair took %v, want %v at most", fastest, most)
	}
	netns.Eventually(t, await.Patience, func() bool { return w.provider.Health(t.Context()).State == dataplane.HealthReady }, "Health to be ready again")
	if now := saved(t, v)[rules.IPv4]; sorted(now) != sorted(good) {
		t.Errorf("repaired it is\n%s, was\n%s", now, good)
	}
}

// sorted is a saved table without what differs by time: comments and counters.
func sorted(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		if line[0] == '-' {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

// TestLockHeld: while another process holds the lock of the legacy tables a generation
// fails in time, Health names the process, what was programmed works on; and the next
// generation after it succeeds.
func TestLockHeld(t *testing.T) {
	lock := filepath.Join(t.TempDir(), "xtables.lock")
	t.Setenv("XTABLES_LOCKFILE", lock)
	w := newWorld(t, host.Legacy)
	endpoint := listenTCP(t, "127.0.0.1:0", "a")
	a, b := service("a", vip("10.200.3.1:80", dataplane.TCP), endpoint), service("b", vip("10.200.3.2:80", dataplane.TCP), endpoint)
	w.good(w.apply(a))
	holder := exec.Command("flock", "-F", lock, "sleep", "3600")
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	release := func() { _ = holder.Process.Kill(); _ = holder.Wait() }
	defer release()
	netns.Eventually(t, await.Patience, func() bool { return host.TryLock(t.Context(), time.Nanosecond) != nil }, "the lock to be held")
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second) // the lock is waited for no longer than lockTime
	defer cancel()
	_, err := w.provider.Reconcile(ctx, w.snapshot(a, b), dataplane.Delta{})
	if !errors.Is(err, dataplane.ErrFailed) || !errors.Is(err, host.ErrLocked) || ctx.Err() != nil {
		t.Errorf("with the lock held: %v; the call's own time: %v", err, ctx.Err())
	}
	h := w.provider.Health(t.Context())
	if h.State != dataplane.HealthDegraded || !strings.Contains(strings.Join(h.Reasons, " "), fmt.Sprintf("process %d", holder.Process.Pid)) {
		t.Errorf("with the lock held by process %d Health says %+v", holder.Process.Pid, h)
	}
	answers(t, "10.200.3.1:80", "a")
	release()
	w.good(w.apply(a, b))
	answers(t, "10.200.3.2:80", "a")
	if h := w.provider.Health(t.Context()); h.State != dataplane.HealthReady {
		t.Errorf("afterwards Health says %+v", h)
	}
}

// TestRestart: the next process knows what is applied, changes nothing for the same
// content, and counts what is there; one without the journal asks for a snapshot; and
// one that finds another's change to the tables claims nothing, and repairs it.
func TestRestart(t *testing.T) {
	eachVariant(t, func(t *testing.T, v host.Variant) {
		w := newWorld(t, v)
		endpoint := listenTCP(t, "127.0.0.1:0", "a")
		a := service("a", vip("10.200.4.1:80", dataplane.TCP), endpoint)
		w.good(w.apply(a))
		w.good(w.apply(a, service("b", vip("10.200.4.2:80", dataplane.UDP), endpoint)))
		w.good(w.apply(a))
		before := saved(t, v)[rules.IPv4]
		w.restart()
		if st, _ := w.provider.State(t.Context()); st.Generation != 3 || string(st.Digest) != "digest" || !st.Complete || st.InstanceID != w.config.InstanceID {
			t.Errorf("after a restart State says %+v", st)
		}
		if r := w.apply(a); r.Operations != 0 {
			t.Errorf("told the same, the new process made %d operations", r.Operations)
		}
		if after := saved(t, v)[rules.IPv4]; sorted(after) != sorted(before) {
			t.Errorf("the tables were\n%s, are\n%s", before, after)
		}
		command(t, "iptables-"+string(v), "-w", "20", "-t", "nat", "-F", "FAIRLEAD-"+rules.Tag(w.config.InstanceID)+"-OUT")
		w.restart()
		if st, _ := w.provider.State(t.Context()); st.Generation != 0 {
			t.Errorf("the tables were altered in between, State says %+v", st)
		}
		answers(t, "10.200.4.1:80", "a")
		if err := os.RemoveAll(w.config.StateDir); err != nil {
			t.Fatal(err)
		}
		w.restart()
		if st, _ := w.provider.State(t.Context()); st.Generation != 0 {
			t.Errorf("without a journal State says %+v", st)
		}
		answers(t, "10.200.4.1:80", "a")
		if r := w.apply(a); r.Operations != 0 {
			t.Errorf("told the same, the new process made %d operations", r.Operations)
		}
	})
}

// TestBadService: one service that the system refuses is named, keeps what it was, and
// blocks no other.
func TestBadService(t *testing.T) {
	eachVariant(t, func(t *testing.T, v host.Variant) {
		// A restore that refuses one address stands for whatever a kernel may refuse.
		t.Setenv("PATH", refusingRestore(t, v, "10.200.6.7")+":"+os.Getenv("PATH"))
		w := newWorld(t, v)
		endpoint := listenTCP(t, "127.0.0.1:0", "a")
		var services []*dataplane.Service
		for i := range 9 {
			services = append(services, service(fmt.Sprint("s", i), vip(fmt.Sprintf("10.200.6.%d:80", i+1), dataplane.TCP), endpoint))
		}
		w.good(w.apply(services[:2]...))
		r := w.apply(services...)
		if len(r.Statuses) != 1 || r.Statuses[0].Service != services[6].Key || r.Statuses[0].Reason != dataplane.ReasonApplyFailed {
			t.Errorf("statuses are %+v, want one of %s", r.Statuses, services[6].Key)
		}
		for i, svc := range services {
			if i != 6 {
				answers(t, svc.Frontends[0].Addr.String(), "a")
			}
		}
		r = w.apply(services[1:]...)
		if len(r.Statuses) != 1 {
			t.Errorf("in the next generation statuses are %+v", r.Statuses)
		}
	})
}

// refusingRestore makes a directory with an iptables-restore that refuses a text with
// an address in it.
func refusingRestore(t *testing.T, v host.Variant, addr string) string {
	t.Helper()
	dir := t.TempDir()
	script := fmt.Sprintf(`#!/bin/sh
text=$(cat)
case "$text" in *"-d %s/32"*) echo "line 7 failed" >&2; exit 1;; esac
echo "$text" | /usr/sbin/iptables-%s-restore "$@"
`, addr, v)
	for _, name := range []string{"iptables-restore", "iptables-" + string(v) + "-restore"} {
		if err := runnable.Write(filepath.Join(dir, name), []byte(script)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

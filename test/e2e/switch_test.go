package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/api/client"
	"github.com/fairlead/fairlead/test/scale"
)

// switched is a host whose agent takes its data planes from a file.
type switched struct {
	*led
	file string
}

// newSwitched gives an agent of a fleet every L4 plane of Fairlead's own; which one it
// runs is written by wish.
func newSwitched(t *testing.T, a *agent) *switched {
	t.Helper()
	s := &switched{led: newLed(a), file: a.dir + ".yaml"}
	a.args = []string{"--config", s.file, "--log.format", "json", "--gossip.profile", "local", "--api.listen", "off", "--dns.listen", "off"}
	if err := build(filepath.Join(plugins, "iptables"), "../../cmd/fairlead-dataplane-iptables"); err != nil {
		t.Fatal(err)
	}
	a.install("iptables", "iptables")
	// A module of its own, as a stranger's would be.
	path := filepath.Join(plugins, "nftables")
	cmd := exec.Command("go", "build", "-o", path, ".")
	cmd.Dir = "../../contrib/plugins/nftables"
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	a.install("nftables", "nftables")
	return s
}

// wish writes which planes the agent is to run.
func (s *switched) wish(planes string) {
	s.t.Helper()
	web := webAt(instanceOfWeb("a", s.url(9001)), instanceOfWeb("b", s.url(9002)))
	config := object{
		"dataplane": planes, "plugins": object{"ebpf": object{"cgroup": s.cgroup}},
		"services": []object{web},
	}
	if err := os.WriteFile(s.file, []byte(text(s.t, config)), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// runsOnly waits until the agent runs this plane, and took leave of all others.
func (s *switched) runsOnly(plane string) {
	s.t.Helper()
	s.eventually(60*time.Second, "only "+plane+" runs", func() error {
		return s.ask(func(ctx context.Context, c *client.Client) error {
			e, err := c.ExplainPlugins(ctx)
			if err == nil && (len(e.Chosen) != 1 || e.Chosen[0].Name != plane || len(e.Leaving) > 0) {
				err = fmt.Errorf("chosen %v, leaving %v", e.Chosen, e.Leaving)
			}
			if err != nil {
				return err
			}
			list, err := c.Plugins(ctx)
			for _, p := range list.Plugins {
				if p.Name == plane && (p.State != "ready" || p.Told == nil || !p.Told.Complete) {
					return fmt.Errorf("%s is %s, told %+v", plane, p.State, p.Told)
				}
			}
			return err
		})
	})
}

// cleanup is the command that cleans up after the agent.
func (s *switched) cleanup(args ...string) (string, error) {
	under := append(s.inside(), "env", "FAIRLEAD_PLUGIN_DIRS="+s.pluginDir(), "FAIRLEAD_API_SOCKET="+s.socket(), "FAIRLEAD_NODE_DATA_DIR="+s.dir,
		fairlead, "cleanup", "--config", s.file, "-o", "json")
	return s.node.Run(s.t.Context(), under[0], append(under[1:], args...)...)
}

// traces lists what a plane has in the system of the host: as it says itself, and as
// the system does where it can be asked without the plane.
func (s *switched) traces(plane string) string {
	s.t.Helper()
	out, err := s.cleanup("--dry-run", "--all", "--force")
	var found struct {
		Items []struct{ Plugin, Object, Result string }
	}
	if err == nil {
		err = json.Unmarshal([]byte(out), &found)
	}
	if err != nil {
		s.t.Fatalf("%v: %s", err, out)
	}
	var names []string
	for _, i := range found.Items {
		if i.Plugin == plane {
			names = append(names, i.Result+" "+i.Object)
		}
	}
	look := map[string]string{
		"ebpf":     "ls /sys/fs/bpf/fairlead 2>/dev/null || true",
		"iptables": "for t in iptables-legacy-save iptables-nft-save ip6tables-legacy-save ip6tables-nft-save; do $t -t nat 2>/dev/null; done | grep -i FAIRLEAD || true",
	}[plane]
	if look != "" {
		under := append(s.inside(), "sh", "-c", look)
		out, err := s.node.Run(s.t.Context(), under[0], under[1:]...)
		if err != nil {
			s.t.Fatalf("%v: %s", err, out)
		}
		names = append(names, strings.Fields(out)...)
	}
	return strings.Join(names, "\n")
}

// TestSwitchOfPlanes: from each L4 plane to the next under 200 connects a second, by
// a reload and by a restart with another wish, no connect fails, and of the plane
// before nothing is left. After kill -9 of all, cleanup leaves nothing of any.
func TestSwitchOfPlanes(t *testing.T) {
	f := newFleet(t, 1)
	a := f.agents[0]
	s := newSwitched(t, a)
	a.runs(9001, "a")
	a.runs(9002, "b")
	s.wish("ebpf")
	a.start()
	s.runsOnly("ebpf")
	load := s.dials("--to", vipOfWeb, "--rate", "200")
	load.answers(a, "a", "b")
	was := "ebpf"
	for range scale.N(5) {
		for _, next := range []string{"iptables", "nftables", "ebpf"} {
			s.wish(next)
			if next == "nftables" {
				a.proc.Signal(syscall.SIGTERM)
				if err := a.proc.Wait(t.Context()); err != nil {
					t.Fatal(err)
				}
				a.start()
			} else {
				a.proc.Signal(syscall.SIGHUP)
			}
			s.runsOnly(next)
			load.answers(a, "a", "b")
			if left := s.traces(was); left != "" {
				t.Errorf("after the switch from %s to %s there is\n%s", was, next, left)
			}
			if s.traces(next) == "" {
				t.Errorf("nothing is seen of %s", next)
			}
			was = next
		}
	}
	load.stopped(t, "a", "b")

	s.wish("iptables")
	a.proc.Signal(syscall.SIGHUP)
	s.runsOnly("iptables")
	a.kill()
	// At once it may find that the plane, which ends with its agent, still runs.
	a.eventually(30*time.Second, "all is clean", func() error {
		out, err := s.cleanup()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	for _, plane := range []string{"ebpf", "iptables", "nftables"} {
		if left := s.traces(plane); left != "" {
			t.Errorf("after cleanup there is\n%s", left)
		}
	}
	for _, left := range []string{a.socket(), a.runDir(), filepath.Join(a.dir, "plugins")} {
		if _, err := os.Lstat(left); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("after cleanup there is %s: %v", left, err)
		}
	}
}

// asksAgain has the held connection carry one more question, and waits for its answer.
func (s *switched) asksAgain(held *dialer) {
	s.t.Helper()
	before := held.dials()
	held.Signal(syscall.SIGUSR1)
	s.eventually(30*time.Second, "an answer over the connection that is held", func() error {
		switch now := held.dials(); {
		case len(now) == len(before):
			return errors.New("none")
		case now[len(now)-1].fault != "":
			s.t.Fatalf("the connection that was held broke: %s", now[len(now)-1].fault)
		}
		return nil
	})
}

// TestLeaveOfNATPlanes: when one plane that does NAT takes the place of another, under
// 200 connects a second, a connection that was led before goes on, however long, and
// the leave ends soon after it: what the new plane leads is not waited for. No connect
// fails.
func TestLeaveOfNATPlanes(t *testing.T) {
	f := newFleet(t, 1)
	a := f.agents[0]
	s := newSwitched(t, a)
	a.runs(9001, "a")
	a.runs(9002, "b")
	s.wish("iptables")
	a.start()
	s.runsOnly("iptables")
	load := s.dials("--to", vipOfWeb, "--rate", "200")
	load.answers(a, "a", "b")
	was := "iptables"
	for _, next := range []string{"nftables", "iptables"} {
		held := s.dials("--to", vipOfWeb, "--hold")
		s.eventually(10*time.Second, "a connection that is held", func() error {
			if all := held.dials(); len(all) != 1 || all[0].fault != "" {
				return fmt.Errorf("%+v", all)
			}
			return nil
		})
		s.wish(next)
		a.proc.Signal(syscall.SIGHUP)
		waits := regexp.MustCompile(`(^|\D)1( IPv4)? connections in conntrack`)
		s.eventually(60*time.Second, was+" waits for just the connection that is held", func() error {
			return s.ask(func(ctx context.Context, c *client.Client) error {
				e, err := c.ExplainPlugins(ctx)
				if err == nil && (len(e.Leaving) != 1 || !waits.MatchString(e.Leaving[0].Reason)) {
					err = fmt.Errorf("%+v", e.Leaving)
				}
				return err
			})
		})
		load.answers(a, "a", "b")
		s.asksAgain(held)
		closed := time.Now()
		held.Kill()
		s.runsOnly(next)
		t.Logf("%s was gone %v after its last connection", was, time.Since(closed).Round(time.Millisecond))
		if left := s.traces(was); left != "" {
			t.Errorf("after the switch from %s to %s there is\n%s", was, next, left)
		}
		load.answers(a, "a", "b")
		was = next
	}
	load.stopped(t, "a", "b")
}

// TestPlanesOfDifferentScopes: two L4 planes run side by side where a setting leaves
// each its traffic, and are a wrong configuration otherwise.
func TestPlanesOfDifferentScopes(t *testing.T) {
	a := newFleet(t, 1).agents[0]
	s := newSwitched(t, a)
	s.wish("ebpf,iptables")
	a.start()
	if err := a.proc.Wait(t.Context()); err == nil {
		t.Error("the agent runs two planes for the same traffic")
	}
	for _, want := range []string{"two L4 providers for local traffic, ebpf and iptables", "set plugins.iptables.mode to forwarded"} {
		if !strings.Contains(a.proc.Output(), want) {
			t.Errorf("the agent does not say %q:\n%s", want, a.proc.Output())
		}
	}
	a.env = append(a.env, "FAIRLEAD_PLUGIN_IPTABLES_MODE=forwarded")
	a.start()
	s.eventually(30*time.Second, "both have the service", func() error {
		return s.ask(func(ctx context.Context, c *client.Client) error {
			list, err := c.Plugins(ctx)
			ready := 0
			for _, p := range list.Plugins {
				// DEGRADED is one that could serve others, on a host that forwards nothing.
				if p.State == "ready" && p.Told != nil && p.Told.Services == 1 && (p.Health == "READY" || p.Health == "DEGRADED") {
					ready++
				}
			}
			if err == nil && ready != 2 {
				err = fmt.Errorf("%+v", list.Plugins)
			}
			return err
		})
	})
	for _, plane := range []string{"ebpf", "iptables"} {
		if s.traces(plane) == "" {
			t.Errorf("nothing is seen of %s", plane)
		}
	}
}

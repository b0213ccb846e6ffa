package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// foreign makes rules and routes of somebody else wherever a plane may have some. The
// rules are in all chains that a plane may use, so that what iptables itself makes
// with the first rule of a table is there.
const foreign = `
for b in iptables-legacy iptables-nft ip6tables-legacy ip6tables-nft; do
	for c in PREROUTING INPUT OUTPUT POSTROUTING; do $b -t nat -A $c -m comment --comment foreign -j RETURN; done
done
nft 'table ip foreign { set s { type ipv4_addr; elements = { 192.0.2.9 }; }; chain c { type nat hook output priority -90; ip daddr @s accept; }; }'
ip route add 192.0.2.0/24 dev lo
ip rule add from 192.0.2.1 lookup 77 priority 32000
ip route add 198.51.100.0/24 dev lo table 77
mkdir /sys/fs/bpf/foreign
`

// everything lists what may be in the kernel: rules, sets, routes, pins.
const everything = `
for b in iptables-legacy iptables-nft ip6tables-legacy ip6tables-nft; do echo "$b"; $b -t nat -S; done
nft -s list ruleset | sed 's/counter packets [0-9]* bytes [0-9]*/counter/'
for f in -4 -6; do ip $f rule; ip $f route show table all; done
find /sys/fs/bpf
`

// everything is all that, in order.
func (h *planeHost) everything() string {
	h.t.Helper()
	lines := strings.Split(h.does("sh", "-e", "-c", everything), "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// TestCleanup: what an agent uses is kept, and said. After kill -9 of the agent and its planes, cleanup finds all that is
// left, and with --dry-run alters nothing; then it removes that, and nothing else.
func TestCleanup(t *testing.T) {
	tests := append(natPlanes(), natPlane{name: "ebpf", plane: "ebpf"})
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			h := newPlaneHost(newFleet(t, 1).agents[0], test.plane, test.settings)
			h.does("sh", "-e", "-c", foreign)
			before := h.everything()
			h.serves(test.plane, 2)
			load := h.dials("--to", vipOfWeb, "--rate", "50")
			load.answers(h.agent, "a", "b")
			h.refuses(vipOfEmpty)
			running := h.everything()
			out, err := h.cleanup()
			for _, i := range cleanedUp(t, out) {
				if i.Result != "kept" || !strings.Contains(i.Message, "in use by ") {
					t.Errorf("while the agent runs: %+v", i)
				}
			}
			if now := h.everything(); err == nil || now != running || len(cleanedUp(t, out)) == 0 {
				t.Errorf("cleanup while the agent runs: %v, %s\n%s", err, out, difference(running, now))
			}

			h.kill()
			for _, pid := range h.pluginProcesses() {
				_ = syscall.Kill(pid, syscall.SIGKILL) // it may end by itself
			}
			h.eventually(10*time.Second, "all processes are gone", h.noProcess)
			load.answers(h.agent, "a", "b")
			left := h.everything()
			if left == before {
				t.Error("nothing is left of the plane: the test sees too little")
			}
			// A process that is ending is a user still.
			h.eventually(10*time.Second, "nobody uses what is left", func() error {
				out, err = h.cleanup("--dry-run")
				return err
			})
			would := 0
			for _, i := range cleanedUp(t, out) {
				if i.Result != "would-remove" || strings.HasPrefix(i.Object, "process ") {
					t.Errorf("dry run: %+v", i)
				}
				if i.Plugin == test.plane && i.Object != "" {
					would++
				}
			}
			if would == 0 {
				t.Errorf("dry run: nothing of %s in %s", test.plane, out)
			}
			if now := h.everything(); now != left {
				t.Errorf("the dry run altered something:\n%s", difference(left, now))
			}
			// So is one of another test that does not say yet whose it is.
			removed := 0
			h.eventually(20*time.Second, "all is removed", func() error {
				out, err = h.cleanup()
				for _, i := range cleanedUp(t, out) {
					if i.Plugin == test.plane && i.Result == "removed" {
						removed++
					}
				}
				if err != nil {
					return fmt.Errorf("%w: %s", err, out)
				}
				return nil
			})
			if removed != would {
				t.Errorf("%d objects are removed, the dry run told of %d: %s", removed, would, out)
			}
			if now := h.everything(); now != before {
				t.Errorf("after cleanup:\n%s", difference(before, now))
			}
			h.eventually(10*time.Second, "the VIP leads nowhere", func() error {
				all := load.dials()
				if last := all[len(all)-1]; last.fault == "" {
					return fmt.Errorf("%+v", last)
				}
				return nil
			})
			for _, path := range []string{h.socket(), h.runDir(), filepath.Join(h.dir, "plugins")} {
				if _, err := os.Lstat(path); !os.IsNotExist(err) {
					t.Errorf("%s is left: %v", path, err)
				}
			}
			if out, err := h.cleanup("--all"); err != nil || len(cleanedUp(t, out)) > 0 {
				t.Errorf("a second cleanup finds %s, %v", out, err)
			}
		})
	}
}

// difference lists lines that are in one text only.
func difference(was, is string) string {
	var out []string
	a, b := strings.Split(was, "\n"), strings.Split(is, "\n")
	for _, line := range a {
		if !slices.Contains(b, line) {
			out = append(out, "- "+line)
		}
	}
	for _, line := range b {
		if !slices.Contains(a, line) {
			out = append(out, "+ "+line)
		}
	}
	return strings.Join(out, "\n")
}

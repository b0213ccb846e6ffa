package l4_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/dataplane/conformance"
	"github.com/fairlead/fairlead/dataplane/conformance/l4"
	"github.com/fairlead/fairlead/test/netns"
	"github.com/fairlead/fairlead/test/scale"
)

// plane builds the plane by NAT of testdata. The test is skipped where there are
// no namespaces.
func plane(t *testing.T) string {
	t.Helper()
	netns.Require(t)
	dir, err := os.MkdirTemp("", "l4-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "plane")
	if out, err := exec.Command("go", "build", "-o", path, "./testdata/plane").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

// nat is the profile of a plane by NAT.
func nat() l4.Profile {
	return l4.Profile{
		Without: map[l4.Feature]string{
			l4.Ends: "NAT rewrites packets, and has no hold on sockets", l4.ConntrackFree: "it is NAT",
			l4.Loopback: "needs route_localnet", l4.Affinity: "this plane has none",
		},
		Limit: &l4.Limit{Services: 30, Fit: 20},
		Foreign: func(l4.Host) (func() error, error) {
			if out, err := exec.Command("nft", "add table ip foreign; add chain ip foreign c").CombinedOutput(); err != nil {
				return nil, fmt.Errorf("%w: %s", err, out)
			}
			return func() error { return exec.Command("nft", "list chain ip foreign c").Run() }, nil
		},
	}
}

// TestNAT: a plane that is not at the sockets passes as well.
func TestNAT(t *testing.T) {
	l4.Test(t, l4.Target{Exec: plane(t)}, nat(), l4.Options{Scale: scale.Factor()})
}

// TestFlaws shows that checks can fail: planes with one flaw each, and the check
// that has to reject it.
func TestFlaws(t *testing.T) {
	path := plane(t)
	for flaw, checks := range map[string]string{
		"does-nothing":            "table.local-vip-tcp-v4 datagram.large client.everywhere client.bound client.io-uring client.two-vips client.hairpin datagram.source datagram.sticky datagram.pairs change.frontends life.changed",
		"local-only":              "table.container-vip-tcp-v6",
		"protocols-mixed":         "table.tcp-and-udp",
		"ports-mixed":             "table.other-port",
		"drops-when-empty":        "refuse.blocking refuse.non-blocking refuse.io-uring change.scale-to-zero",
		"lets-through-when-empty": "refuse.udp refuse.on-empty",
		"takes-all":               "change.drain refuse.unusable",
		"trusts-suspects":         "change.suspects",
		"shuns-suspects":          "change.suspects",
		"one-too-few":             "model.random",
		"prefers-the-first":       "balance.3",
		"weighs-nothing":          "balance.weights",
		"two-steps":               "change.switch",
		"keeps-removed":           "change.removed",
		"knows-no-foreign":        "client.foreign",
		"forgets-all":             "datagram.restart",
		"keeps-flows":             "datagram.transitions removal.udp",
		"no-masquerade":           "client.hairpin-container",
		"adopts-the-vip":          "client.ping",
		"ill-when-empty":          "client.check",
		"ends-direct":             "removal.time-left removal.dead-heard",
		"begins-anew":             "life.kill",
		"cleans-up-at-end":        "life.shutdown",
		"leaves-rules":            "life.cleanup",
		"silent-limit":            "life.limit",
		"flushes-all":             "life.foreign",
	} {
		for check := range strings.FieldsSeq(checks) {
			t.Run(flaw+" "+check, func(t *testing.T) {
				t.Parallel() // they wait most of the time
				rejected(t, l4.Target{Exec: path, Env: []string{"FLAW=" + flaw}}, nat(), check)
			})
		}
	}
	// What a profile excludes is demanded of who does not exclude it.
	for feature, checks := range map[l4.Feature][]string{
		l4.Ends: {
			"removal.dead-silent", "removal.dead-drained", "removal.left", "removal.drained", "removal.reconnected", "removal.container",
		},
		l4.ConntrackFree: {"client.conntrack"}, l4.Loopback: {"table.local-loopback-tcp-v4"}, l4.Affinity: {"balance.affinity", "balance.affinity-ends"},
	} {
		for _, check := range checks {
			t.Run(string(feature)+" "+check, func(t *testing.T) {
				t.Parallel()
				p := nat()
				delete(p.Without, feature)
				rejected(t, l4.Target{Exec: path}, p, check)
			})
		}
	}
}

func rejected(t *testing.T, target l4.Target, p l4.Profile, check string) {
	t.Helper()
	report := l4.Run(t.Context(), target, p, l4.Options{Only: []string{check}, Answer: 500 * time.Millisecond, Seed: 1})
	if report.Error != "" {
		t.Errorf("the suite did not run to its end: %s", report.Error)
	}
	r := report.Result(check)
	if r.Outcome != conformance.Failed || r.Remedy == "" {
		t.Fatalf("%s did not reject it: %q (%s)", check, r.Outcome, r.Evidence)
	}
	t.Logf("%s rejected it: %s", check, r.Evidence)
}

// TestExclusions: a reason is printed, and what a plane claims stays demanded.
func TestExclusions(t *testing.T) {
	path := plane(t)
	report := l4.Run(t.Context(), l4.Target{Exec: path}, nat(), l4.Options{Only: []string{"client.conntrack"}})
	if r := report.Result("client.conntrack"); r.Outcome != conformance.Skipped || !strings.Contains(r.Evidence, "it is NAT") {
		t.Errorf("%+v", r)
	}
	p := nat()
	p.Without[l4.Containers] = "no wish to"
	if report := l4.Run(t.Context(), l4.Target{Exec: path}, p, l4.Options{}); !strings.Contains(report.Error, "claims scope forwarded") {
		t.Errorf("containers were excluded from a plane that claims them: %q", report.Error)
	}
}

func TestValidate(t *testing.T) {
	good := l4.Target{Exec: "true"}
	for want, c := range map[string]struct {
		target  l4.Target
		profile l4.Profile
		options l4.Options
	}{
		"give an executable": {},
		"below 0":            {good, l4.Profile{}, l4.Options{Scale: -1}},
		"is no feature":      {good, l4.Profile{Without: map[l4.Feature]string{"x": "why"}}, l4.Options{}},
		"without a reason":   {good, l4.Profile{Without: map[l4.Feature]string{l4.Ends: " "}}, l4.Options{}},
		"some have to fit":   {good, l4.Profile{Limit: &l4.Limit{Services: 3, Fit: 3}}, l4.Options{}},
		"neither a check":    {good, l4.Profile{}, l4.Options{Only: []string{"x"}}},
		"file not found":     {l4.Target{Exec: "no-such-program"}, l4.Profile{}, l4.Options{}},
	} {
		if r := l4.Run(t.Context(), c.target, c.profile, c.options); !strings.Contains(r.Error, want) || r.OK() {
			t.Errorf("%+v: %q, want %q", c, r.Error, want)
		}
	}
}

// TestEnds: a program that is no provider ends the suite, and nothing stays.
func TestEnds(t *testing.T) {
	netns.Require(t)
	r := l4.Run(t.Context(), l4.Target{Exec: "false"}, l4.Profile{}, l4.Options{})
	if !strings.Contains(r.Error, "before it listened") {
		t.Errorf("%q", r.Error)
	}
}

func TestChecksAreDescribed(t *testing.T) {
	var seen []string
	for _, c := range l4.Checks() {
		if group := c.Group(); group == "" || group == c.ID || slices.Contains(seen, c.ID) || !strings.HasSuffix(c.Demand, ".") || c.Remedy == "" || strings.HasSuffix(c.Remedy, ".") {
			t.Errorf("check %q of group %q: demand %q, remedy %q", c.ID, group, c.Demand, c.Remedy)
		}
		seen = append(seen, c.ID)
	}
}

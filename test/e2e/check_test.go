package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

// checked is one finding of `fairlead check`.
type checked struct{ Group, Check, State, Seen, Fix string }

// check runs `fairlead check` on the agent's node, with the agent's configuration
// as a file.
func (a *agent) check(config string) map[string]checked {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(a.t.Context(), 30*time.Second)
	defer cancel()
	out, err := a.node.Run(ctx, fairlead, "check", "-o", "json", "--config", config)
	var all struct{ Findings []checked }
	if bad := json.Unmarshal([]byte(out), &all); bad != nil {
		a.t.Fatalf("%v, %v: %s", err, bad, out)
	}
	by := make(map[string]checked)
	for _, c := range all.Findings {
		by[c.Group+" "+c.Check] = c
	}
	return by
}

// TestCheckBesideAgents: what listens is the agent's own while it runs, and
// somebody else's otherwise; a peer is reached or not.
func TestCheckBesideAgents(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2)
	a, peer := f.agents[0], f.agents[1]
	config := a.writeConfig("fairlead.yaml", fmt.Sprintf(`
node: {name: %s, data_dir: %s, advertise: %s}
cluster: {name: e2e, join: [%s]}
gossip: {bind: "%s:7400", insecure: true}
api: {socket: %s}
http: {listen: off}
dataplane: off
`, a.name, a.dir, a.node.Addr(), peer.node.Addr(), a.node.Addr(), a.socket()))

	// A check leaves out what a busy machine takes too long for. No state: any, if it was
	// looked at.
	shows := func(when string, want ...checked) {
		t.Helper()
		f.eventually(30*time.Second, when, func() error {
			is := a.check(config)
			for _, w := range want {
				got := is[w.Group+" "+w.Check]
				looked := got.Seen != "" && got.State != "skipped"
				if w.State == "" && !looked || w.State != "" && got.State != w.State || !strings.Contains(got.Seen, w.Seen) {
					return fmt.Errorf("%s %s is %+v, want %s with %q", w.Group, w.Check, got, w.State, w.Seen)
				}
			}
			return nil
		})
	}
	network := func(check, state, seen string) checked {
		return checked{Group: "network", Check: check, State: state, Seen: seen}
	}
	at := "peer " + peer.node.Addr().String() + ":7400"
	shows("without an agent and without a peer",
		network("port gossip.bind/udp", "ok", "is free"), network("port gossip.bind/tcp", "ok", "is free"), network("port api.listen/tcp", "ok", "is free"),
		network("advertise", "ok", "on eth0"), network(at, "failed", "refused"))

	f.start()
	const own = "the running agent's"
	shows("beside the agent",
		network("port gossip.bind/udp", "ok", own), network("port gossip.bind/tcp", "ok", own), network("port api.listen/tcp", "ok", own),
		network(at, "ok", "answers TCP and UDP"),
		checked{Group: "storage", Check: "data-dir", State: "ok", Seen: "drwx------"}, checked{Group: "storage", Check: "fsync"})
	// It looked, and that is all: nobody was accused, and nobody is new.
	f.eventually(10*time.Second, "all see all alive", f.agreed(a, peer))
	never(t, f.agents, "", "suspected", "died")

	a.kill()
	stop := a.instance(7400) // somebody else, TCP only
	defer stop()
	shows("beside somebody else",
		network("port gossip.bind/tcp", "failed", "taken by another process"), network("port gossip.bind/udp", "ok", "is free"))
}

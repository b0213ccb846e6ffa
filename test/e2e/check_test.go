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

	want := func(when string, findings map[string]checked, check, state, seen string) {
		t.Helper()
		if got := findings["network "+check]; got.State != state || !strings.Contains(got.Seen, seen) {
			t.Errorf("%s, %s: %+v, want %s with %q", when, check, got, state, seen)
		}
	}
	at := "peer " + peer.node.Addr().String() + ":7400"
	before := a.check(config)
	for _, check := range []string{"port gossip.bind/udp", "port gossip.bind/tcp", "port api.listen/tcp"} {
		want("without an agent", before, check, "ok", "is free")
	}
	want("without an agent", before, "advertise", "ok", "on eth0")
	want("without a peer", before, at, "failed", "refused")

	f.start()
	beside := a.check(config)
	for _, check := range []string{"port gossip.bind/udp", "port gossip.bind/tcp", "port api.listen/tcp"} {
		want("beside the agent", beside, check, "ok", "the running agent's")
	}
	f.eventually(30*time.Second, "the peer answers", func() error { // a check waits a second for it
		if got := a.check(config)["network "+at]; got.State != "ok" || !strings.Contains(got.Seen, "answers TCP and UDP") {
			return fmt.Errorf("%+v", got)
		}
		return nil
	})
	if got := beside["storage data-dir"]; got.State != "ok" || !strings.Contains(got.Seen, "drwx------") {
		t.Errorf("its data directory: %+v", got)
	}
	if got := beside["storage fsync"]; got.State == "skipped" || got.Seen == "" {
		t.Errorf("its disk: %+v", got)
	}
	// It looked, and that is all: nobody was accused, and nobody is new.
	if err := f.agreed(a, peer)(); err != nil {
		t.Error(err)
	}
	never(t, f.agents, "", "suspect", "dead")

	a.kill()
	stop := a.instance(7400) // somebody else, TCP only
	defer stop()
	after := a.check(config)
	want("beside somebody else", after, "port gossip.bind/tcp", "failed", "taken by another process")
	want("beside somebody else", after, "port gossip.bind/udp", "ok", "is free")
}

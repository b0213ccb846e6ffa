package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/api/client"
	"github.com/fairlead/fairlead/core/model"
)

// stopFor announces a restart of at most hold, and waits until the agent ended.
func (a *agent) stopFor(hold time.Duration) {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if out, err := a.node.Run(ctx, fairlead, "leave", "--restart", "--hold", hold.String(), "--api", a.socket()); err != nil {
		a.t.Fatalf("leave --restart: %v\n%s\n%s", err, out, a.proc.Output())
	}
	if err := a.proc.Wait(ctx); err != nil {
		a.t.Fatalf("the agent that restarts ended with %v\n%s", err, a.proc.Output())
	}
}

// isHeld tells the events that announce a restart of the member of name.
func isHeld(name string) func(client.Event) bool {
	return func(e client.Event) bool { return e.Kind == "held" && e.Member.Name == name }
}

// waits is nil while the agent holds the member of name, alive, or is too busy to say.
func (a *agent) waits(name string) error {
	table, err := a.members()
	if err != nil {
		a.t.Log(err)
		return nil
	}
	for _, m := range table {
		if m.Name == name && m.State == model.StateAlive && !m.HeldUntil.IsZero() {
			return nil
		}
	}
	return fmt.Errorf("%s does not wait for %s: %+v", a.name, name, table)
}

// TestMembershipHoldRollingRestart: agents restarted one after the other with
// an announced hold are never seen but alive, although each is away for longer
// than any failure takes to be seen.
func TestMembershipHoldRollingRestart(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3)
	f.start()
	for _, a := range f.agents {
		a.stopFor(25 * time.Second)
		back := time.After(9 * time.Second)
		for away := true; away; {
			select {
			case <-back:
				away = false
			case <-time.After(500 * time.Millisecond):
				for _, o := range f.others(a) {
					if err := o.waits(a.name); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		a.start()
		f.eventually(2*time.Second, a.name+" is back", f.agreed(f.agents...))
		never(t, f.others(a), "", "suspected", "died", "left")
		for _, o := range f.others(a) {
			if !slices.ContainsFunc(o.events(), isHeld(a.name)) {
				t.Errorf("%s has no event of the restart of %s", o.name, a.name)
			}
		}
	}
	never(t, f.agents, "", "suspected", "died", "left")
}

// TestMembershipHoldOfAnotherIsNoShield: a node that fails while another one
// restarts is found as ever; the one that restarts is not suspected for it.
func TestMembershipHoldOfAnotherIsNoShield(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 4)
	f.start()
	restarts, fails := f.agents[2], f.agents[3]
	restarts.stopFor(25 * time.Second)
	fails.kill()
	watch := f.agents[:2]
	f.eventually(8*time.Second, "failure seen by all", all(watch, func(a *agent) error { return a.sees(fails.name, model.StateDead, netip.Addr{}) }))
	restarts.start()
	f.eventually(3*time.Second, "it is back", f.agreed(f.agents[:3]...))
	never(t, watch, restarts.name, "suspected", "died", "left")
}

// TestMembershipHoldMissed: an agent that does not come back is alive as long
// as it said, and then found like any other; it is welcome later.
func TestMembershipHoldMissed(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3)
	f.start()
	gone := f.agents[2]
	gone.stopFor(7 * time.Second)
	f.eventually(7*time.Second+6*time.Second, "failure seen by all", all(f.others(gone), func(a *agent) error { return a.sees(gone.name, model.StateDead, netip.Addr{}) }))
	for _, a := range f.others(gone) {
		var held time.Time
		for _, e := range a.events() {
			switch {
			case isHeld(gone.name)(e):
				held = e.At
			case e.Kind == "suspected" && e.Member.Name == gone.name && e.At.Sub(held) < 7*time.Second-100*time.Millisecond:
				t.Errorf("%s suspects it %v after its announcement", a.name, e.At.Sub(held))
			}
		}
		if held.IsZero() {
			t.Errorf("%s saw no announcement", a.name)
		}
	}
	gone.start()
	f.eventually(2*time.Second, "it is back", f.agreed(f.agents...))
}

// TestPluginHold: a plugin that is to outlive the agent serves on over an
// announced restart, and the next agent takes it over.
func TestPluginHold(t *testing.T) {
	t.Parallel()
	a := newHost(t, "fake")
	a.args = append(a.args, "--plugins", serveOn)
	a.install("fake", "fake")
	a.start()
	life := a.ready("fake", 1)
	socket := a.socketOf(life)
	was := a.served(socket)
	a.stopFor(20 * time.Second)
	if p, err := serves(socket); err != nil || p.Generation != was.Generation {
		t.Fatalf("without an agent it has %+v, %v; before %+v", p, err, was)
	}
	a.start()
	if next := a.ready("fake", 1); next.Kind != "kept" || next.PID != life.PID {
		t.Fatalf("the next agent has a %s, pid %d; want that of before, %d", next.Kind, next.PID, life.PID)
	}
	a.obeyed(socket, 2*time.Second)
}

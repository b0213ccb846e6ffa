package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/test/scale"
)

// printed is nil when the agent's log has a line with every one of the words.
func (a *agent) printed(words ...string) error {
	for line := range strings.Lines(a.proc.Output()) {
		ok := true
		for _, w := range words {
			ok = ok && strings.Contains(line, w)
		}
		if ok {
			return nil
		}
	}
	return fmt.Errorf("%s printed no line with %q", a.name, words)
}

// alive is nil when the agent holds exactly n members for alive.
func alive(n int) func(*agent) error {
	return func(a *agent) error {
		table, err := a.members()
		if err != nil {
			return err
		}
		found := 0
		for _, m := range table {
			if m.State == model.StateAlive {
				found++
			}
		}
		if found != n {
			return fmt.Errorf("%s sees %d alive, want %d: %+v", a.name, found, n, table)
		}
		return nil
	}
}

// TestIdentityNameConflict: two live agents with one name are both listed, and
// both log the clash and the remedy; the others are unharmed.
func TestIdentityNameConflict(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 4)
	twin := f.agents[3]
	twin.name = "n2"
	for _, a := range f.agents {
		a.start()
	}
	for _, a := range []*agent{f.agents[1], twin} {
		f.eventually(10*time.Second, "conflict reported", func() error {
			return a.printed("level=ERROR", "n2", "node.name")
		})
	}
	f.eventually(5*time.Second, "all four stay members", all(f.agents, alive(4)))
	never(t, f.agents, "", "suspected", "died", "cloned")
}

// TestIdentityAddressConflict: an agent that advertises another's address says
// so and falls silent, whoever of the two came first; the others are unharmed.
func TestIdentityAddressConflict(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 4)
	bad := f.agents[3]
	for _, a := range f.agents[:3] {
		a.start()
	}
	good := f.agents[:3]
	f.eventually(10*time.Second, "three joined", f.agreed(good...))
	bad.args = []string{"--node.advertise", f.agents[1].node.Addr().String()}
	bad.start()
	f.eventually(10*time.Second, "conflict reported", func() error {
		return bad.printed("level=ERROR", f.agents[1].node.Addr().String(), "node.advertise")
	})
	f.eventually(10*time.Second, "the three are unharmed", f.agreed(good...))
	for _, a := range good {
		never(t, good, a.name, "suspected", "died")
	}
}

// TestIdentityClonedDataDir: of two agents on copies of one data directory the
// one that ran before goes on, the other says what is wrong and falls silent;
// the others are unharmed.
func TestIdentityClonedDataDir(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 4)
	clone := f.agents[3]
	for _, a := range f.agents[:3] {
		a.start()
	}
	f.eventually(10*time.Second, "three joined", f.agreed(f.agents[:3]...))
	lasts(scale.Bound(6*time.Second, 10*time.Second)) // what runs for five periods counts as the original
	if err := os.CopyFS(clone.dir, os.DirFS(f.agents[2].dir)); err != nil {
		t.Fatal(err)
	}
	clone.start()
	f.eventually(20*time.Second, "the copy fell silent", func() error { return clone.printed("level=ERROR", "copy", "node.json") })
	if f.agents[2].printed("level=ERROR", "copy", "node.json") == nil {
		t.Error("the original fell silent")
	}
	f.eventually(10*time.Second, "the id is alive once, at the other", all(f.agents[:2], alive(3)))
	for _, name := range []string{"n1", "n2"} {
		never(t, f.agents[:2], name, "suspected", "died")
	}
}

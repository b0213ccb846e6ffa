package membership_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/membership"
	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/swim"
)

func TestNodesFindEachOtherThroughOneSeed(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		nodes := c.startAll(5)
		for _, n := range nodes {
			s := n.Snapshot()
			if len(s.Members) != 5 || s.Live() != 5 {
				t.Errorf("%s sees %d members, %d live, want 5", n.cfg.Name, len(s.Members), s.Live())
			}
			if !slices.IsSortedFunc(s.Members, func(a, b membership.Member) int { return strings.Compare(a.Name, b.Name) }) {
				t.Errorf("%s: members are not sorted by name", n.cfg.Name)
			}
			if s.Self.Name != n.cfg.Name || !s.Self.Self || s.Self.Addr != n.addr {
				t.Errorf("%s: self is %+v", n.cfg.Name, s.Self)
			}
			if got := n.metric(t, "members", "alive"); got != 5 {
				t.Errorf("%s: metric members{alive} is %v, want 5", n.cfg.Name, got)
			}
			if last := n.history(t); s.Seq != last[len(last)-1].Seq {
				t.Errorf("%s: snapshot says seq %d, the log ends at %d", n.cfg.Name, s.Seq, last[len(last)-1].Seq)
			}
		}
		c.pass(time.Minute)
		for _, n := range nodes {
			for _, e := range n.history(t) {
				if e.Kind != swim.EventJoined {
					t.Errorf("%s: %v of %s in a cluster without faults", n.cfg.Name, e.Kind, e.Member.Name)
				}
			}
		}
	})
}

func TestKilledNodeIsSeenDeadByAll(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		nodes := c.startAll(5)
		gone := nodes[4]
		id := gone.id()
		c.kill(gone)
		c.await(6*time.Second, "all see it dead", func() bool { return c.all(model.StateDead, gone) })
		for _, n := range c.nodes {
			if _, ok := n.saw(t, swim.EventSuspected, id); !ok {
				t.Errorf("%s: died without having been suspected", n.cfg.Name)
			}
			if !strings.Contains(n.log.String(), "msg=\"member changed\" kind=died member=n5 id="+id.String()) {
				t.Errorf("%s logs no line about the death", n.cfg.Name)
			}
		}
	})
}

func TestLeaveIsNeverSeenAsFailureAndRejoinEndsIt(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		nodes := c.startAll(5)
		goes := nodes[2]
		if err := goes.Leave(t.Context()); err != nil {
			t.Fatalf("leave: %v", err)
		}
		c.await(time.Second, "all see it left", func() bool { return c.all(model.StateLeft, goes) })
		c.pass(20 * time.Second)
		if err := goes.Rejoin(); err != nil {
			t.Fatalf("rejoin: %v", err)
		}
		c.await(5*time.Second, "all see it alive again", func() bool { return c.all(model.StateAlive, goes) })
		c.kill(goes)
		for _, n := range c.nodes {
			for _, kind := range []swim.EventKind{swim.EventSuspected, swim.EventDied} {
				if _, ok := n.saw(t, kind, nodes[2].id()); ok {
					t.Errorf("%s: a departure was seen as %v", n.cfg.Name, kind)
				}
			}
		}
	})
}

func TestLeaveIsBounded(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		nodes := c.startAll(3)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := nodes[0].Leave(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("leave under an ended context: %v, want context.Canceled", err)
		}
		alone := c.start(9, func(cfg *membership.Config) { cfg.Join = nil })
		start := time.Now()
		if err := alone.Leave(t.Context()); err != nil || time.Since(start) > time.Second {
			t.Errorf("a lone node leaves after %v with %v, want at once", time.Since(start), err)
		}
	})
}

func TestCallsAfterCloseAreRefused(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		n := c.startAll(1)[0]
		c.kill(n)
		if err := n.Close(); err != nil {
			t.Errorf("second close: %v", err)
		}
		if err := n.SetRecord(nil, []byte{1}); !errors.Is(err, membership.ErrClosed) {
			t.Errorf("SetRecord after Close: %v, want ErrClosed", err)
		}
		if err := n.Leave(t.Context()); !errors.Is(err, membership.ErrClosed) {
			t.Errorf("Leave after Close: %v, want ErrClosed", err)
		}
		if n.Snapshot().Self.ID == 0 {
			t.Error("the last snapshot is gone after Close")
		}
		for _, err := range n.Events(t.Context(), n.Snapshot().Seq, true) {
			if !errors.Is(err, membership.ErrClosed) {
				t.Errorf("following after Close: %v, want ErrClosed", err)
			}
		}
	})
}

func TestRestartWithEmptyJoinListFindsTheClusterByPeersFile(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		dir := t.TempDir()
		keep := func(cfg *membership.Config) { cfg.DataDir = dir }
		c.startAll(4)
		n := c.start(5, keep)
		c.await(3*time.Second, "5 nodes", func() bool { return c.all(model.StateAlive, c.nodes...) })
		id := n.id()
		c.pass(2 * time.Second)
		c.kill(n)
		c.kill(c.nodes[0]) // the seed is gone too

		c.pass(10 * time.Second)
		n = c.start(6, keep, func(cfg *membership.Config) { cfg.Join, cfg.Name = nil, "n5" })
		if n.id() != id {
			t.Errorf("restarted with id %v, want %v", n.id(), id)
		}
		if got := n.Snapshot().Self.Value.Epoch; got != 2 {
			t.Errorf("second start has epoch %d, want 2", got)
		}
		took := c.await(5*time.Second, "all see the restarted node alive at its new address", func() bool {
			for _, viewer := range c.nodes {
				m, ok := viewer.Snapshot().Find(id)
				if !ok || m.Value.State != model.StateAlive || m.Addr != n.addr || viewer.Snapshot().Live() != 4 {
					return false
				}
			}
			return true
		})
		t.Logf("visible everywhere after %v", took)
	})
}

func TestPeersFileForgetsWhoLeft(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		dir := t.TempDir()
		nodes := c.startAll(3)
		c.start(4, func(cfg *membership.Config) { cfg.DataDir = dir })
		c.await(3*time.Second, "4 nodes", func() bool { return c.all(model.StateAlive, c.nodes...) })
		if err := nodes[2].Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.kill(nodes[2])
		c.kill(nodes[1]) // fails: stays in the file
		c.await(10*time.Second, "dead", func() bool { return c.all(model.StateDead, nodes[1]) })
		c.pass(3 * time.Second)
		text, err := os.ReadFile(filepath.Join(dir, "peers.json"))
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]bool{"n1": true, "n2": true, "n3": false, "n4": false} {
			if got := bytes.Contains(text, []byte(`"`+name+`"`)); got != want {
				t.Errorf("peers file holds %s: %v, want %v\n%s", name, got, want, text)
			}
		}
	})
}

func TestUnwritablePeersFileIsOneWarning(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		dir := t.TempDir()
		// A directory in its place cannot be replaced by a file, not even by root.
		if err := os.MkdirAll(filepath.Join(dir, "peers.json", "x"), 0o700); err != nil {
			t.Fatal(err)
		}
		n := c.start(1, func(cfg *membership.Config) { cfg.DataDir = dir })
		c.start(2)
		c.start(3)
		c.pass(4 * time.Second)
		c.start(4)
		c.await(5*time.Second, "the agent goes on", func() bool { return c.all(model.StateAlive, c.nodes...) })
		c.pass(2 * time.Minute)
		if got := strings.Count(n.log.String(), "peers file cannot be written"); got != 1 {
			t.Errorf("%d warnings about the peers file, want 1:\n%s", got, n.log)
		}
		if err := os.RemoveAll(filepath.Join(dir, "peers.json")); err != nil {
			t.Fatal(err)
		}
		c.await(2*time.Minute, "the file is written again", func() bool {
			return strings.Contains(n.log.String(), "peers file is written again")
		})
	})
}

func TestDamagedPeersFileIsSetAside(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		dir := t.TempDir()
		name := filepath.Join(dir, "peers.json")
		if err := os.WriteFile(name, []byte(`{"peers":[{"id":`), 0o600); err != nil {
			t.Fatal(err)
		}
		n := c.start(1, func(cfg *membership.Config) { cfg.DataDir = dir })
		if _, err := os.Stat(name + ".damaged"); err != nil {
			t.Errorf("not set aside: %v", err)
		}
		if !strings.Contains(n.log.String(), "is damaged") {
			t.Errorf("no warning:\n%s", n.log)
		}
	})
}

func TestNodeRecordsReachAll(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		nodes := c.startAll(6)
		owner := nodes[3]
		definition := bytes.Repeat([]byte("service web on 10.0.0.4:80\n"), 4000) // several parts
		if err := owner.SetRecord(definition, []byte{1, 1, 0}); err != nil {
			t.Fatal(err)
		}
		if got := owner.Snapshot().Self; !bytes.Equal(got.Definition, definition) || !bytes.Equal(got.Vector, []byte{1, 1, 0}) {
			t.Error("the own record is not in the snapshot right after SetRecord")
		}
		has := func(vector []byte) func() bool {
			return func() bool {
				for _, n := range c.nodes {
					m, _ := n.Snapshot().Find(owner.id())
					if !bytes.Equal(m.Definition, definition) || !bytes.Equal(m.Vector, vector) {
						return false
					}
				}
				return true
			}
		}
		took := c.await(5*time.Second, "all have the definition", has([]byte{1, 1, 0}))
		t.Logf("definition of %d bytes everywhere after %v", len(definition), took)
		pulls := func() (n float64) {
			for _, node := range c.nodes {
				n += node.metric(t, "pulls_total", "ok")
			}
			return n
		}
		if pulls() != 5 {
			t.Errorf("%v pulls, want 5: one per node that lacked it", pulls())
		}
		for _, n := range nodes {
			if n == owner {
				continue
			}
			last := membership.Event{}
			for _, e := range n.history(t) {
				if e.Kind == swim.EventRecord {
					last = e
				}
			}
			if !bytes.Equal(last.Member.Definition, definition) || !strings.Contains(last.Detail, "pulled") {
				t.Errorf("%s: no event shows the definition", n.cfg.Name)
			}
		}

		// The vector alone changes: nothing is pulled again.
		if err := owner.SetRecord(definition, []byte{0, 1, 0}); err != nil {
			t.Fatal(err)
		}
		c.await(2*time.Second, "all have the new vector", has([]byte{0, 1, 0}))
		if pulls() != 5 {
			t.Errorf("%v pulls after a change of the vector, want still 5", pulls())
		}

		// A late joiner learns it by exchange, and pulls it.
		late := c.start(7)
		c.await(5*time.Second, "the late joiner has it", has([]byte{0, 1, 0}))
		_ = late

		// A new definition takes the place of the old one everywhere.
		definition = []byte("nothing any more")
		if err := owner.SetRecord(definition, nil); err != nil {
			t.Fatal(err)
		}
		c.await(5*time.Second, "all have the new definition", has(nil))
		for _, n := range c.nodes {
			if got := n.metric(t, "definition_bytes"); got != float64(len(definition)) {
				t.Errorf("%s holds %v bytes of definitions, want %d", n.cfg.Name, got, len(definition))
			}
		}
	})
}

func TestRecordsBeyondTheirCapsAreRefused(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		n := c.startAll(1)[0]
		if err := n.SetRecord(make([]byte, membership.MaxDefinitionBytes+1), nil); !errors.Is(err, membership.ErrRecord) {
			t.Errorf("definition above the cap: %v, want ErrRecord", err)
		}
		if err := n.SetRecord(nil, make([]byte, membership.MaxVectorBytes+1)); !errors.Is(err, membership.ErrRecord) {
			t.Errorf("vector above the cap: %v, want ErrRecord", err)
		}
		if err := n.SetRecord(make([]byte, membership.MaxDefinitionBytes), make([]byte, membership.MaxVectorBytes)); err != nil {
			t.Errorf("record at the caps: %v", err)
		}
	})
}

func TestTwoNodesWithOneNameAreReportedByBothSides(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		c.startAll(3)
		double := c.start(4, func(cfg *membership.Config) { cfg.Name = "n2" })
		c.await(10*time.Second, "both see the conflict", func() bool {
			return strings.Contains(c.nodes[1].log.String(), "level=ERROR msg=\"member changed\" kind=name-conflict") &&
				strings.Contains(double.log.String(), "level=ERROR msg=\"member changed\" kind=name-conflict")
		})
		if !strings.Contains(double.log.String(), "set node.name") {
			t.Error("the error names no remedy")
		}
		c.await(time.Second, "everybody stays alive", func() bool { return c.all(model.StateAlive, c.nodes...) })
	})
}

func TestClonedDataDirectoryFallsSilent(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		original, copied := t.TempDir(), t.TempDir()
		c.startAll(3)
		n := c.start(4, func(cfg *membership.Config) { cfg.DataDir = original })
		c.await(3*time.Second, "4 nodes", func() bool { return c.all(model.StateAlive, c.nodes...) })
		text, err := os.ReadFile(filepath.Join(original, "node.json"))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(copied, "node.json"), text, 0o600); err != nil {
			t.Fatal(err)
		}
		clone := c.start(5, func(cfg *membership.Config) { cfg.DataDir = copied })
		c.await(90*time.Second, "one of the two falls silent", func() bool {
			return n.Snapshot().Silent != "" || clone.Snapshot().Silent != ""
		})
		for _, one := range []*node{n, clone} {
			if why := one.Snapshot().Silent; why != "" {
				if !strings.Contains(why, "node.json") {
					t.Errorf("the reason names no remedy: %q", why)
				}
				if one.metric(t, "silent") != 1 || !strings.Contains(one.log.String(), "level=ERROR msg=\"member changed\" kind=cloned") {
					t.Errorf("%s does not report that it fell silent", one.cfg.Name)
				}
			}
		}
	})
}

func TestOldDataDirectoryComesBackAndNothingIsSaidBeforeItIsWritten(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		dir := t.TempDir()
		keep := func(cfg *membership.Config) { cfg.DataDir = dir }
		c.startAll(3)
		n := c.start(4, keep)
		first, err := os.ReadFile(filepath.Join(dir, "node.json"))
		if err != nil {
			t.Fatal(err)
		}
		id := n.id()
		joined := func() bool {
			for _, viewer := range c.nodes {
				if m, _ := viewer.Snapshot().Find(id); m.Value != n.Snapshot().Self.Value {
					return false
				}
			}
			return true
		}
		for range 3 {
			c.await(5*time.Second, "node 4 joins", joined)
			c.kill(n)
			n = c.start(4, keep)
		}
		c.await(5*time.Second, "node 4 joins at epoch 4", joined)
		c.kill(n)

		// The directory is restored from the first backup, and then the disk
		// fails: a directory in place of the temporary file stops even root.
		if err := os.WriteFile(filepath.Join(dir, "node.json"), first, 0o600); err != nil {
			t.Fatal(err)
		}
		n = c.start(4, keep)
		block := filepath.Join(dir, "node.json.tmp")
		if err := os.Mkdir(block, 0o700); err != nil {
			t.Fatal(err)
		}
		c.await(10*time.Second, "it hears of its own future and cannot write it", func() bool { return n.Snapshot().Silent != "" })
		c.pass(10 * time.Second)
		for _, viewer := range c.nodes[:3] {
			if m, _ := viewer.Snapshot().Find(id); m.Value.Epoch > 4 {
				t.Errorf("%s heard epoch %d of a node that could not write it", viewer.cfg.Name, m.Value.Epoch)
			}
		}
		if strings.Count(n.log.String(), "the boot counter cannot be written") != 1 {
			t.Errorf("want one error about the boot counter:\n%s", n.log)
		}
		if err := os.Remove(block); err != nil {
			t.Fatal(err)
		}
		c.await(10*time.Second, "it is back once the disk is", func() bool { return c.all(model.StateAlive, n) && n.Snapshot().Silent == "" })
		if m, _ := c.nodes[0].Snapshot().Find(id); m.Value.Epoch < 5 {
			t.Errorf("back at epoch %d, want above 4", m.Value.Epoch)
		}
	})
}

func TestPartitionHealsByItself(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		c.startAll(5)
		c.net.Partition([]netip.AddrPort{host(1), host(2)}, []netip.AddrPort{host(3), host(4), host(5)})
		c.await(15*time.Second, "both sides bury the other", func() bool {
			return c.nodes[0].Snapshot().Live() == 2 && c.nodes[4].Snapshot().Live() == 3
		})
		c.pass(time.Minute)
		c.net.Heal()
		c.await(10*time.Second, "all alive again", func() bool { return c.all(model.StateAlive, c.nodes...) })
		if c.net.Counts().Cut == 0 {
			t.Error("the partition cut nothing")
		}
	})
}

func TestHostNamesAreResolvedAgainWhileAlone(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		c.start(1)
		tries := 0
		n := c.start(2, func(cfg *membership.Config) {
			cfg.Join = []string{"seed.example", host(2).String()}
			cfg.Resolve = func(_ context.Context, name string) ([]netip.Addr, error) {
				if tries++; tries < 3 {
					return nil, fmt.Errorf("no such host %s", name)
				}
				return []netip.Addr{netip.AddrFrom16(host(1).Addr().As16())}, nil // IPv4-mapped
			}
		})
		c.await(time.Minute, "the name resolves and the node joins", func() bool { return c.all(model.StateAlive, c.nodes...) })
		if got := strings.Count(n.log.String(), "does not resolve"); got != 1 {
			t.Errorf("%d warnings for two failures, want 1:\n%s", got, n.log)
		}
		after := tries
		c.pass(5 * time.Minute)
		if tries != after {
			t.Errorf("resolved %d times more although not alone", tries-after)
		}
	})
}

func TestFollowingReaderSeesEverythingInOrder(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		n := c.start(1)
		ctx, cancel := context.WithCancel(t.Context())
		got := make(chan []membership.Event)
		go func() {
			var all []membership.Event
			for u, err := range n.Events(ctx, 0, true) {
				if err != nil {
					if !errors.Is(err, context.Canceled) {
						t.Errorf("ended by %v, want context.Canceled", err)
					}
					break
				}
				all = append(all, u.Event)
			}
			got <- all
		}()
		c.start(2)
		third := c.start(3)
		c.await(3*time.Second, "3 nodes", func() bool { return c.all(model.StateAlive, c.nodes...) })
		c.kill(third)
		c.await(10*time.Second, "dead", func() bool { return c.all(model.StateDead, third) })
		cancel()
		followed, logged := <-got, n.history(t)
		if len(followed) == 0 || len(followed) != len(logged) {
			t.Fatalf("followed %d events, the log holds %d", len(followed), len(logged))
		}
		for i := range followed {
			if followed[i].Seq != logged[i].Seq || followed[i].Kind != logged[i].Kind {
				t.Errorf("event %d: followed %v, logged %v", i, followed[i], logged[i])
			}
		}
	})
}

func TestOneWayCutKillsNobody(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		c.startAll(5)
		c.net.Cut(host(2), host(3))
		c.pass(time.Minute)
		c.net.Heal()
		if c.net.Counts().Cut == 0 {
			t.Error("the cut cut nothing")
		}
		for _, n := range c.nodes {
			for _, e := range n.history(t) {
				if e.Kind == swim.EventDied {
					t.Errorf("%s saw %s die, who is reached by others", n.cfg.Name, e.Member.Name)
				}
			}
		}
	})
}

func TestLossyNetworkStillConverges(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		c.net.SetLoss(0.1)
		for i := 1; i <= 5; i++ {
			c.start(i)
		}
		c.await(10*time.Second, "all see all", func() bool { return c.all(model.StateAlive, c.nodes...) })
		if c.net.Counts().Lost == 0 {
			t.Error("nothing was lost")
		}
	})
}

func TestSecondAgentAtOneAddressReplacesTheFirst(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		nodes := c.startAll(4)
		old := nodes[3].id()
		c.kill(nodes[3])
		n := c.start(4, func(cfg *membership.Config) { cfg.Name = "new" }) // in memory: a new id
		c.await(10*time.Second, "the new one is alive and the old one dead", func() bool {
			for _, viewer := range c.nodes {
				if m, _ := viewer.Snapshot().Find(old); viewer != n && m.Value.State != model.StateDead {
					return false
				}
			}
			return c.all(model.StateAlive, c.nodes...)
		})
	})
}

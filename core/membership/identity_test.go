package membership_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/membership"
	"github.com/fairlead/fairlead/core/model"
)

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
				if err := one.Leave(t.Context()); !errors.Is(err, membership.ErrUnsaid) || !strings.Contains(err.Error(), "node.json") {
					t.Errorf("Leave of a silent node: %v", err)
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

func TestTwoNodesAtOneAddressAreReportedAndOthersUnharmed(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		nodes := c.startAll(3)
		thief := c.start(4, func(cfg *membership.Config) { cfg.Advertise = host(2) })
		c.await(30*time.Second, "the conflict is reported with a remedy", func() bool {
			for _, n := range append(nodes, thief) {
				if text := n.log.String(); strings.Contains(text, "level=ERROR") && strings.Contains(text, "node.advertise") {
					return true
				}
			}
			return false
		})
		c.pass(30 * time.Second)
		for _, viewer := range nodes {
			for _, n := range nodes {
				if m, _ := viewer.Snapshot().Find(n.id()); m.Value.State != model.StateAlive {
					t.Errorf("%s sees %s as %v", viewer.cfg.Name, n.cfg.Name, m.Value)
				}
			}
		}
	})
}

package membership_test

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/membership"
	"github.com/fairlead/fairlead/core/model"
)

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

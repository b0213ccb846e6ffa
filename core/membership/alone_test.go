package membership_test

import (
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/membership"
)

const (
	alone   = "nobody answers yet"
	foreign = "packets are refused"
)

func TestOtherClusterNameIsReportedOnBothSides(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		seed := c.startAll(2)[0]
		stray := c.start(3, func(cfg *membership.Config) { cfg.Cluster = "tset" })
		c.pass(9 * time.Second)
		if text := stray.log.String(); strings.Contains(text, alone) {
			t.Errorf("warned before the contacts had time to answer:\n%s", text)
		}
		c.pass(90 * time.Second)
		for _, want := range []string{alone, "cluster.name", "join=10.0.0.1:7400", "cluster=tset"} {
			if !strings.Contains(stray.log.String(), want) {
				t.Errorf("the stray node does not say %q:\n%s", want, stray.log)
			}
		}
		for _, want := range []string{foreign, "cluster.name", "from=10.0.0.3:", "cluster=test"} {
			if !strings.Contains(seed.log.String(), want) {
				t.Errorf("the seed does not say %q:\n%s", want, seed.log)
			}
		}
		c.pass(5 * time.Minute)
		if n := strings.Count(stray.log.String(), alone); n != 2 {
			t.Errorf("%d warnings of the stray node in 6.5 minutes, want 2", n)
		}
		if n := strings.Count(seed.log.String(), foreign); n != 2 {
			t.Errorf("%d warnings of the seed in 6.5 minutes, want 2", n)
		}
		if n := strings.Count(seed.log.String(), alone); n != 0 {
			t.Error("the seed has company and calls itself alone")
		}
	})
}

func TestNodeThatIsToBeAloneDoesNotComplain(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		seed := c.start(1) // its own contact
		none := c.start(2, func(cfg *membership.Config) { cfg.Join = nil })
		late := c.start(3, func(cfg *membership.Config) { cfg.Join = []string{host(4).String()} })
		c.pass(20 * time.Second)
		for _, n := range []*node{seed, none} {
			if strings.Contains(n.log.String(), alone) {
				t.Errorf("%s complains:\n%s", n.cfg.Name, n.log)
			}
		}
		if n := strings.Count(late.log.String(), alone); n != 1 {
			t.Fatalf("%d warnings while the contact does not run, want 1", n)
		}
		c.start(4, func(cfg *membership.Config) { cfg.Join = nil })
		c.await(30*time.Second, "found", func() bool { return late.Snapshot().Exchanged })
		c.pass(10 * time.Minute)
		if n := strings.Count(late.log.String(), alone); n != 1 {
			t.Errorf("%d warnings, the last with company", n)
		}
	})
}

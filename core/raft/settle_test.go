package raft

import (
	"strconv"
	"testing"
	"time"

	"github.com/fairlead/fairlead/test/await"
)

// steady is a group whose leader stays the leader, also on a busy machine: its heartbeat
// is longer than what such a one takes to apply a write. The first election does not
// wait for that.
func steady(t testing.TB, n int, sizes Sizes) *group {
	t.Helper()
	g := newGroup(t, 0, sizes)
	g.tick = 250 * time.Millisecond
	for id := range uint64(n) {
		g.dirs[id+1] = t.TempDir()
	}
	for id := range g.dirs {
		g.open(id)
	}
	g.elect()
	return g
}

// elect has a server stand for election before it missed a leader for long.
func (g *group) elect() {
	g.t.Helper()
	first := g.hosts[1]
	if err := first.ask(func() { _ = first.replica.Campaign() }); err != nil {
		g.t.Fatal(err)
	}
}

// unhurried is a steady group of three.
func unhurried(t *testing.T) (leader *Host, others []*Host, g *group) {
	t.Helper()
	g = steady(t, 3, little())
	leader = g.leader()
	for _, h := range g.up() {
		if h != leader {
			others = append(others, h)
		}
	}
	return leader, others, g
}

// Who hears that a write was done can read it at the server that was asked, also if
// another one leads and no leader is asked for the read.
func TestWritesAreThereWhenTheyAreAnswered(t *testing.T) {
	_, others, g := unhurried(t)
	for round := range 30 {
		for _, h := range others {
			g.put(h, "a", strconv.Itoa(round))
			if got := valueIn(t, h.View(), "a"); got != strconv.Itoa(round) {
				t.Fatalf("server %d answered write %d and has %q", h.ID(), round, got)
			}
		}
	}
}

// A server that does not hear what was committed answers all the same.
func TestWritesAreAnsweredByWhoIsBehind(t *testing.T) {
	leader, others, g := unhurried(t)
	h := others[0]
	g.put(h, "a", "1")
	cut := func(yes bool) {
		g.net.mu.Lock()
		defer g.net.mu.Unlock()
		g.net.cut[[2]uint64{leader.ID(), h.ID()}] = yes
	}
	cut(true)
	g.put(h, "a", "2")
	if got := valueIn(t, h.View(), "a"); got != "1" {
		t.Errorf("a server that hears nothing has %q", got)
	}
	cut(false)
	await.For(t, "the server to catch up", func() bool { return valueIn(t, h.View(), "a") == "2" })
}

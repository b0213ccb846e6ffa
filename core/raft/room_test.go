package raft

import (
	"errors"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/store"
	"github.com/fairlead/fairlead/test/await"
)

// Two of three disks become full at the same time, one of them the leader's. It does
// not hand the leadership to the other one, and that back, for ever: each leader
// hears at once of those that are full, and writes end.
func TestDisksFullAtOnce(t *testing.T) {
	g := steady(t, 3, little())
	disks := bad(g)
	if first := g.leader(); first.ID() == 3 {
		if err := first.Transfer(soon(t), 1); err != nil {
			t.Fatal(err)
		}
	}
	g.put(g.leader(), "a", "1")
	for id := uint64(1); id <= 2; id++ {
		disks[id].free.Store(0)
	}
	refused := func() bool {
		for _, h := range g.up() {
			if r, err := h.Propose(soon(t), putOf("b", "1")); err != nil || !errors.Is(r.Err, store.ErrNoSpace) {
				return false
			}
		}
		return true
	}
	before := g.leader().State().Term
	await.Within(t, time.Minute, "writes to be refused", refused)
	if now := g.leader().State().Term; now > before+4 { // two servers, two terms each
		t.Errorf("the term is %d, it was %d: the leadership went to and fro", now, before)
	}
}

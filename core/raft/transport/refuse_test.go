package transport

import (
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/identity"
	"github.com/fairlead/fairlead/core/raft"
	"github.com/fairlead/fairlead/test/await"
)

// Who does not belong here is refused, and both sides say why.
func TestRequirement70Refusals(t *testing.T) {
	one, two := secretOf(t, 0), secretOf(t, 1)
	tomorrow := func() time.Time { return time.Now().Add(25 * time.Hour) }
	for name, c := range map[string]struct {
		a, b         wireSpec
		spoil        func(*network)
		aSays, bSays string
	}{
		"another cluster id": {
			b:     wireSpec{cluster: "ef01"},
			aSays: `refuses server 1 of node n1: it is of the cluster \"abcd\" and this is \"ef01\"`, bSays: `it is of the cluster \"abcd\" and this is \"ef01\"`,
		},
		"no secret in common": {
			a: wireSpec{secrets: []identity.Secret{one}}, b: wireSpec{secrets: []identity.Secret{two}},
			aSays: "is signed by none of this node's secrets", bSays: "does not believe this node's certificate",
		},
		"a secret that one side believes": {
			a: wireSpec{secrets: []identity.Secret{one, two}}, b: wireSpec{secrets: []identity.Secret{two}},
			aSays: "its log says why", bSays: "is signed by none of this node's secrets",
		},
		"an expired certificate": {
			// Only its clock is wrong: the certificate that it makes is of tomorrow's.
			b:     wireSpec{now: tomorrow},
			aSays: "compare the clocks", bSays: "does not believe this node's certificate",
		},
		"another node at the address": {
			b:     wireSpec{node: "n9"},
			aSays: "it is n9, and n2 was meant", bSays: "does not believe this node's certificate",
		},
		"a server id of another node": {
			spoil: func(n *network) { at := n.at[1]; n.set(1, place{at.address, "n7"}) },
			aSays: "that server is node n7", bSays: "that server is node n7",
		},
		"a removed server": {
			spoil: func(n *network) { n.remove(1) },
			aSays: "it was removed, or was never added", bSays: "it was removed, or was never added",
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNetwork(t)
			c.a.id, c.b.id = 1, 2
			a, b := n.wire(c.a), n.wire(c.b)
			if c.spoil != nil {
				c.spoil(n)
			}
			await.Within(t, time.Minute, "both sides to say why", func() bool {
				a.Send(heartbeat(1, 2, 1))
				return strings.Contains(a.log.String(), c.aSays) && strings.Contains(b.log.String(), c.bSays)
			})
			next(t, "word of the loss", a.unreachable)
			_, err := a.Ask(soon(t), 2, raft.Question{Room: new(true)})
			if err == nil || !strings.Contains(err.Error(), strings.ReplaceAll(c.aSays, `\"`, `"`)) {
				t.Errorf("Ask says %v", err)
			}
			m, meta := snapshotOf(1, 2)
			f := file{strings.NewReader("x"), make(chan struct{})}
			a.SendSnapshot(m, meta, f)
			if err := next(t, "the end of the snapshot", a.sent); err == nil || !strings.Contains(err.Error(), strings.ReplaceAll(c.aSays, `\"`, `"`)) {
				t.Errorf("a snapshot: %v", err)
			}
			if len(b.received) != 0 {
				t.Error("a message came through")
			}
		})
	}
}

// A stream is refused for another server than this, and ends when it carries
// messages of another one than it is from, or when its sender is removed.
func TestRequirement70StreamsAreChecked(t *testing.T) {
	n := newNetwork(t)
	a, b := n.wire(wireSpec{id: 1}), n.wire(wireSpec{id: 2})
	n.set(3, place{b.proxy.address(), "n2"}) // server 3 was on that node before
	await.Within(t, time.Minute, "word of the wrong server", func() bool {
		a.Send(heartbeat(1, 3, 1))
		return strings.Contains(a.log.String(), "it means server 3, whose address was given to another")
	})
	a.Send(heartbeat(1, 2, 1))
	next(t, "a message", b.received)
	await.Within(t, time.Minute, "word of the impostor", func() bool {
		a.Send(heartbeat(7, 2, 1))
		return strings.Contains(a.log.String(), errImpostorText)
	})
	await.Within(t, time.Minute, "messages again", func() bool {
		a.Send(heartbeat(1, 2, 2))
		return len(b.received) > 0
	})
	for len(b.received) > 0 {
		if m := <-b.received; m.GetFrom() != 1 {
			t.Fatalf("a message of server %d came through", m.GetFrom())
		}
	}
	n.remove(1)
	await.Within(t, time.Minute, "word of the removal", func() bool {
		a.Send(heartbeat(1, 2, 3))
		return strings.Contains(a.log.String(), "it was removed, or was never added")
	})
	m, meta := snapshotOf(7, 2)
	n.set(1, place{a.proxy.address(), "n1"})
	f := file{strings.NewReader("x"), make(chan struct{})}
	a.SendSnapshot(m, meta, f)
	if err := next(t, "the end of the snapshot", a.sent); err == nil || !strings.Contains(err.Error(), errImpostorText) {
		t.Errorf("%v", err)
	}
}

const errImpostorText = "a message of another server than the one that the stream is from"

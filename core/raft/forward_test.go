package raft

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/fairlead/fairlead/core/store"
	"github.com/fairlead/fairlead/test/await"
)

// urged waits until somebody is told something, and returns what.
func urged(t *testing.T, one *waiter) word {
	t.Helper()
	var got word
	await.For(t, "a word about the command", func() bool {
		select {
		case got = <-one.words:
			return true
		default:
			return false
		}
	})
	return got
}

// heard is urged for so long as what is lost may take.
func heard(one *waiter) (word, bool) {
	limit := time.NewTimer(10 * time.Second)
	defer limit.Stop()
	select {
	case got := <-one.words:
		return got, true
	case <-limit.C:
		return word{}, false
	}
}

// ownPut is a put of a client of that server, and who waits for it.
func ownPut(h *Host) (store.Command, *waiter) {
	c := putOf("a", "1")
	c.Client = &store.Client{ID: store.ClientID{1}, Sequence: 7}
	one := h.waiters.wait(callOf(c.Client))
	h.waiters.sends(one, 0, 1<<30)
	return c, one
}

// What is written at a server that does not lead is no question to the one that does.
func TestCommandsAreForwarded(t *testing.T) {
	leader, others, g := unhurried(t)
	before := g.net.asked.Load()
	for round := range 20 {
		for _, h := range others {
			g.put(h, fmt.Sprint("key-", round), "1")
		}
	}
	if n := g.net.asked.Load() - before; n > 0 {
		t.Errorf("%d questions", n)
	}
	if n := leader.forwarded.Load(); n != 0 {
		t.Errorf("%d bytes are said to wait, and nothing does", n)
	}
}

// Commands that come to a server which does not lead, or has too many, are given back.
func TestForwardedCommandsAreGivenBack(t *testing.T) {
	leader, others, _ := unhurried(t)
	from, to := others[0], others[1]
	c, one := ownPut(from)
	defer from.waiters.forget(one)
	give := func(to *Host) (givenBack bool) {
		t.Helper()
		if err := to.Receive(from.forwarding(to.ID(), store.EncodeCommands([]store.Command{c}), false)); err != nil {
			t.Fatal(err)
		}
		got, ok := heard(one)
		from.waiters.anew(one)
		return ok && got.urge == untaken
	}
	if !give(to) {
		t.Fatal("invariant given-back: nothing came back of who does not lead")
	}
	leader.forwarded.Add(maxForwarded)
	if !give(leader) {
		t.Fatal("invariant bound: a command was taken beyond it")
	}
	leader.forwarded.Add(-maxForwarded)
	leader.room.mu.Lock()
	leader.room.others[from.ID()], leader.room.others[to.ID()] = time.Now(), time.Now()
	leader.room.mu.Unlock()
	if err := leader.Receive(from.forwarding(leader.ID(), store.EncodeCommands([]store.Command{c}), false)); err != nil {
		t.Fatal(err)
	}
	if got := urged(t, one); got.urge != refused || !errors.Is(got.result.Err, store.ErrNoSpace) {
		t.Errorf("%+v", got)
	}
}

// A command that is lost on its way is sent again.
func TestLostCommandsAreSentAgain(t *testing.T) {
	leader, others, g := unhurried(t)
	h := others[0]
	g.put(h, "a", "1")
	cut := func(yes bool) {
		g.net.mu.Lock()
		defer g.net.mu.Unlock()
		g.net.cut[[2]uint64{h.ID(), leader.ID()}] = yes
	}
	cut(true)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := h.Propose(ctx, putOf("a", "2")); !errors.Is(err, ErrUnknown) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a command that may be on its way: %v", err)
	}
	_, one := ownPut(h)
	defer h.waiters.forget(one)
	h.waiters.sends(one, leader.ID(), 1<<30)
	h.forward(leader.ID(), putOf("a", "3"))
	if got := urged(t, one); got.urge != lost {
		t.Errorf("%+v", got)
	}
	cut(false)
	g.put(h, "a", "4")
}

func TestForwardedNonsenseIsRefused(t *testing.T) {
	leader, others, _ := unhurried(t)
	from := others[0]
	for name, c := range map[string]struct {
		data   []byte
		reject bool
	}{
		"no commands":            {[]byte{1, 2, 3}, false},
		"one without a client":   {store.EncodeCommands([]store.Command{putOf("a", "1")}), false},
		"a refusal of half one":  {[]byte{1}, true},
		"a refusal of no number": {make([]byte, 16), true},
		"one that is cut off":    {append(make([]byte, 16), 1, 9, 0), true},
		"one of no result":       {append(make([]byte, 16), 1, 1, 255), true},
	} {
		if err := leader.Receive(from.forwarding(leader.ID(), c.data, c.reject)); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
	if err := leader.Receive(&pb.Message{Type: pb.MsgProp.Enum(), From: new(from.ID()), To: new(leader.ID())}); err == nil {
		t.Error("a message without an entry was taken")
	}
}

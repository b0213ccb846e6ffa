package raft

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/fairlead/fairlead/core/store"
	"github.com/fairlead/fairlead/test/await"
)

// held has the loop of a server wait until it is let go.
func held(t *testing.T, h *Host) (letGo func()) {
	t.Helper()
	wait, waits := make(chan struct{}), make(chan struct{})
	go func() { _ = h.ask(func() { close(waits); <-wait }) }()
	<-waits
	letGo = sync.OnceFunc(func() { close(wait) })
	t.Cleanup(letGo)
	return letGo
}

// noRoom has a leader hear that the disks of the others are full, or are no longer.
func noRoom(leader *Host, others []*Host, full bool) {
	for _, o := range others {
		leader.room.heard(o.ID(), !full)
	}
}

type proposed struct {
	result store.Result
	err    error
}

func propose(ctx context.Context, h *Host, c store.Command) <-chan proposed {
	out := make(chan proposed, 1)
	go func() {
		r, err := h.Propose(ctx, c)
		out <- proposed{r, err}
	}()
	return out
}

// A command that was sent, and is refused when it is sent again, may be carried out
// still: nobody is told that it was not.
func TestRefusedWhenItWasSentBefore(t *testing.T) {
	leader, others, g := unhurried(t)
	for name, h := range map[string]*Host{"the leader's": leader, "another's": others[0]} {
		g.put(h, name, "before")
		letGo := held(t, leader)
		answer := propose(soon(t), h, putOf(name, "after"))
		await.For(t, "a command before the loop", func() bool { return len(leader.proposals) == 1 })
		noRoom(leader, others, true)
		h.waiters.moved()
		if got := <-answer; !errors.Is(got.err, ErrUnknown) || errors.Is(got.err, store.ErrNoSpace) {
			t.Errorf("invariant honest: %s command: %v, %v", name, got.result.Err, got.err)
		}
		letGo()
		await.For(t, "a command that was carried out", func() bool { return valueIn(t, h.View(), name) == "after" })
		// The next one was not sent before.
		noRoom(leader, others, true) // what was heard holds for a while
		if got := <-propose(soon(t), h, putOf(name, "refused")); got.err != nil || !errors.Is(got.result.Err, store.ErrNoSpace) {
			t.Errorf("%s next command: %v, %v", name, got.result.Err, got.err)
		}
		noRoom(leader, others, false)
	}
}

// What the log has of a command that is refused is its result, if that comes soon.
func TestRefusedWhenItIsCarriedOut(t *testing.T) {
	leader, others, g := unhurried(t)
	g.put(leader, "a", "1")
	letGo := held(t, leader)
	answer := propose(soon(t), leader, putOf("a", "2"))
	await.For(t, "a command before the loop", func() bool { return len(leader.proposals) == 1 })
	noRoom(leader, others, true)
	leader.waiters.moved()
	letGo()
	switch got := <-answer; {
	case errors.Is(got.err, ErrUnknown): // on a busy machine
	case got.err != nil || got.result.Err != nil:
		t.Errorf("%v, %v", got.result.Err, got.err)
	}
	noRoom(leader, others, false)
}

// What waits for the loop stays as it is when it is sent again.
func TestWhatWaitsIsNotChanged(t *testing.T) {
	g := newGroup(t, 1, little())
	h := g.leader()
	g.put(h, "a", "1")
	letGo := held(t, h)
	answer := propose(soon(t), h, putOf("a", "2"))
	first := <-h.proposals
	done := first.commands[0].Client.Done
	h.waiters.moved()
	second := <-h.proposals
	second.commands[0].Client.Done = done + 1
	if first.commands[0].Client.Done != done {
		t.Error("invariant own-copy: the command that was sent first is changed")
	}
	second.commands[0].Client.Done = done
	h.proposals <- first
	h.proposals <- second
	letGo()
	if got := <-answer; got.err != nil || got.result.Err != nil || got.result.Repeated {
		t.Errorf("%+v", got)
	}
}

// While the result of one command does not come, others get theirs, until as many are
// kept for this server as can be; then they wait, and are not refused.
func TestManyAfterOneWithoutAResult(t *testing.T) {
	g := newGroup(t, 1, little())
	h := g.leader()
	g.put(h, "a", "1")
	_, end, err := h.session.begin(soon(t), h)
	if err != nil {
		t.Fatal(err)
	}
	const more = store.MaxOutstanding + 50
	results := make(chan proposed, more)
	for range more {
		go func() { results <- <-propose(soon(t), h, putOf("a", "2")) }()
	}
	await.Within(t, time.Minute, "all numbers to be given out", func() bool {
		h.session.mu.Lock()
		defer h.session.mu.Unlock()
		return len(results) == more || h.session.last-h.session.low >= store.MaxOutstanding && len(h.session.open) == 1
	})
	if len(results) == more {
		t.Error("invariant window: none waited")
	}
	end()
	for range more {
		if got := <-results; got.err != nil || got.result.Err != nil {
			t.Fatalf("invariant window: %v, %v", got.result.Err, got.err)
		}
	}
}

// What is about no lease waits for nobody who looks at leases.
func TestLeasesHoldNothingElseUp(t *testing.T) {
	g := newGroup(t, 1, little())
	h := g.leader()
	h.lessor.mu.Lock()
	defer h.lessor.mu.Unlock()
	g.put(h, "a", "1")
}

// A vote is on the disk before anybody hears of it, though it comes with no entry: of a
// server whose disk fails nobody hears of one.
func TestVotesAreWrittenFirst(t *testing.T) {
	g := steady(t, 3, little()) // no vote is on its way when the disk breaks
	disks := bad(g)
	leader := g.leader()
	g.put(leader, "a", "1")
	h := g.hosts[leader.ID()%3+1]
	await.For(t, "the last write before the vote", func() bool { return valueIn(t, h.View(), "a") == "1" })
	disks[h.ID()].broken.Store(true)
	var told atomic.Int64
	g.net.mu.Lock()
	g.net.sees = func(m *pb.Message) {
		if votes := m.GetType() == pb.MsgVoteResp && !m.GetReject(); m.GetFrom() == h.ID() && (votes || m.GetType() == pb.MsgApp) {
			told.Add(1)
		}
	}
	g.net.mu.Unlock()
	g.net.isolate(leader.ID(), true)
	<-h.Done()
	if told.Load() > 0 {
		t.Error("invariant told-is-durable: a server votes, or leads by its own vote, without a disk")
	}
	delete(g.hosts, h.ID())
}

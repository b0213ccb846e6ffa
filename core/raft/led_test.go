package raft

import (
	"context"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/fairlead/fairlead/core/store"
	"github.com/fairlead/fairlead/test/await"
)

// A read whose question got lost is asked for again as soon as another server leads,
// and not when it has waited for long: here no time passes at all.
func TestReadsAreAskedForAgainOfANewLeader(t *testing.T) {
	g := newGroup(t, 0, little())
	g.tick = time.Hour
	for id := range uint64(3) {
		g.dirs[id+1] = t.TempDir()
	}
	for id := range g.dirs {
		g.open(id)
	}
	g.elect()
	old := g.leader()
	h, next := g.hosts[old.ID()%3+1], g.hosts[(old.ID()+1)%3+1]
	asked := map[uint64]chan struct{}{old.ID(): make(chan struct{}, 1), next.ID(): make(chan struct{}, 1)}
	g.net.mu.Lock()
	g.net.cut[[2]uint64{h.ID(), old.ID()}] = true
	g.net.sees = func(m *pb.Message) {
		if m.GetType() == pb.MsgReadIndex && m.GetFrom() == h.ID() {
			select {
			case asked[m.GetTo()] <- struct{}{}:
			default:
			}
		}
	}
	g.net.mu.Unlock()
	ctx, cancel := context.WithCancel(soon(t))
	var reading sync.WaitGroup
	defer reading.Wait()
	defer cancel()
	// It may wait for a heartbeat, which never comes, to hear that all is committed.
	reading.Go(func() { _, _ = h.Read(ctx) })
	<-asked[old.ID()]
	if err := old.Transfer(soon(t), next.ID()); err != nil {
		t.Fatal(err)
	}
	select {
	case <-asked[next.ID()]:
	case <-soon(t).Done():
		t.Error("the next leader was not asked")
	}
}

// Who waits for the leader's word about a lease is answered by the next leader, and does
// not wait for as long as the one before says nothing.
func TestLeasesAreAskedForAgainOfANewLeader(t *testing.T) {
	old, others, g := unhurried(t)
	h, other := others[0], others[1]
	lease := store.Lease{Space: store.User, ID: 1}
	if r, err := h.Propose(soon(t), store.Command{Space: lease.Space, Grant: &store.Grant{ID: lease.ID, TTLSeconds: 600}}); err != nil || r.Err != nil {
		t.Fatal(err, r.Err)
	}
	// The leader hears the question, and nobody hears the leader.
	g.net.mu.Lock()
	for _, way := range [][2]uint64{{old.ID(), h.ID()}, {old.ID(), other.ID()}, {other.ID(), old.ID()}} {
		g.net.cut[way] = true
	}
	g.net.mu.Unlock()
	if _, there, err := h.Renew(soon(t), lease); err != nil || !there {
		t.Errorf("%v, %v", there, err)
	}
	await.For(t, "another leader", func() bool { return h.State().Leader != old.ID() })
}

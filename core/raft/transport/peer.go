package transport

import (
	"context"
	"sync"
	"sync/atomic"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/fairlead/fairlead/core/raft"
)

// peer is all that leads to one server.
type peer struct {
	t      *Transport
	id     uint64
	ctx    context.Context
	cancel context.CancelFunc

	control, entries *lane
	asker            *asker
	snapshots        sync.Mutex    // held while one is on its way
	unreachable      chan struct{} // of one: messages were lost
	brokeAt          atomic.Int64  // when the other side ended a stream last; 0: it is told what that means
}

func newPeer(t *Transport, id uint64) *peer {
	p := &peer{t: t, id: id, unreachable: make(chan struct{}, 1)}
	p.ctx, p.cancel = context.WithCancel(t.ctx)
	p.control, p.entries = newLane(p, control), newLane(p, entries)
	p.asker = newAsker(p)
	return p
}

func (p *peer) goroutines() []func() {
	return []func(){p.control.run, p.entries.run, p.asker.run, p.notify}
}

// channel is one of the ways to a server.
type channel string

const (
	// control has what is small and urgent: votes, heartbeats and all answers.
	control channel = "control"
	// entries has appends, and commands for the leader.
	entries channel = "entries"
	// snapshots has snapshots.
	snapshots channel = "snapshots"
)

func channelOf(m *pb.Message) channel {
	if m.GetType() == pb.MsgApp || m.GetType() == pb.MsgProp {
		return entries
	}
	return control
}

// send puts a message into its queue, or loses it.
func (p *peer) send(m *pb.Message) {
	l := p.control
	if channelOf(m) == entries {
		l = p.entries
	}
	size := proto.Size(m)
	switch {
	case size > messageBytes:
		l.lost(1, "too-large")
		p.t.cfg.Log.Error("a message for another server is too large", "to", p.id, "type", m.GetType(), "bytes", size, "max_bytes", messageBytes)
	case !l.queue.add(outgoing{m, size}, size):
		l.lost(1, "queue-full")
	}
}

// notify tells the handler of losses, so that nobody waits for it.
func (p *peer) notify() {
	for {
		select {
		case <-p.unreachable:
			p.t.tell(func(h raft.Handler) { h.Unreachable(p.id) })
		case <-p.ctx.Done():
			return
		}
	}
}

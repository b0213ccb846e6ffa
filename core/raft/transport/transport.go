package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/grpc"

	"github.com/fairlead/fairlead/core/raft"
	"github.com/fairlead/fairlead/core/raft/snap"
	"github.com/fairlead/fairlead/core/raft/transport/transportpb"
)

// Transport connects one server of a group to the others.
type Transport struct {
	cfg        Config
	metrics    *metrics
	complaints *complaints
	snapshots  *ledger         // connections that have a snapshot on them
	ctx        context.Context // ends with Stop
	cancel     context.CancelFunc
	running    sync.WaitGroup

	telling sync.RWMutex // held while the handler is told something
	handler raft.Handler // nil before Start and after Stop

	mu    sync.Mutex
	ended bool
	peers map[uint64]*peer
}

var _ raft.Transport = (*Transport)(nil)

var errStopped = errors.New("transport: this server is stopped")

// New returns a transport that is reached by a port, or by what else the services
// of a Port are registered at. It takes and sends nothing before Start.
func New(cfg Config, port grpc.ServiceRegistrar) (*Transport, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	t := &Transport{cfg: cfg, complaints: newComplaints(), snapshots: newLedger(), peers: map[uint64]*peer{}}
	var err error
	if t.metrics, err = newMetrics(cfg.Metrics, t); err != nil {
		return nil, err
	}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	transportpb.RegisterTransportServer(port, service{t: t})
	return t, nil
}

// Start implements raft.Transport.
func (t *Transport) Start(h raft.Handler) {
	t.telling.Lock()
	t.handler = h
	t.telling.Unlock()
	t.spawn(t.sweep)
}

// Send implements raft.Transport.
func (t *Transport) Send(m *pb.Message) {
	if p := t.peer(m.GetTo()); p != nil {
		p.send(m)
		return
	}
	t.metrics.lost.WithLabelValues(string(channelOf(m)), "no-server").Inc()
}

// SendSnapshot implements raft.Transport.
func (t *Transport) SendSnapshot(m *pb.Message, meta snap.Meta, file io.ReadCloser) {
	to := m.GetTo()
	p := t.peer(to)
	ok := t.spawn(func() {
		err := fmt.Errorf("%w: %d", ErrNoServer, to)
		if p != nil {
			err = p.sendSnapshot(m, meta, file)
		}
		err = errors.Join(err, file.Close())
		if err != nil {
			// Raft sends the next one with the next heartbeat that is answered. Where this
			// one failed at once, as while the other side still waits for an older one,
			// that would be dozens in a few seconds.
			select {
			case <-time.After(snapshotPause):
			case <-t.ctx.Done():
			}
		}
		t.tell(func(h raft.Handler) { h.SnapshotSent(to, err) })
	})
	if !ok {
		_ = file.Close() // nothing was read of it
	}
}

// Ask implements raft.Transport. Questions to one server that wait go together.
func (t *Transport) Ask(ctx context.Context, to uint64, q raft.Question) (raft.Answer, error) {
	p := t.peer(to)
	if p == nil {
		return raft.Answer{}, fmt.Errorf("%w: %d", ErrNoServer, to)
	}
	return p.ask(ctx, q)
}

// Recheck replaces the connections to other servers by ones of the secrets that this
// node has now. It is to be called after Keeper.SetSecrets. No call fails by it: old
// connections are closed when they are not in use any more, after 5 s at the latest.
// Snapshots go on, but to servers that are believed no longer.
func (t *Transport) Recheck() {
	t.mu.Lock()
	var links []*link
	for _, p := range t.peers {
		links = append(links, p.control.link, p.entries.link, p.asker.link)
	}
	t.mu.Unlock()
	for _, l := range links {
		l.renew()
	}
	t.snapshots.recheck(t.cfg.Keeper)
}

// Stop implements raft.Transport.
func (t *Transport) Stop() {
	t.mu.Lock()
	ended := t.ended
	t.ended = true
	t.mu.Unlock()
	t.cancel()
	// Whoever tells the handler something is done with it once this is locked.
	t.telling.Lock()
	t.handler = nil
	t.telling.Unlock()
	t.running.Wait()
	if !ended {
		t.metrics.unregister()
	}
}

// spawn runs f until Stop; false if that was called.
func (t *Transport) spawn(f func()) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return false
	}
	t.running.Go(f)
	return true
}

// tell tells the handler something; false if there is none. It is never called by
// the handler's own goroutine, which may have to take what it is told.
func (t *Transport) tell(f func(raft.Handler)) bool {
	t.telling.RLock()
	defer t.telling.RUnlock()
	if t.handler == nil {
		return false
	}
	f(t.handler)
	return true
}

// peer returns what leads to a server; nil if there is no such server.
func (t *Transport) peer(id uint64) *peer {
	_, _, member := t.cfg.Resolve(id)
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.peers[id]
	switch {
	case t.ended || id == t.cfg.ID || !member:
		return nil
	case p != nil:
		return p
	}
	p = newPeer(t, id)
	t.peers[id] = p
	for _, f := range p.goroutines() {
		t.running.Go(f)
	}
	return p
}

// sweepEvery is how long a server that is a member no longer is remembered.
const sweepEvery = 10 * time.Second

// sweep ends what leads to servers that are members no longer.
func (t *Transport) sweep() {
	ticker := time.NewTicker(sweepEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			t.forget()
		case <-t.ctx.Done():
			return
		}
	}
}

func (t *Transport) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, p := range t.peers {
		if _, _, member := t.cfg.Resolve(id); !member {
			p.cancel()
			delete(t.peers, id)
		}
	}
}

// queued returns how many bytes wait for all servers.
func (t *Transport) queued() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for _, p := range t.peers {
		n += p.control.queue.size() + p.entries.queue.size()
	}
	return n
}

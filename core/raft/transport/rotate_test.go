package transport

import (
	"context"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/fairlead/fairlead/core/identity"
	"github.com/fairlead/fairlead/core/raft"
	"github.com/fairlead/fairlead/test/await"
)

// set gives a server other secrets, as an agent does.
func (w *wire) set(t testing.TB, secrets ...identity.Secret) {
	t.Helper()
	if err := w.keeper.SetSecrets(secrets); err != nil {
		t.Fatal(err)
	}
	w.Recheck()
	w.port.Recheck()
}

// refused returns how many handshakes of others were refused, or connections closed.
func (w *wire) refused() (n float64) {
	for _, reason := range []string{"stranger", "tls", "time", "timeout", "too-many"} {
		n += w.counted(w.port.metrics.handshakes.WithLabelValues(reason))
	}
	return n
}

// calls asks and sends from each server to each other one, without a pause.
type calls struct {
	answered [9]atomic.Int64 // by pair
	failed   atomic.Pointer[error]
	stop     context.CancelFunc
	running  sync.WaitGroup
}

func callAll(t testing.TB, wires []*wire) *calls {
	ctx, stop := context.WithCancel(t.Context())
	c := &calls{stop: stop}
	for i, from := range wires {
		for j, to := range wires {
			if i == j {
				continue
			}
			c.running.Go(func() {
				for n := uint64(0); ctx.Err() == nil; n++ {
					from.Send(heartbeat(from.spec.id, to.spec.id, n))
					if _, err := from.Ask(ctx, to.spec.id, raft.Question{Room: new(true)}); err != nil && ctx.Err() == nil {
						c.failed.CompareAndSwap(nil, &err)
						return
					}
					c.answered[3*i+j].Add(1)
				}
			})
		}
	}
	return c
}

// more waits until each server called each other one some more times.
func (c *calls) more(t testing.TB) {
	t.Helper()
	var before [9]int64
	for i := range c.answered {
		before[i] = c.answered[i].Load()
	}
	await.Within(t, time.Minute, "more calls", func() bool {
		if err := c.failed.Load(); err != nil {
			t.Fatal(*err)
		}
		for i := range c.answered {
			if i%4 != 0 && c.answered[i].Load() < before[i]+20 { // 0, 4 and 8 are a server and itself
				return false
			}
		}
		return true
	})
}

// Secrets are added on all servers, made the first on all, and the old ones
// removed from all, and no call fails meanwhile. Who has only the old one then is
// cut off, also from connections that it had, and both sides say why.
func TestRequirement68SecretsRotateWithoutAnOutage(t *testing.T) {
	before, after := secretOf(t, 0), secretOf(t, 1)
	n := newNetwork(t)
	var wires []*wire
	for id := uint64(1); id <= 3; id++ {
		w := n.unstarted(wireSpec{id: id})
		w.handler = newHandler()
		w.answered = func(context.Context, raft.Question) (raft.Answer, error) { return raft.Answer{}, nil }
		w.Start(discarding{w.handler})
		wires = append(wires, w)
	}
	old := n.wire(wireSpec{id: 4})
	old.answered = wires[0].answered
	reading := make(chan struct{})
	old.took = func(r io.Reader) error { close(reading); _, err := io.Copy(io.Discard, r); return err }
	ask := func(w *wire, to uint64) error {
		_, err := w.Ask(soon(t), to, raft.Question{Room: new(true)})
		return err
	}
	if err := ask(old, 1); err != nil {
		t.Fatal(err)
	}
	// A snapshot to it is on its way all the time.
	hold := make(chan struct{})
	goOn := sync.OnceFunc(func() { close(hold) })
	defer goOn()
	m, meta := snapshotOf(1, 4)
	f := file{io.MultiReader(strings.NewReader(strings.Repeat("x", pieceBytes)), readerFunc(func([]byte) (int, error) { <-hold; return 0, io.EOF })), make(chan struct{})}
	wires[0].SendSnapshot(m, meta, f)
	next(t, "the beginning of the snapshot", reading)

	c := callAll(t, wires)
	defer c.stop()
	c.more(t)
	for _, secrets := range [][]identity.Secret{{before, after}, {after, before}} {
		for _, w := range wires {
			w.set(t, secrets...)
			c.more(t)
		}
	}
	// Its connections are open yet: they were made before all this.
	if err := ask(old, 1); err != nil {
		t.Errorf("cut off early: %v", err)
	}
	for _, w := range wires {
		if got := w.refused(); got != 0 {
			t.Errorf("server %d refused %v connections", w.spec.id, got)
		}
	}
	for _, w := range wires {
		w.set(t, after)
		c.more(t)
	}
	c.stop()
	c.running.Wait()
	if err := c.failed.Load(); err != nil {
		t.Error(*err)
	}
	for _, w := range wires {
		for _, ch := range []channel{control, entries} {
			if got := w.counted(w.metrics.lost.WithLabelValues(string(ch), "unreachable")); got != 0 {
				t.Errorf("server %d lost %v messages", w.spec.id, got)
			}
		}
	}

	if err := ask(old, 1); err == nil || !strings.Contains(err.Error(), identity.ErrStranger.Error()) {
		t.Errorf("the one with the old secret says %v", err)
	}
	for _, want := range []string{errBelievedNoLonger.Error(), "does not believe this node's certificate"} {
		await.Within(t, time.Minute, "word of it at the others", func() bool { return strings.Contains(wires[0].log.String(), want) })
	}
	await.Within(t, time.Minute, "the end of the snapshot's connection", func() bool {
		wires[0].snapshots.mu.Lock()
		defer wires[0].snapshots.mu.Unlock()
		return len(wires[0].snapshots.open) == 0
	})
	goOn()
	if err := next(t, "the end of the snapshot", wires[0].sent); err == nil {
		t.Error("a snapshot went to a server that is not believed")
	}
	<-f.closed
}

// discarding is a handler to which any number of messages may be told.
type discarding struct{ *handler }

func (discarding) Receive(*pb.Message) error { return nil }
func (discarding) Unreachable(uint64)        {}

// A connection that was replaced is closed once it is not in use any more: at the
// end of a call on it, or at once.
func TestRetiredConnectionsAreClosed(t *testing.T) {
	n := newNetwork(t)
	a, b := n.wire(wireSpec{id: 1}), n.wire(wireSpec{id: 2})
	asked, hold := make(chan struct{}, 4), make(chan struct{})
	goOn := sync.OnceFunc(func() { close(hold) })
	defer goOn()
	b.answered = func(context.Context, raft.Question) (raft.Answer, error) {
		asked <- struct{}{}
		<-hold
		return raft.Answer{TTL: 1}, nil
	}
	open := func() int {
		b.port.ledger.mu.Lock()
		defer b.port.ledger.mu.Unlock()
		return len(b.port.ledger.open)
	}
	answers := make(chan error, 1)
	ask := func() {
		_, err := a.Ask(soon(t), 2, raft.Question{Room: new(true)})
		answers <- err
	}
	go ask()
	next(t, "a question", asked)
	if got := open(); got != 1 {
		t.Fatalf("%d connections", got)
	}
	if err := a.keeper.SetSecrets([]identity.Secret{secretOf(t, 0), secretOf(t, 1)}); err != nil {
		t.Fatal(err)
	}
	go ask() // nobody need say that they changed
	next(t, "a question on a new connection", asked)
	if got := open(); got != 2 {
		t.Errorf("%d connections, with a call on each of two", got)
	}
	goOn()
	for range 2 {
		if err := next(t, "an answer", answers); err != nil {
			t.Error(err)
		}
	}
	await.Within(t, time.Minute, "the end of the old connection", func() bool {
		l := a.peer(2).asker.link
		l.mu.Lock()
		defer l.mu.Unlock()
		return open() == 1 && len(l.retired) == 0
	})
	a.set(t, secretOf(t, 1), secretOf(t, 0)) // nothing is on its way
	await.Within(t, time.Minute, "the end of the other one", func() bool { return open() == 0 })
}

package transport

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/fairlead/fairlead/core/raft"
	"github.com/fairlead/fairlead/core/raft/snap"
	"github.com/fairlead/fairlead/core/store"
	"github.com/fairlead/fairlead/test/await"
)

// Messages of one channel arrive in their order, also those that are larger than a
// frame.
func TestOrder(t *testing.T) {
	n := newNetwork(t)
	small := Limits{FrameBytes: minFrameBytes}
	a, b := n.wire(wireSpec{id: 1, limits: small}), n.wire(wireSpec{id: 2, limits: small})
	const count = 500
	for i := range uint64(count) {
		size := 10
		if i%100 == 99 {
			size = 3 << 20
		}
		a.Send(appendOf(1, 2, i, size))
		a.Send(heartbeat(1, 2, i))
	}
	want := map[pb.MessageType]uint64{}
	for range 2 * count {
		m := next(t, "a message", b.received)
		got := m.GetCommit()
		if m.GetType() == pb.MsgApp {
			got = m.GetIndex()
		}
		if got != want[m.GetType()] {
			t.Fatalf("%v number %d, want %d", m.GetType(), got, want[m.GetType()])
		}
		want[m.GetType()]++
	}
	if len(a.unreachable) != 0 {
		t.Error("messages were lost")
	}
}

// A connection that broke is replaced, and the batch that found it broken is sent
// again.
func TestRequirement74Reconnects(t *testing.T) {
	n := newNetwork(t)
	a, b := n.wire(wireSpec{id: 1}), n.wire(wireSpec{id: 2})
	for round := range uint64(5) {
		a.Send(heartbeat(1, 2, round))
		await.Within(t, time.Minute, fmt.Sprint("message ", round), func() bool {
			select {
			case m := <-b.received:
				return m.GetCommit() == round
			case <-time.After(100 * time.Millisecond):
				a.Send(heartbeat(1, 2, round)) // what was in the connection is lost
				return false
			}
		})
		b.proxy.cut()
		if got := next(t, "word of the loss", a.unreachable); got != 2 {
			t.Fatalf("server %d is unreachable", got)
		}
		for len(a.unreachable) > 0 {
			<-a.unreachable
		}
	}
}

// A server that moved is found at once, also while it is sought where it was, and where
// nothing is refused, nor answered.
func TestAddressChangesWhileItIsSought(t *testing.T) {
	n := newNetwork(t)
	a, b := n.wire(wireSpec{id: 1}), n.wire(wireSpec{id: 2})
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	is := b.proxy.address()
	n.set(2, place{silent.Addr().String(), "n2"})
	a.Send(heartbeat(1, 2, 1))
	conn, err := silent.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	began := time.Now()
	n.set(2, place{is, "n2"})
	for round := uint64(2); len(b.received) == 0; round++ {
		a.Send(heartbeat(1, 2, round))
		await.For(t, "a moment to pass, or a message", func() bool {
			return len(b.received) > 0 || time.Since(began) > time.Duration(round)*10*time.Millisecond
		})
	}
	if took := time.Since(began); took > ioTimeout*9/10 { // in vain it would be sought for the whole of it
		t.Errorf("it was found after %v", took)
	}
}

// A server that moves is found, and one that is there no longer is not.
func TestAddressChanges(t *testing.T) {
	n := newNetwork(t)
	a, b := n.wire(wireSpec{id: 1}), n.wire(wireSpec{id: 2})
	a.Send(heartbeat(1, 2, 1))
	next(t, "a message", b.received)
	other := newProxy(t, b.proxy.target)
	defer other.close()
	n.set(2, place{other.address(), "n2"})
	a.Send(heartbeat(1, 2, 2))
	if m := next(t, "a message", b.received); m.GetCommit() != 2 {
		t.Errorf("%v", m)
	}
	other.mu.Lock()
	if len(other.conns) == 0 {
		t.Error("it did not come by the new address")
	}
	other.mu.Unlock()
	n.remove(2)
	a.Send(heartbeat(1, 2, 3))
	if got := a.counted(a.metrics.lost.WithLabelValues("control", "no-server")); got != 1 {
		t.Errorf("%v were lost for want of a server", got)
	}
	if _, err := a.Ask(soon(t), 2, raft.Question{Room: new(bool)}); !errors.Is(err, ErrNoServer) {
		t.Errorf("%v", err)
	}
	a.forget()
	if len(a.peers) != 0 {
		t.Error("the server is not forgotten")
	}
}

// A server that does not read delays nobody else, and not who sends; what waits
// for it is bounded, and the rest lost.
func TestRequirement74StalledServerDelaysNobody(t *testing.T) {
	t.Parallel() // it waits for time limits
	n := newNetwork(t)
	limits := Limits{QueueMessages: 256, QueueBytes: 8 << 20}
	a, b, c := n.wire(wireSpec{id: 1, limits: limits}), n.wire(wireSpec{id: 2}), n.wire(wireSpec{id: 3})
	a.Send(heartbeat(1, 2, 0))
	next(t, "a heartbeat", b.received)
	a.Send(appendOf(1, 2, 0, 1)) // a connection that is only being made is not what is given up below
	next(t, "an entry", b.received)
	release := b.proxy.hold()
	defer release()
	var i uint64
	await.Within(t, time.Minute, "the queue to be full", func() bool {
		for range 16 {
			i++
			a.Send(appendOf(1, 2, i, 1<<20))
			a.Send(heartbeat(1, 2, i))
		}
		if a.queued() > 2*limits.QueueBytes {
			t.Fatalf("%d bytes wait", a.queued())
		}
		return a.counted(a.metrics.lost.WithLabelValues("entries", "queue-full")) > 0
	})
	next(t, "word of the loss", a.unreachable)
	for i := range uint64(1000) {
		a.Send(heartbeat(1, 3, i))
		a.Send(appendOf(1, 2, i, 1<<20))
		if m := next(t, "a heartbeat", c.received); m.GetCommit() != i {
			t.Fatalf("number %d, want %d", m.GetCommit(), i)
		}
	}
	// In time nobody waits for it any more: neither for the stream, which the system may
	// end first, nor for a connection in its place.
	await.Within(t, time.Minute, "the connection to be given up", func() bool {
		return strings.Contains(a.log.String(), "to=2 channel=entries error=")
	})
	release()
	before := i
	await.Within(t, time.Minute, "messages again", func() bool {
		i++
		a.Send(heartbeat(1, 2, i))
		for len(b.received) > 0 {
			if m := <-b.received; m.GetCommit() > before {
				return true
			}
		}
		return false
	})
}

// Heartbeats do not stand behind appends to the same server, nor behind a snapshot
// or questions. What takes nothing for 5 s is given up.
func TestRequirements73And74HeartbeatsOvertake(t *testing.T) {
	t.Parallel() // it waits for time limits
	n := newNetwork(t)
	a, b := n.wire(wireSpec{id: 1}), n.unstarted(wireSpec{id: 2})
	b.handler = newHandler()
	b.busy = make(chan struct{})
	goOn := sync.OnceFunc(func() { close(b.busy) })
	defer goOn()
	b.took = func(r io.Reader) error { <-b.busy; return errors.New("too late") }
	b.answered = func(context.Context, raft.Question) (raft.Answer, error) { <-b.busy; return raft.Answer{}, nil }
	b.Start(b.handler)
	m, meta := snapshotOf(1, 2)
	a.SendSnapshot(m, meta, file{strings.NewReader(strings.Repeat("x", 8<<20)), make(chan struct{})})
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		_, _ = a.Ask(soon(t), 2, raft.Question{Room: new(true)}) // it may be too late as well
	}()
	for i := range uint64(48) {
		a.Send(appendOf(1, 2, i, 1<<20))
		a.Send(heartbeat(1, 2, i))
		if m := next(t, "a heartbeat", b.received); m.GetType() != pb.MsgHeartbeat || m.GetCommit() != i {
			t.Fatalf("%v number %d, want heartbeat %d", m.GetType(), m.GetCommit(), i)
		}
	}
	await.Within(t, time.Minute, "the appends to be given up", func() bool {
		return strings.Contains(a.log.String(), `channel=entries error="transport: server 2 (node n2 at `+b.proxy.address()+`): `+errTimeout.Error())
	})
	goOn()
	<-asked
	if err := next(t, "the end of the snapshot", a.sent); err == nil {
		t.Error("a snapshot was taken that came too late")
	}
}

// A connection over which nothing comes any more is given up by both sides, also if
// nobody wants to send anything.
func TestRequirement73IdleConnectionsExpire(t *testing.T) {
	t.Parallel() // it waits for time limits
	n := newNetwork(t)
	a, b := n.wire(wireSpec{id: 1}), n.wire(wireSpec{id: 2})
	a.Send(heartbeat(1, 2, 1))
	next(t, "a message", b.received)
	release := b.proxy.hold()
	defer release()
	began := time.Now()
	await.Within(t, time.Minute, "the end at the one that listens", func() bool {
		b.port.ledger.mu.Lock()
		defer b.port.ledger.mu.Unlock()
		return len(b.port.ledger.open) == 0
	})
	next(t, "word of it at the one that sent", a.unreachable)
	if since := time.Since(began); since < ioTimeout || since > 6*ioTimeout {
		t.Errorf("it ended after %v", since)
	}
}

type file struct {
	io.Reader
	closed chan struct{}
}

func (f file) Close() error { close(f.closed); return nil }

func snapshotOf(from, to uint64) (*pb.Message, snap.Meta) {
	return &pb.Message{
		Type: pb.MsgSnap.Enum(), From: new(from), To: new(to), Term: new(uint64(7)),
		Snapshot: &pb.Snapshot{Metadata: &pb.SnapshotMetadata{Index: new(uint64(5)), Term: new(uint64(6))}},
	}, snap.Meta{Cluster: "abcd", Index: 5, Term: 6, Membership: []byte("members")}
}

// Snapshots of any size arrive as they were sent.
func TestSnapshotSizes(t *testing.T) {
	n := newNetwork(t)
	a, b := n.wire(wireSpec{id: 1}), n.wire(wireSpec{id: 2})
	var got [sha256.Size]byte
	b.took = func(r io.Reader) error {
		h := sha256.New()
		_, err := io.Copy(h, r)
		copy(got[:], h.Sum(nil))
		return err
	}
	for _, size := range []int{0, 1, 4<<20 - 1, 4 << 20, 4<<20 + 1, 20_000_000} {
		data := make([]byte, size)
		_, _ = rand.NewChaCha8([32]byte{byte(size)}).Read(data)
		m, meta := snapshotOf(1, 2)
		f := file{strings.NewReader(string(data)), make(chan struct{})}
		a.SendSnapshot(m, meta, f)
		if err := next(t, "the end of the snapshot", a.sent); err != nil {
			t.Fatalf("%d bytes: %v", size, err)
		}
		if want := sha256.Sum256(data); got != want {
			t.Errorf("%d bytes arrived as others", size)
		}
		<-f.closed
	}
}

// What goes wrong with a snapshot is told to who sends it.
func TestSnapshotFails(t *testing.T) {
	n := newNetwork(t)
	a, b := n.wire(wireSpec{id: 1}), n.wire(wireSpec{id: 2})
	send := func(to uint64, r io.Reader) error {
		m, meta := snapshotOf(1, to)
		f := file{r, make(chan struct{})}
		a.SendSnapshot(m, meta, f)
		err := next(t, "the end of the snapshot", a.sent)
		<-f.closed
		return err
	}
	b.took = func(io.Reader) error { return errors.New("no room for it") }
	if err := send(2, strings.NewReader(strings.Repeat("x", 20<<20))); err == nil || !strings.Contains(err.Error(), "no room for it") {
		t.Errorf("refused: %v", err)
	}
	if err := send(3, strings.NewReader("x")); !errors.Is(err, ErrNoServer) {
		t.Errorf("to nobody: %v", err)
	}
	began := make(chan struct{})
	b.took = func(r io.Reader) error {
		_, err := r.Read(make([]byte, 1))
		close(began)
		if err == nil {
			_, err = io.Copy(io.Discard, r)
		}
		return err
	}
	bad := io.MultiReader(strings.NewReader(strings.Repeat("x", 2<<20)), readerFunc(func([]byte) (int, error) {
		<-began
		return 0, errors.New("the disk is broken")
	}))
	if err := send(2, bad); err == nil || !strings.Contains(err.Error(), "the disk is broken") {
		t.Errorf("no longer readable: %v", err)
	}
	// Two at once; and a connection that breaks under one.
	began = make(chan struct{})
	hold := make(chan struct{})
	slow := readerFunc(func(p []byte) (int, error) {
		select {
		case <-hold:
			return 0, io.EOF
		default:
			return len(p), nil
		}
	})
	defer close(hold)
	m, meta := snapshotOf(1, 2)
	f := file{slow, make(chan struct{})}
	a.SendSnapshot(m, meta, f)
	<-began
	refused := time.Now()
	if err := send(2, strings.NewReader("x")); err == nil || !strings.Contains(err.Error(), "another snapshot") {
		t.Errorf("two at once: %v", err)
	}
	if took := time.Since(refused); took < snapshotPause {
		t.Errorf("the next one may come after %v", took)
	}
	b.proxy.cut()
	if err := next(t, "the end of the snapshot", a.sent); err == nil {
		t.Error("a snapshot was taken of which a part was lost")
	}
	<-f.closed
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// Questions and their answers arrive as they are, and errors as what they were.
func TestAsk(t *testing.T) {
	n := newNetwork(t)
	a, b := n.wire(wireSpec{id: 1}), n.wire(wireSpec{id: 2})
	lease := store.Lease{Space: store.User, ID: 77}
	command := store.Command{Space: store.User, Client: &store.Client{ID: store.ClientID{1}, Sequence: 4}, Op: &store.Op{Put: &store.PutOp{Key: "k", Value: []byte("v")}}}
	var asked raft.Question
	for name, c := range map[string]struct {
		q raft.Question
		a raft.Answer
	}{
		"commands": {raft.Question{Commands: []store.Command{command}}, raft.Answer{Results: []store.Result{{Revision: 9, Err: store.ErrFenced}}}},
		"renew":    {raft.Question{Renew: &lease}, raft.Answer{TTL: 3 * time.Second}},
		"left":     {raft.Question{Left: &lease}, raft.Answer{TTL: -1}},
		"room":     {raft.Question{Room: new(true)}, raft.Answer{}},
	} {
		b.answered = func(_ context.Context, q raft.Question) (raft.Answer, error) { asked = q; return c.a, nil }
		got, err := a.Ask(soon(t), 2, c.q)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		question, err := encodeQuestion(asked)
		want, wantErr := encodeQuestion(c.q)
		if err != nil || wantErr != nil || question.String() != want.String() {
			t.Errorf("%s: %v arrived as %v", name, want, question)
		}
		if got.TTL != c.a.TTL || len(got.Results) != len(c.a.Results) || len(got.Results) > 0 && (got.Results[0].Revision != 9 || !errors.Is(got.Results[0].Err, store.ErrFenced)) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if _, err := a.Ask(soon(t), 2, raft.Question{}); !errors.Is(err, errQuestion) {
		t.Errorf("%v", err)
	}
	for _, c := range []struct {
		err       error
		notLeader bool
	}{{fmt.Errorf("%w any more", raft.ErrNotLeader), true}, {errors.New("something else"), false}} {
		b.answered = func(context.Context, raft.Question) (raft.Answer, error) { return raft.Answer{}, c.err }
		_, err := a.Ask(soon(t), 2, raft.Question{Room: new(true)})
		if err == nil || errors.Is(err, raft.ErrNotLeader) != c.notLeader || !strings.Contains(err.Error(), c.err.Error()) {
			t.Errorf("%v arrived as %v", c.err, err)
		}
	}
	b.answered = func(ctx context.Context, _ raft.Question) (raft.Answer, error) {
		<-ctx.Done()
		return raft.Answer{}, ctx.Err()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := a.Ask(ctx, 2, raft.Question{Room: new(true)}); err == nil {
		t.Error("an answer out of nothing")
	}
	big := command
	big.Op = &store.Op{Put: &store.PutOp{Key: "k", Value: make([]byte, 4<<20)}}
	if _, err := a.Ask(soon(t), 2, raft.Question{Commands: []store.Command{big}}); err == nil || !strings.Contains(err.Error(), "does not fit into a frame") {
		t.Errorf("%v", err)
	}
}

// Questions that wait share a call, and each has its own answer.
func TestQuestionsShareCalls(t *testing.T) {
	n := newNetwork(t)
	a, b := n.wire(wireSpec{id: 1}), n.wire(wireSpec{id: 2})
	arrived, goOn := make(chan struct{}, 1000), make(chan struct{})
	b.answered = func(_ context.Context, q raft.Question) (raft.Answer, error) {
		arrived <- struct{}{}
		<-goOn
		if q.Left.ID%2 == 0 {
			return raft.Answer{}, raft.ErrNotLeader
		}
		return raft.Answer{TTL: time.Duration(q.Left.ID)}, nil
	}
	var all sync.WaitGroup
	ask := func(i store.LeaseID) {
		all.Go(func() {
			got, err := a.Ask(soon(t), 2, raft.Question{Left: &store.Lease{Space: store.User, ID: i}})
			if i%2 == 0 && !errors.Is(err, raft.ErrNotLeader) || i%2 == 1 && (err != nil || got.TTL != time.Duration(i)) {
				t.Errorf("question %d: %v, %v", i, got, err)
			}
		})
	}
	for i := range store.LeaseID(callsAtOnce) { // one after the other, so that each has a call
		ask(i)
		next(t, "a question", arrived)
	}
	for i := range store.LeaseID(100) {
		ask(i)
	}
	await.Within(t, time.Minute, "all to wait", func() bool { return a.counted(a.metrics.questions) == 100+callsAtOnce })
	close(goOn)
	all.Wait()
	if got := a.counted(a.metrics.asks); got > callsAtOnce+2 {
		t.Errorf("%v calls", got)
	}
}

// After Stop nothing is told, and nobody waits for anything.
func TestStop(t *testing.T) {
	n := newNetwork(t)
	a, b := n.wire(wireSpec{id: 1}), n.wire(wireSpec{id: 2})
	began := make(chan struct{})
	b.answered = func(ctx context.Context, _ raft.Question) (raft.Answer, error) {
		close(began)
		<-ctx.Done()
		return raft.Answer{}, ctx.Err()
	}
	taking := make(chan struct{})
	b.took = func(r io.Reader) error { close(taking); _, err := io.Copy(io.Discard, r); return err }
	a.Send(heartbeat(1, 2, 1))
	next(t, "a message", b.received)
	m, meta := snapshotOf(1, 2)
	f := file{readerFunc(func(p []byte) (int, error) { return len(p), nil }), make(chan struct{})}
	a.SendSnapshot(m, meta, f)
	asked := make(chan error, 1)
	go func() {
		_, err := a.Ask(soon(t), 2, raft.Question{Room: new(true)})
		asked <- err
	}()
	<-began
	<-taking
	b.Stop()
	if err := next(t, "the end of the question", asked); err == nil {
		t.Error("an answer out of nothing")
	}
	if err := next(t, "the end of the snapshot", a.sent); err == nil {
		t.Error("a snapshot that nobody took")
	}
	// The port goes on; what was of this server is told so.
	b.answered = func(context.Context, raft.Question) (raft.Answer, error) {
		t.Error("the handler was asked something after Stop")
		return raft.Answer{}, nil
	}
	if _, err := a.Ask(soon(t), 2, raft.Question{Room: new(true)}); err == nil || !strings.Contains(err.Error(), "is not running") {
		t.Errorf("%v", err)
	}
	a.Stop()
	a.Stop() // does nothing
	<-f.closed
	told := len(a.unreachable)
	a.Send(heartbeat(1, 2, 2))
	f = file{strings.NewReader(""), make(chan struct{})}
	a.SendSnapshot(m, meta, f)
	<-f.closed
	if _, err := a.Ask(soon(t), 2, raft.Question{Room: new(true)}); err == nil {
		t.Error("an answer after the end")
	}
	if len(a.unreachable) != told || len(a.sent) != 0 {
		t.Error("the handler was told something after Stop")
	}
}

package transport

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/fairlead/fairlead/core/identity"
	"github.com/fairlead/fairlead/core/raft"
	"github.com/fairlead/fairlead/core/raft/snap"
)

// secretOf makes the n-th secret of a test.
func secretOf(t testing.TB, n int) identity.Secret {
	t.Helper()
	s, err := identity.Parse([]byte("abcdefghijklmnopqrstuvwxyz-0123456789-" + string(rune('a'+n)) + "\n"))
	if err != nil {
		t.Fatal(err)
	}
	return s[0]
}

// wireSpec is how one server of a test differs from what is usual.
type wireSpec struct {
	id      uint64
	node    string // default: n and the id
	cluster string // default: abcd
	secrets []identity.Secret
	now     func() time.Time
	limits  Limits
	listen  func(net.Listener) net.Listener
}

// wire is one server's end: a port, a transport, and a handler that a test reads.
type wire struct {
	spec   wireSpec
	keeper *identity.Keeper
	port   *Port
	*Transport
	*handler
	proxy    *proxy
	log      *logged
	registry *prometheus.Registry
	serving  sync.WaitGroup
}

// network is servers that reach each other through proxies.
type network struct {
	t  testing.TB
	mu sync.Mutex
	at map[uint64]place
}

type place struct{ address, node string }

func newNetwork(t testing.TB) *network { return &network{t: t, at: map[uint64]place{}} }

func (n *network) resolve(id uint64) (address, node string, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	p, ok := n.at[id]
	return p.address, p.node, ok
}

func (n *network) set(id uint64, p place) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.at[id] = p
}

func (n *network) remove(id uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.at, id)
}

// wire makes a server's end that a fake handler listens to.
func (n *network) wire(spec wireSpec) *wire {
	n.t.Helper()
	w := n.unstarted(spec)
	w.handler = newHandler()
	w.Start(w.handler)
	return w
}

// unstarted makes a server's end, which stops with the test.
func (n *network) unstarted(spec wireSpec) *wire {
	n.t.Helper()
	if spec.node == "" {
		spec.node = "n" + string(rune('0'+spec.id))
	}
	if spec.cluster == "" {
		spec.cluster = "abcd"
	}
	if spec.secrets == nil {
		spec.secrets = []identity.Secret{secretOf(n.t, 0)}
	}
	if spec.now == nil {
		spec.now = time.Now
	}
	w := &wire{spec: spec, log: &logged{}, registry: prometheus.NewRegistry()}
	var err error
	if w.keeper, err = identity.NewKeeper("prod", identity.Node{ID: "id-" + spec.node, Name: spec.node}, spec.secrets, spec.now); err != nil {
		n.t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		n.t.Fatal(err)
	}
	address := l.Addr().String()
	if spec.listen != nil {
		l = spec.listen(l)
	}
	log := slog.New(slog.NewTextHandler(io.MultiWriter(n.t.Output(), w.log), nil)).With("server", spec.id)
	w.port, err = NewPort(PortConfig{Listener: l, Keeper: w.keeper, Limits: spec.limits, Log: log, Metrics: w.registry})
	if err != nil {
		n.t.Fatal(err)
	}
	w.Transport, err = New(Config{
		ID: spec.id, Cluster: spec.cluster, Keeper: w.keeper, Resolve: n.resolve, Limits: spec.limits, Log: log, Metrics: w.registry,
	}, w.port)
	if err != nil {
		n.t.Fatal(err)
	}
	w.serving.Go(func() {
		if err := w.port.Serve(); err != nil {
			n.t.Error(err)
		}
	})
	w.proxy = newProxy(n.t, address)
	n.set(spec.id, place{w.proxy.address(), "n" + string(rune('0'+spec.id))})
	n.t.Cleanup(w.stop)
	return w
}

func (w *wire) stop() {
	w.Stop()
	w.port.Stop()
	w.serving.Wait()
	w.proxy.close()
}

// counted returns a counter of the transport.
func (w *wire) counted(c prometheus.Counter) float64 {
	m := &dto.Metric{}
	if err := c.Write(m); err != nil {
		panic(err)
	}
	return m.GetCounter().GetValue()
}

// handler keeps what it is told.
type handler struct {
	received    chan *pb.Message
	busy        chan struct{} // unless nil, no append is taken before it is closed
	unreachable chan uint64
	gone        chan uint64
	sent        chan error
	took        func(io.Reader) error
	answered    func(context.Context, raft.Question) (raft.Answer, error)
}

func newHandler() *handler {
	return &handler{
		received: make(chan *pb.Message, 1<<16), unreachable: make(chan uint64, 1<<16), gone: make(chan uint64, 1<<10), sent: make(chan error, 16),
		took:     func(r io.Reader) error { _, err := io.Copy(io.Discard, r); return err },
		answered: func(context.Context, raft.Question) (raft.Answer, error) { return raft.Answer{}, raft.ErrNotLeader },
	}
}

func (h *handler) Receive(m *pb.Message) error {
	if h.busy != nil && m.GetType() == pb.MsgApp {
		<-h.busy
	}
	h.received <- m
	return nil
}

func (h *handler) ReceiveSnapshot(_ *pb.Message, _ snap.Meta, r io.Reader) error { return h.took(r) }

func (h *handler) Unreachable(id uint64) { h.unreachable <- id }

func (h *handler) Gone(id uint64) { h.gone <- id }

func (h *handler) SnapshotSent(_ uint64, err error) { h.sent <- err }

func (h *handler) Answer(ctx context.Context, _ uint64, q raft.Question) (raft.Answer, error) {
	return h.answered(ctx, q)
}

// logged is what was logged.
type logged struct {
	mu   sync.Mutex
	text []byte
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, p...)
	return len(p), nil
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.text)
}

// proxy passes TCP on, or holds it, or cuts it.
type proxy struct {
	t        testing.TB
	listener net.Listener
	running  sync.WaitGroup

	mu      sync.Mutex
	target  string
	open    chan struct{} // closed: bytes pass
	conns   map[net.Conn]bool
	ended   bool
	stopped chan struct{}
}

func newProxy(t testing.TB, target string) *proxy {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	open := make(chan struct{})
	close(open)
	p := &proxy{t: t, listener: l, target: target, open: open, conns: map[net.Conn]bool{}, stopped: make(chan struct{})}
	p.running.Go(p.accept)
	return p
}

func (p *proxy) address() string { return p.listener.Addr().String() }

func (p *proxy) accept() {
	for {
		in, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		target := p.target
		p.mu.Unlock()
		out, err := net.Dial("tcp", target)
		if err != nil {
			_ = in.Close()
			continue
		}
		if !p.keep(in, out) {
			return
		}
		p.running.Go(func() { p.pass(in, out) })
		p.running.Go(func() { p.pass(out, in) })
	}
}

func (p *proxy) keep(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		if p.ended {
			_ = c.Close()
			continue
		}
		p.conns[c] = true
	}
	return !p.ended
}

func (p *proxy) pass(from, to net.Conn) {
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, c := range []net.Conn{from, to} {
			_ = c.Close()
			delete(p.conns, c)
		}
	}()
	buf := make([]byte, 64<<10)
	for {
		p.mu.Lock()
		open := p.open
		p.mu.Unlock()
		select {
		case <-open:
		case <-p.stopped:
			return
		}
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

// hold stops all bytes; what was sent before may still pass. It returns what lets
// them pass again.
func (p *proxy) hold() (release func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	open := make(chan struct{})
	p.open = open
	return sync.OnceFunc(func() { close(open) })
}

// cut ends all connections.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
	}
}

func (p *proxy) close() {
	p.mu.Lock()
	if p.ended {
		p.mu.Unlock()
		return
	}
	p.ended = true
	close(p.stopped)
	p.mu.Unlock()
	_ = p.listener.Close()
	p.cut()
	p.running.Wait()
}

func soon(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func next[T any](t testing.TB, what string, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(time.Minute):
		t.Fatalf("waited for %s in vain", what)
	}
	panic(errors.New("unreachable"))
}

func heartbeat(from, to, n uint64) *pb.Message {
	return &pb.Message{Type: pb.MsgHeartbeat.Enum(), From: new(from), To: new(to), Term: new(uint64(1)), Commit: new(n)}
}

func appendOf(from, to, n uint64, bytes int) *pb.Message {
	return &pb.Message{
		Type: pb.MsgApp.Enum(), From: new(from), To: new(to), Term: new(uint64(1)), Index: new(n),
		Entries: []*pb.Entry{{Index: new(n), Term: new(uint64(1)), Data: make([]byte, bytes)}},
	}
}

package transport

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fairlead/fairlead/core/config"
	"github.com/fairlead/fairlead/core/identity"
	"github.com/fairlead/fairlead/core/raft"
	"github.com/fairlead/fairlead/core/raft/transport/transportpb"
	"github.com/fairlead/fairlead/test/await"
)

func TestLimitsOfConfig(t *testing.T) {
	for bytes, ok := range map[int]bool{0: true, 64 << 10: true, 64<<10 - 1: false, 16 << 20: true, 16<<20 + 1: false, -1: false} {
		l := Limits{FrameBytes: bytes}
		if err := l.complete(); (err == nil) != ok {
			t.Errorf("frames of %d bytes: %v", bytes, err)
		}
	}
	for _, l := range []Limits{{Handshakes: -1}, {QueueMessages: -1}, {QueueBytes: -1}} {
		if err := l.complete(); err == nil {
			t.Errorf("%+v is taken", l)
		}
	}
	var l Limits
	if err := l.complete(); err != nil || l.FrameBytes != 4<<20 || l.Handshakes != 32 {
		t.Errorf("%+v, %v", l, err)
	}
}

// The keys of rpc. have the defaults and bounds of the limits that they set.
func TestRequirements71And72And75AreKeys(t *testing.T) {
	var l Limits
	if err := l.complete(); err != nil {
		t.Fatal(err)
	}
	want := config.Defaults().RPC
	if l.Handshakes != want.MaxHandshakes || l.FrameBytes != want.MaxFrameBytes || l.QueueBytes != want.MaxQueueBytes {
		t.Errorf("the limits are %+v, the keys %+v", l, want)
	}
	for bytes, ok := range map[int]bool{minFrameBytes - 1: false, minFrameBytes: true, maxFrameBytes: true, maxFrameBytes + 1: false} {
		cfg := config.Defaults()
		cfg.Node.Name, cfg.RPC.MaxFrameBytes = "n1", bytes
		if errs := cfg.Validate(nil); (len(errs) == 0) != ok {
			t.Errorf("frames of %d bytes: %v", bytes, errs)
		}
	}
}

// A frame of the allowed size is taken, and one that is a byte larger is not.
func TestRequirement72FrameCap(t *testing.T) {
	n := newNetwork(t)
	a, b := n.wire(wireSpec{id: 1}), n.wire(wireSpec{id: 2})
	conn, err := (&link{t: a.Transport, to: 2}).open()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	send := func(frame int) error {
		ctx, cancel := context.WithCancel(a.greet(soon(t), 2))
		defer cancel()
		out, err := transportpb.NewTransportClient(conn.ClientConn).Messages(ctx)
		if err != nil {
			t.Fatal(err)
		}
		// A message that is not complete yet. Tag and length of the field take 5 bytes.
		data := append(binary.AppendUvarint(nil, 8<<20), make([]byte, frame)...)[:frame-5]
		_ = out.Send(&transportpb.MessagesRequest{Data: data}) // what becomes of it is said below
		_, err = out.CloseAndRecv()
		return err
	}
	if err := send(4 << 20); err != nil {
		t.Errorf("a frame of 4 MiB: %v", err)
	}
	if err := send(4<<20 + 1); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a frame of 4 MiB and a byte: %v", err)
	}
	if len(b.received) != 0 {
		t.Error("a message came through")
	}
}

// A frame is refused by its length, before it is there and before there is room
// for it.
func TestRequirement72FrameIsRefusedByItsLength(t *testing.T) {
	n := newNetwork(t)
	a, b := n.wire(wireSpec{id: 1}), n.wire(wireSpec{id: 2})
	client := overHTTP2(a.keeper.Client("n2"))
	defer client.CloseIdleConnections()
	header := binary.BigEndian.AppendUint32([]byte{0}, 1<<30) // not compressed; a GiB follows, or does not
	body, write := io.Pipe()
	defer write.Close()
	go func() { _, _ = write.Write(header) }()
	r, err := http.NewRequestWithContext(soon(t), http.MethodPost, "https://"+b.proxy.address()+transportpb.Transport_Messages_FullMethodName, body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header = http.Header{
		"Content-Type": {"application/grpc"}, "Te": {"trailers"},
		clusterKey: {"abcd"}, fromKey: {"1"}, toKey: {"2"},
	}
	answer, err := client.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, answer.Body) // the trailers come after it
	_ = answer.Body.Close()
	if got := answer.Trailer.Get("Grpc-Status"); got != "8" {
		t.Errorf("status %q: %s", got, answer.Trailer.Get("Grpc-Message"))
	}
}

// overHTTP2 makes requests under a configuration of TLS.
func overHTTP2(config *tls.Config) *http.Transport {
	return &http.Transport{
		ForceAttemptHTTP2: true,
		DialTLSContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			d := tls.Dialer{Config: config}
			return d.DialContext(ctx, network, addr)
		},
	}
}

// Nobody is served who did not show who it is, whatever is called.
func TestRequirement69NoCallBeforeTheHandshake(t *testing.T) {
	n := newNetwork(t)
	_, b := n.wire(wireSpec{id: 1}), n.wire(wireSpec{id: 2})
	b.answered = func(context.Context, raft.Question) (raft.Answer, error) {
		t.Error("a question came through")
		return raft.Answer{}, nil
	}
	call := func(config *tls.Config) {
		client := overHTTP2(config)
		defer client.CloseIdleConnections()
		r, err := http.NewRequestWithContext(soon(t), http.MethodPost, "https://"+b.proxy.address()+transportpb.Transport_Ask_FullMethodName, bytes.NewReader(make([]byte, 5)))
		if err != nil {
			t.Fatal(err)
		}
		r.Header = http.Header{"Content-Type": {"application/grpc"}, clusterKey: {"abcd"}, fromKey: {"1"}, toKey: {"2"}}
		if answer, err := client.RoundTrip(r); err == nil {
			_ = answer.Body.Close()
			t.Error("there is an answer")
		}
	}
	call(&tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	stranger, err := identity.NewKeeper("prod", identity.Node{ID: "1", Name: "n1"}, []identity.Secret{secretOf(t, 5)}, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	theirs := stranger.Client("")
	theirs.VerifyConnection = nil // it would not believe us either
	call(theirs)
	plain, err := net.Dial("tcp", b.proxy.address())
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	if _, err := plain.Write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	if got, _ := io.ReadAll(plain); bytes.Contains(got, []byte("grpc")) {
		t.Errorf("%q", got)
	}
}

// A service at a server that is not a Port's trusts nobody.
func TestOtherServersTrustNobody(t *testing.T) {
	n := newNetwork(t)
	a := n.wire(wireSpec{id: 1})
	if _, err := a.admit(t.Context()); status.Code(err) != codes.Unauthenticated {
		t.Errorf("%v", err)
	}
	var _ grpc.ServiceRegistrar = a.port
}

// A port that was stopped before it began serves nobody, and that is no error.
func TestServeAfterStop(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	k, err := identity.NewKeeper("prod", identity.Node{ID: "1", Name: "n1"}, []identity.Secret{secretOf(t, 0)}, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	p, err := NewPort(PortConfig{Listener: l, Keeper: k, Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	p.Stop()
	if err := p.Serve(); err != nil {
		t.Error(err)
	}
	if err := l.Close(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the listener is still open: %v", err)
	}
}

// So many connections may wait for their handshake and no more: then the oldest is closed,
// and others that wait keep no agent out. Who waits for longer than 5 s is closed as well.
func TestRequirements71And73Handshakes(t *testing.T) {
	t.Parallel() // it waits for time limits
	n := newNetwork(t)
	accepted := make(chan struct{}, 16)
	a := n.wire(wireSpec{id: 1})
	b := n.wire(wireSpec{id: 2, limits: Limits{Handshakes: 3}, listen: func(l net.Listener) net.Listener { return counting{l, accepted} }})
	began := time.Now()
	idle := func() net.Conn {
		c, err := net.Dial("tcp", b.proxy.target)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		next(t, "a connection", accepted)
		return c
	}
	count := func(reason string) float64 { return b.counted(b.port.metrics.handshakes.WithLabelValues(reason)) }
	ends := func(c net.Conn) {
		t.Helper()
		if err := c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("one too many: %v", err)
		}
	}
	var open []net.Conn
	for range 5 {
		open = append(open, idle())
	}
	if waiting := b.port.listener.counted(); waiting > 3 {
		t.Errorf("%d wait", waiting)
	}
	ends(open[0])
	ends(open[1])
	if slow := time.Since(began) > ioTimeout; !slow && (count("too-many") != 2 || count("timeout") > 0) {
		t.Errorf("%v too many, %v too late", count("too-many"), count("timeout"))
	}
	await.Within(t, time.Minute, "an agent among those that wait", func() bool {
		a.Send(heartbeat(1, 2, 1))
		return len(b.received) > 0
	})
	ends(open[4])
	if since := time.Since(began); since < ioTimeout-time.Second && count("timeout") > 0 {
		t.Errorf("one that waits was closed after %v", since)
	}
	await.Within(t, time.Minute, "word of the others", func() bool { return count("timeout")+count("too-many") >= 5 })
	// Those that are known count no more: 8 of them, one after the other.
	for range 8 {
		c, err := tls.Dial("tcp", b.proxy.target, a.keeper.Client("n2"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")); err != nil {
			t.Fatal(err)
		}
	}
}

type counting struct {
	net.Listener
	accepted chan struct{}
}

func (c counting) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err == nil {
		select {
		case c.accepted <- struct{}{}:
		default:
		}
	}
	return conn, err
}

// Whoever sends what is no TLS cannot fill the log with it.
func TestStrangersAreNotLoggedEachTime(t *testing.T) {
	w := newNetwork(t).wire(wireSpec{id: 1})
	knock := func(first ...byte) {
		c, err := net.Dial("tcp", w.port.listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Write(first); err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, c) // until it is refused
	}
	for n := range byte(20) {
		knock(0x16, 3, 1, 0xff, n) // a record of another length that is too long
		knock([]byte("GET / HTTP/1.1\r\n\r\n")...)
	}
	await.Within(t, time.Minute, "all to be counted", func() bool { return w.refused() == 40 })
	if n := strings.Count(w.log.String(), "was refused"); n != 1 {
		t.Errorf("%d lines for 40 connections:\n%s", n, w.log)
	}
}

// counted is how many connections have not shown who they are.
func (g *gate) counted() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.waiting)
}

package backend

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/test/await"
	"github.com/fairlead/fairlead/test/port"
)

// peer is a listener whose connections the test holds.
type peer struct {
	addr  netip.AddrPort
	conns chan *net.TCPConn
}

func newPeer(t *testing.T) *peer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &peer{addr: netip.MustParseAddrPort(l.Addr().String()), conns: make(chan *net.TCPConn, 100)}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			p.conns <- c.(*net.TCPConn)
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		all.Wait()
		for len(p.conns) > 0 {
			_ = (<-p.conns).Close()
		}
	})
	return p
}

func options(o Options) *Group {
	var g Group
	if o.HeadBytes == 0 {
		o.HeadBytes = 1 << 10
	}
	o.Open = cmp.Or(o.Open, 100)
	g.Configure(o)
	return &g
}

func get(t *testing.T, p *Pool, dialled bool) *Conn {
	t.Helper()
	c, fresh, err := p.Get(context.Background(), await.Patience, false)
	if err != nil || fresh != dialled {
		t.Fatalf("dialled %v, %v", fresh, err)
	}
	return c
}

func open(t *testing.T, p *Pool, busy, idle int) {
	t.Helper()
	if b, i := p.Open(); b != busy || i != idle {
		t.Errorf("%d busy and %d idle, want %d and %d", b, i, busy, idle)
	}
}

func TestPoolGivesTheLastOneAgain(t *testing.T) {
	srv := newPeer(t)
	p := NewPool(srv.addr, options(Options{Idle: 2, IdleTime: time.Minute}))
	defer p.Close()
	a, b, c := get(t, p, true), get(t, p, true), get(t, p, true)
	open(t, p, 3, 0)
	now := time.Now()
	a.Put(now)
	b.Put(now)
	c.Put(now) // one too many
	open(t, p, 0, 2)
	if got := get(t, p, false); got != b || !got.Reused() {
		t.Error("not the one that was used last")
	}
	if _, dialled, err := p.Get(context.Background(), await.Patience, true); err != nil || !dialled {
		t.Errorf("a fresh one was asked for: %v %v", dialled, err)
	}
	open(t, p, 2, 1)
}

// A connection that ended, or over which bytes came that nobody asked for, is
// not used again.
func TestPoolChecksBeforeUse(t *testing.T) {
	for name, spoil := range map[string]func(c *net.TCPConn){
		"end":   func(c *net.TCPConn) { _ = c.Close() },
		"reset": func(c *net.TCPConn) { _ = c.SetLinger(0); _ = c.Close() },
		"bytes": func(c *net.TCPConn) { _, _ = c.Write([]byte("HTTP/1.1 200 OK\r\n")) },
	} {
		t.Run(name, func(t *testing.T) {
			srv := newPeer(t)
			p := NewPool(srv.addr, options(Options{Idle: 2, IdleTime: time.Minute}))
			defer p.Close()
			c := get(t, p, true)
			c.Put(time.Now())
			spoil(<-srv.conns)
			deadline := time.Now().Add(await.Patience)
			for {
				got, dialled, err := p.Get(context.Background(), await.Patience, false)
				if err != nil {
					t.Fatal(err)
				}
				if dialled {
					got.Discard()
					break
				}
				got.Put(time.Now())
				if time.Now().After(deadline) {
					t.Fatal("it is still used")
				}
			}
			open(t, p, 0, 0)
		})
	}
}

func TestSweep(t *testing.T) {
	srv := newPeer(t)
	p := NewPool(srv.addr, options(Options{Idle: 9, IdleTime: time.Minute}))
	defer p.Close()
	a, b, c := get(t, p, true), get(t, p, true), get(t, p, true)
	_, _, last := <-srv.conns, <-srv.conns, <-srv.conns
	now := time.Now()
	a.Put(now.Add(-time.Hour))
	b.Put(now)
	c.Put(now)
	p.Sweep(now)
	open(t, p, 0, 2)
	_ = last.Close()
	deadline := time.Now().Add(await.Patience)
	for {
		p.Sweep(now)
		if _, idle := p.Open(); idle == 1 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("a connection that ended stays")
		}
	}
	if got := get(t, p, false); got != b {
		t.Error("not the one that is left")
	}
}

func TestClosedPool(t *testing.T) {
	srv := newPeer(t)
	p := NewPool(srv.addr, options(Options{Idle: 9, IdleTime: time.Minute}))
	a, b := get(t, p, true), get(t, p, true)
	a.Put(time.Now())
	p.Close()
	open(t, p, 1, 0)
	b.Put(time.Now())
	open(t, p, 0, 0)
}

// Cut breaks off what heard nothing since the time, and whatever begins later.
func TestCut(t *testing.T) {
	srv := newPeer(t)
	p := NewPool(srv.addr, options(Options{Idle: 9, IdleTime: time.Minute}))
	quiet := get(t, p, true)
	since := time.Now()
	heard := get(t, p, true)
	p.Cut(since)
	if !quiet.Interrupted() || heard.Interrupted() {
		t.Errorf("interrupted: quiet %v, heard %v", quiet.Interrupted(), heard.Interrupted())
	}
	if _, err := quiet.Reader().Peek(1); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%v", err)
	}
	quiet.SetReadDeadline(time.Now().Add(time.Hour))
	quiet.SetWriteDeadline(time.Now().Add(time.Hour))
	if _, err := quiet.Reader().Peek(1); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a deadline outlasts the interrupt: %v", err)
	}
	if _, err := quiet.Write([]byte("x")); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("write: %v", err)
	}
	if _, _, err := p.Get(context.Background(), await.Patience, false); !errors.Is(err, ErrGone) || !p.WasCut() {
		t.Errorf("Get: %v", err)
	}
	p.Cut(time.Time{})
	if !heard.Interrupted() {
		t.Error("not all were cut")
	}
	quiet.Discard()
	heard.Put(time.Now())
	open(t, p, 0, 0)
}

func TestConnectErrors(t *testing.T) {
	addr := netip.MustParseAddrPort(port.Free(t))
	p := NewPool(addr, options(Options{}))
	if _, dialled, err := p.Get(context.Background(), await.Patience, false); err == nil || !dialled || !strings.Contains(err.Error(), addr.String()) {
		t.Errorf("%v", err)
	}
	if p.Addr() != addr || p.AddrText() != addr.String() {
		t.Errorf("%v %s", p.Addr(), p.AddrText())
	}
	open(t, p, 0, 0)
}

// pause is called once before each wait, and its error is that of the read.
func TestPause(t *testing.T) {
	srv := newPeer(t)
	p := NewPool(srv.addr, options(Options{}))
	c := get(t, p, true)
	defer c.Discard()
	other := <-srv.conns
	defer other.Close()
	pauses := 0
	c.OnPause(func() error {
		pauses++
		_, err := other.Write([]byte("abc"))
		return err
	})
	got := make([]byte, 3)
	if _, err := io.ReadFull(c.Reader(), got); err != nil || string(got) != "abc" || pauses != 1 {
		t.Errorf("%q %v after %d pauses", got, err, pauses)
	}
	stop := errors.New("stop")
	c.OnPause(func() error { return stop })
	if _, err := c.Reader().ReadByte(); !errors.Is(err, stop) {
		t.Errorf("%v", err)
	}
	c.OnPause(func() error { return other.Close() })
	if _, err := c.Reader().ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("%v", err)
	}
	c2 := get(t, p, true)
	defer c2.Discard()
	c2.OnPause(func() error { c2.Interrupt(); return nil })
	if _, err := c2.Reader().ReadByte(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%v", err)
	}
}

func TestReadHead(t *testing.T) {
	srv := newPeer(t)
	p := NewPool(srv.addr, options(Options{HeadBytes: 200}))
	none := func(*http.Response) error { return nil }
	for _, c := range []struct {
		text string
		want error
	}{
		{"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", nil},
		{"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n", nil},
		{"HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 300) + "\r\n\r\n", ErrHeadTooLarge},
		{strings.Repeat("HTTP/1.1 102 Processing\r\n\r\n", informational+1), ErrBadResponse},
		{"HTTP/3.0 200 OK\r\n\r\n", ErrBadResponse},
		{"HTTP/1.1 600 Odd\r\n\r\n", ErrBadResponse},
	} {
		conn := get(t, p, true)
		other := <-srv.conns
		_, _ = io.WriteString(other, c.text)
		_ = other.Close()
		answer, err := conn.ReadHead(nil, none)
		if !errors.Is(err, c.want) || (err == nil) != (answer != nil) {
			t.Errorf("%.60q: %v, want %v", c.text, err, c.want)
		}
		if answer != nil {
			if rest, err := io.ReadAll(bufio.NewReader(answer.Body)); len(rest) > 0 || err != nil {
				t.Errorf("%q %v", rest, err)
			}
		}
		conn.Reset()
	}
	stop := errors.New("stop")
	conn := get(t, p, true)
	defer conn.Discard()
	other := <-srv.conns
	defer other.Close()
	_, _ = io.WriteString(other, "HTTP/1.1 103 Early Hints\r\n\r\n")
	if _, err := conn.ReadHead(nil, func(*http.Response) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("%v", err)
	}
	if n, err := conn.Write([]byte("abc")); n != 3 || err != nil || conn.BytesWritten() != 3 || conn.TCP() == nil {
		t.Errorf("%d %v %d", n, err, conn.BytesWritten())
	}
}

// The bound of open connections is one for all pools of a group: above it, none
// is kept for later, wherever it leads.
func TestGroup(t *testing.T) {
	a, b := newPeer(t), newPeer(t)
	g := options(Options{Idle: 9, IdleTime: time.Minute, Open: 2})
	first, second := NewPool(a.addr, g), NewPool(b.addr, g)
	var conns []*Conn
	for _, p := range []*Pool{first, first, second} {
		c, _, err := p.Get(t.Context(), await.Patience, true)
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
	}
	for i := len(conns) - 1; i >= 0; i-- {
		conns[i].Put(time.Now())
	}
	if _, idle := second.Open(); idle != 0 {
		t.Errorf("%d connections wait above the bound", idle)
	}
	if _, idle := first.Open(); idle != 2 {
		t.Errorf("%d connections wait within the bound, want 2", idle)
	}
	first.Relieve()
	if _, idle := first.Open(); idle != 0 || g.open.Load() != 0 {
		t.Errorf("after Relieve %d connections wait, and %d count as open", idle, g.open.Load())
	}
}

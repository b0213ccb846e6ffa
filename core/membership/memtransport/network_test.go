package memtransport

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

var (
	a = netip.MustParseAddrPort("10.0.0.1:1")
	b = netip.MustParseAddrPort("10.0.0.2:1")
	c = netip.MustParseAddrPort("10.0.0.3:1")
)

func listen(t *testing.T, n *Network, at netip.AddrPort) *Endpoint {
	t.Helper()
	e, err := n.Listen(at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return e
}

// hears sends from one endpoint to another and reports what came of it.
func hears(t *testing.T, from, to *Endpoint) bool {
	t.Helper()
	before := from.net.Counts().Delivered
	if err := from.WritePacket([]byte("x"), to.LocalAddr()); err != nil {
		t.Fatal(err)
	}
	<-time.After(time.Second)
	synctest.Wait()
	if from.net.Counts().Delivered == before {
		return false
	}
	buf := make([]byte, 10)
	n, who, err := to.ReadPacket(buf)
	if err != nil || string(buf[:n]) != "x" || who != from.LocalAddr() {
		t.Errorf("read %q from %v, %v", buf[:n], who, err)
	}
	return true
}

func TestDatagramsTakeTheirTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New(Config{Seed: 1, MinDelay: 5 * time.Millisecond, MaxDelay: 10 * time.Millisecond})
		x, y := listen(t, n, a), listen(t, n, b)
		for range 50 {
			start := time.Now()
			if err := x.WritePacket([]byte("x"), b); err != nil {
				t.Fatal(err)
			}
			if _, _, err := y.ReadPacket(make([]byte, 10)); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(start); took < 5*time.Millisecond || took > 10*time.Millisecond {
				t.Errorf("a datagram took %v, want 5 to 10 ms", took)
			}
		}
	})
}

func TestCutsPartitionsAndLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New(Config{Seed: 1})
		x, y, z := listen(t, n, a), listen(t, n, b), listen(t, n, c)
		n.Cut(a, b)
		if hears(t, x, y) || !hears(t, y, x) {
			t.Error("a cut is not in its direction only")
		}
		n.Heal()
		n.Partition([]netip.AddrPort{a}, []netip.AddrPort{b})
		if hears(t, x, y) || hears(t, y, x) || !hears(t, x, z) || !hears(t, z, y) {
			t.Error("a partition does not part its groups, or parts more")
		}
		n.Heal()
		if !hears(t, x, y) {
			t.Error("not healed")
		}
		n.SetLoss(1)
		if hears(t, x, y) {
			t.Error("heard although everything is lost")
		}
		n.SetLoss(0)
		if err := y.Close(); err != nil {
			t.Fatal(err)
		}
		if hears(t, x, y) {
			t.Error("a closed endpoint hears")
		}
		if got, want := n.Counts(), (Counts{Sent: 9, Delivered: 4, Lost: 1, Cut: 3, Unheard: 1}); got != want {
			t.Errorf("counts %+v, want %+v", got, want)
		}
	})
}

func TestStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New(Config{Seed: 1, MinDelay: time.Millisecond})
		x, y := listen(t, n, a), listen(t, n, b)
		near, err := x.DialStream(t.Context(), b)
		if err != nil {
			t.Fatal(err)
		}
		far, err := y.AcceptStream()
		if err != nil {
			t.Fatal(err)
		}
		if near.RemoteAddr().String() != b.String() || far.RemoteAddr().String() != a.String() || far.LocalAddr().String() != b.String() {
			t.Errorf("addresses %v %v %v", near.RemoteAddr(), far.RemoteAddr(), far.LocalAddr())
		}
		go func() { _, _ = near.Write([]byte("hello")); _ = near.Close() }()
		if got, err := io.ReadAll(far); string(got) != "hello" || err != nil {
			t.Errorf("read %q, %v", got, err)
		}
		_ = far.Close()

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		n.Cut(b, a)
		start := time.Now()
		if _, err := x.DialStream(ctx, b); err == nil || errors.Is(err, syscall.ECONNREFUSED) || time.Since(start) != time.Second {
			t.Errorf("dial across a cut: %v after %v, want to wait for the deadline", err, time.Since(start))
		}
		n.Heal()
		if err := y.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := x.DialStream(t.Context(), b); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("nobody listens: %v, want ECONNREFUSED", err)
		}
		if _, err := y.AcceptStream(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("accept after close: %v", err)
		}
		if _, _, err := y.ReadPacket(nil); !errors.Is(err, net.ErrClosed) {
			t.Errorf("read after close: %v", err)
		}
		if err := y.WritePacket(nil, a); !errors.Is(err, net.ErrClosed) {
			t.Errorf("write after close: %v", err)
		}
	})
}

func TestStreamAcrossACutLosesWhatIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New(Config{Seed: 1})
		x, y := listen(t, n, a), listen(t, n, b)
		near, err := x.DialStream(t.Context(), b)
		if err != nil {
			t.Fatal(err)
		}
		defer near.Close()
		far, err := y.AcceptStream()
		if err != nil {
			t.Fatal(err)
		}
		defer far.Close()
		n.Cut(a, b)
		if k, err := near.Write([]byte("lost")); k != 4 || err != nil {
			t.Errorf("write: %d, %v", k, err)
		}
		if err := far.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
			t.Fatal(err)
		}
		if k, err := far.Read(make([]byte, 10)); k != 0 || err == nil {
			t.Errorf("read %d bytes, %v, want a timeout", k, err)
		}
	})
}

func TestAddressInUse(t *testing.T) {
	n := New(Config{})
	listen(t, n, a)
	if _, err := n.Listen(a); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("second listen: %v, want EADDRINUSE", err)
	}
}

package reaper

import (
	"encoding/binary"
	"errors"
	"net"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/test/await"
	"github.com/fairlead/fairlead/test/netns"
)

func TestMain(m *testing.M) { os.Exit(netns.Main(m)) }

func TestRateIsOneThatKernelsHave(t *testing.T) {
	for _, c := range []struct {
		jiffies uint64
		d       time.Duration
		want    float64
	}{
		{100, time.Second, 100},
		{251, time.Second, 250},
		{298, time.Second, 300},
		{1010, time.Second, 1000},
		{26, 100 * time.Millisecond, 250},
		{1, 10 * time.Millisecond, 0},
		{0, time.Second, 100},
	} {
		if got := Rate(c.jiffies, c.d); got != c.want {
			t.Errorf("%d jiffies in %v: %v per second, want %v", c.jiffies, c.d, got, c.want)
		}
	}
}

// TestOnlyTheDoomedEnd: a socket ends if its storage names a doomed endpoint, and
// not for any other reason, whichever way it is done.
func TestOnlyTheDoomedEnd(t *testing.T) {
	netns.Isolated(t)
	t.Run("iterator", func(t *testing.T) {
		testDoom(t, func(sockets *ebpf.Map) (Reaper, error) { return NewIterator(sockets) })
	})
	t.Run("lister", func(t *testing.T) {
		testDoom(t, func(sockets *ebpf.Map) (Reaper, error) { return NewLister(sockets) })
	})
}

func testDoom(t *testing.T, open func(*ebpf.Map) (Reaper, error)) {
	t.Helper()
	spec, err := bpf.LoadSocket()
	if err != nil {
		t.Fatal(err)
	}
	sockets, err := ebpf.NewMap(spec.Maps[bpf.SocketMapSockets])
	if err != nil {
		t.Fatal(err)
	}
	defer sockets.Close()
	r, err := open(sockets)
	if err != nil {
		t.Skipf("skipped: this kernel cannot end sockets: %v", err)
	}
	defer r.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	// led is a connection that is marked as led to an endpoint; 0: it is not.
	led := func(service uint32, endpoint uint64) *net.TCPConn {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		raw, err := c.(*net.TCPConn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		value := make([]byte, 48)
		binary.NativeEndian.PutUint32(value[36:], service)
		binary.NativeEndian.PutUint64(value[40:], endpoint)
		if service != 0 {
			if e := raw.Control(func(fd uintptr) { err = sockets.Put(uint32(fd), value) }); errors.Join(e, err) != nil {
				t.Fatal(e, err)
			}
		}
		return c.(*net.TCPConn)
	}
	doomed, sameID, otherID, free := led(7, 1), led(8, 1), led(7, 2), led(0, 0)
	ended, err := r.Pass([]Doom{{Service: 7, Endpoint: 1}, {Service: 7, Endpoint: 1, Silent: time.Hour}})
	if err != nil || ended != 1 {
		t.Errorf("%d connections were ended, %v; want 1", ended, err)
	}
	if _, err := doomed.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNABORTED) {
		t.Errorf("the doomed one: %v, want ECONNABORTED", err)
	}
	for what, c := range map[string]*net.TCPConn{"another service's": sameID, "another endpoint's": otherID, "one that nobody led": free} {
		if _, err := c.Write([]byte("x")); err != nil {
			t.Errorf("%s was ended: %v", what, err)
		}
	}
	spoke := led(9, 1)
	pass := func(silent time.Duration) int {
		t.Helper()
		ended, err := r.Pass([]Doom{{Service: 9, Endpoint: 1, Silent: silent}})
		if err != nil {
			t.Fatal(err)
		}
		return ended
	}
	if n := pass(time.Hour); n != 0 {
		t.Errorf("%d connections were ended that heard something within the hour", n)
	}
	netns.Eventually(t, await.Patience, func() bool { return pass(100*time.Millisecond) == 1 }, "silence")
	if _, err := spoke.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNABORTED) {
		t.Errorf("after silence: %v, want ECONNABORTED", err)
	}
	if it, is := r.(*Iterator); is {
		var k key
		var v value
		for each := it.doomed.Iterate(); each.Next(&k, &v); {
			t.Errorf("%+v stays doomed", k)
		}
	}
}

// TestFirstThreadIsLeftAlone: /proc shows its namespaces as those of the process,
// and it does not die with what was changed about it.
func TestFirstThreadIsLeftAlone(t *testing.T) {
	// Everything waits on threads of its own, so the first one is free now and then.
	for range 200 {
		err := <-onOwnThread(func() error {
			if unix.Gettid() == unix.Getpid() {
				t.Error("it ran on the first thread")
			}
			return os.ErrClosed
		})
		if !errors.Is(err, os.ErrClosed) {
			t.Fatal(err)
		}
		runtime.Gosched()
	}
}

package ebpf

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/test/await"
	"github.com/fairlead/fairlead/test/scale"
)

// accounted counts the objects of kernel memory that are charged to somebody, which
// is where storage of sockets comes from: no map says how many it has.
func accounted(t *testing.T) (n int) {
	t.Helper()
	text, err := os.ReadFile("/proc/slabinfo")
	if err != nil {
		t.Skipf("skipped: this kernel does not tell of its memory: %v", err)
	}
	for line := range strings.Lines(string(text)) {
		var cache string
		var active int
		if _, err := fmt.Sscan(line, &cache, &active); err == nil && strings.HasPrefix(cache, "kmalloc-cg-") {
			n += active
		}
	}
	return n
}

// TestStorageGoesWithSockets: a million sockets are led, connected and unconnected,
// over UDP and TCP, and closed: none has storage then, and once the services are gone
// the maps hold the provider's own only.
func TestStorageGoesWithSockets(t *testing.T) {
	w := newWorld(t)
	w.good(w.apply(
		service("tcp", vip("10.200.9.1:80", dataplane.TCP), listenTCP(t, "127.0.0.1:0", "a")),
		service("four", vip("10.200.9.1:53", dataplane.UDP), listenUDP(t, "127.0.0.1:0", "a")),
		service("six", vip("[fd00:200::9]:53", dataplane.UDP), listenUDP(t, "[::1]:0", "a")),
	))
	four, six, tcp := sockaddr("10.200.9.1:53"), sockaddr("[fd00:200::9]:53"), sockaddr("10.200.9.1:80")
	// one opens a socket of the nth kind, and has it led.
	one := func(n int) int {
		t.Helper()
		family, kind, to := unix.AF_INET, unix.SOCK_DGRAM, four
		switch {
		case n%100 == 0:
			kind, to = unix.SOCK_STREAM, tcp
		case n%4 == 1:
			family, to = unix.AF_INET6, six
		}
		fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		if n%2 == 0 || kind == unix.SOCK_STREAM {
			err = unix.Connect(fd, to)
		} else {
			err = unix.Sendto(fd, nil, unix.MSG_DONTWAIT, to)
		}
		if err != nil {
			t.Fatalf("socket %d: %v", n, err)
		}
		if kind == unix.SOCK_STREAM { // a reset, so that no port waits
			_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
		}
		return fd
	}
	const some, noise = 5000, 20_000 // objects that others may have come to meanwhile
	var open []int
	before := accounted(t)
	for n := range some {
		open = append(open, one(n))
	}
	grown := accounted(t) - before
	for _, fd := range open {
		unix.Close(fd)
	}
	if grown < some { // at least one for each
		t.Skipf("skipped: storage of sockets cannot be told from other memory here: %d sockets took %d objects", some, grown)
	}
	total := scale.N(1_000_000)
	// The kernel counts the whole machine's memory: what others have come to meanwhile is
	// not there a second time, and what sockets leave behind is.
	for try := 1; ; try++ {
		before = accounted(t)
		for n := range total {
			unix.Close(one(n))
		}
		left, until := 0, time.Now().Add(await.Patience/3)
		goes := func() bool { left = accounted(t) - before; return left <= min(total/10, noise) }
		await.For(t, "storage to go with the sockets, or not", func() bool { return goes() || time.Now().After(until) })
		if goes() {
			break
		}
		if try == 4 {
			t.Fatalf("%d objects of memory are left of %d sockets", left, total)
		}
	}
	w.good(w.apply())
	if err := w.compare(); err != nil {
		t.Error(err)
	}
	t.Logf("%d open sockets took %d objects; of %d closed ones %d are left", some, grown, total, accounted(t)-before)
}

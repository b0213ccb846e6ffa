package proxy

import (
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// fill makes the queue of a listener small and fills it, so that further
// connects get no answer. It returns the address.
func fill(t *testing.T, l net.Listener) string {
	t.Helper()
	raw, err := l.(*net.TCPListener).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Control(func(fd uintptr) { err = unix.Listen(int(fd), 0) }); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	late := 0
	for range 16 {
		c, err := net.DialTimeout("tcp", l.Addr().String(), 50*time.Millisecond)
		if err == nil {
			t.Cleanup(func() { _ = c.Close() })
			continue
		}
		if late++; late == 3 { // one may be late as the machine is busy
			return l.Addr().String()
		}
	}
	t.Fatal("the queue never got full")
	return ""
}

// ended reports whether the other side has ended its connection, behind bytes
// that were not read.
func ended(c *net.TCPConn) bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return true
	}
	gone := false
	err = raw.Control(func(fd uintptr) {
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		_, _ = unix.Poll(poll, 0)
		gone = poll[0].Revents&(unix.POLLRDHUP|unix.POLLHUP|unix.POLLERR) != 0
	})
	return err != nil || gone
}

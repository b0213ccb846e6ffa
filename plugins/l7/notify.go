package l7

import (
	"fmt"
	"log/slog"
	"net"
	"strings"

	"golang.org/x/sys/unix"
)

// notifier tells systemd how the process fares: the protocol of sd_notify(3).
type notifier struct {
	path string // of the socket; "": nobody listens
	log  *slog.Logger
}

func newNotifier(environ []string, log *slog.Logger) *notifier {
	n := &notifier{log: log}
	for _, entry := range environ {
		if path, ok := strings.CutPrefix(entry, "NOTIFY_SOCKET="); ok {
			n.path = path
		}
	}
	return n
}

func (n *notifier) ready()    { n.send("READY=1") }
func (n *notifier) stopping() { n.send("STOPPING=1") }

// reloading needs the time, so that systemd can tell one reload from another.
func (n *notifier) reloading() {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err == nil {
		n.send(fmt.Sprintf("RELOADING=1\nMONOTONIC_USEC=%d", now.Nano()/1000))
	}
}

// send writes one datagram. A name that begins with @ is abstract, as in Go.
func (n *notifier) send(state string) {
	if n.path == "" {
		return
	}
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: n.path, Net: "unixgram"})
	if err == nil {
		_, err = c.Write([]byte(state))
		_ = c.Close()
	}
	if err != nil {
		n.log.Warn("the service manager was not told", "state", state, "error", err)
	}
}

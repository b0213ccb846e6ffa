package pluginhost

import (
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/fairlead/fairlead/test/await"
)

// Who ends between the look at a socket and the connection is not waited for.
func TestConnectionToNobody(t *testing.T) {
	socket := filepath.Join(shortDir(t), "x.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false) // as a process that is killed
	if vacant(t.Context(), socket) {
		t.Error("somebody listens there")
	}
	_ = l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
	defer cancel()
	for _, path := range []string{socket, socket + ".never"} {
		conn, err := dial("x", path, new(atomic.Bool))
		if err != nil {
			t.Fatal(err)
		}
		if err := connected(ctx, conn, path); !errors.Is(err, errEnded) {
			t.Errorf("%s: %v", path, err)
		}
		_ = conn.Close()
	}
}

// What breaks as soon as it is made is made anew.
func TestConnectionThatBreaksAtOnce(t *testing.T) {
	settings := []byte{0, 0, 0, 4, 0, 0, 0, 0, 0} // an empty frame of these: HTTP/2 is spoken here
	for range 20 {
		socket := filepath.Join(shortDir(t), "x.sock")
		l, err := net.Listen("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			for n := 0; ; n++ {
				c, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = c.Write(settings)
				if n == 0 {
					_ = c.Close()
					continue
				}
				go func() { _, _ = io.Copy(io.Discard, c) }()
			}
		}()
		ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
		conn, err := dial("x", socket, new(atomic.Bool))
		if err != nil {
			t.Fatal(err)
		}
		if err := connected(ctx, conn, socket); err != nil {
			t.Error(err)
		}
		cancel()
		_ = conn.Close()
		_ = l.Close()
	}
}

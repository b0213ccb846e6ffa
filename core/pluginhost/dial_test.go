package pluginhost

import (
	"context"
	"errors"
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

package pluginhost

import (
	"net"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
)

// Something else than a provider listens at the socket, such as an agent's API.
func TestStrangerAtTheSocketIsNamed(t *testing.T) {
	r := newRig(t, "good")
	socket := filepath.Join(shortDir(t), "x.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
	r.cfg.Settings = map[string]Settings{"good": {Values: map[string]any{keySocket: socket}}}
	h := r.start()
	said := waitState(t, h, "good", StateCrashLoop).Reason
	for _, want := range []string{socket + ": good does not answer Info", "see what listens there, or correct plugins.good.socket"} {
		if !strings.Contains(said, want) {
			t.Errorf("%q lacks %q", said, want)
		}
	}
}

package pluginhost

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"github.com/hashicorp/go-plugin/runner"

	"github.com/fairlead/fairlead/dataplane/sdk/handshake"
)

// shake starts c and lets go-plugin shake hands with it; it returns the path of
// the socket. The process is ours and not go-plugin's: that one notices an exit
// only when all pipes are closed, and waits for a stopped process for ever.
func shake(c *child, timeout time.Duration) (socket string, err error) {
	client := plugin.NewClient(&plugin.ClientConfig{
		HandshakeConfig: plugin.HandshakeConfig{
			ProtocolVersion: handshake.ProtocolVersion, MagicCookieKey: handshake.CookieKey, MagicCookieValue: handshake.CookieValue,
		},
		VersionedPlugins: map[int]plugin.PluginSet{handshake.ProtocolVersion: {}},
		RunnerFunc: func(_ hclog.Logger, spec *exec.Cmd, _ string) (runner.Runner, error) {
			return &gopluginRunner{child: c, environ: spec.Env}, nil
		},
		// go-plugin makes a directory of its own here, which nobody uses and
		// which goes with the child's.
		UnixSocketConfig: &plugin.UnixSocketConfig{TempDir: c.dir},
		StartTimeout:     timeout,
		AllowedProtocols: []plugin.Protocol{plugin.ProtocolGRPC},
		Logger:           hclog.NewNullLogger(),
		SkipHostEnv:      true,
	})
	addr, err := client.Start()
	if err != nil {
		return "", err
	}
	return addr.String(), nil
}

// gopluginRunner lets go-plugin see a child.
type gopluginRunner struct {
	child   *child
	environ []string // what go-plugin adds
}

var _ runner.Runner = (*gopluginRunner)(nil)

// Start starts the process.
func (r *gopluginRunner) Start(context.Context) error { return r.child.exec(r.environ) }

// Wait waits for its end, or until we let go of it.
func (r *gopluginRunner) Wait(context.Context) error {
	select {
	case <-r.child.proc.exited:
	case <-r.child.proc.free:
	}
	return nil
}

// Kill ends it.
func (r *gopluginRunner) Kill(context.Context) error { r.child.proc.kill(); return nil }

// Stdout gives the line of the handshake, and ends with the process.
func (r *gopluginRunner) Stdout() io.ReadCloser { return r.child.line }

// Stderr gives nothing: we read it ourselves.
func (r *gopluginRunner) Stderr() io.ReadCloser { return io.NopCloser(strings.NewReader("")) }

// Name is the path.
func (r *gopluginRunner) Name() string { return r.child.image.path }

// ID is the pid.
func (r *gopluginRunner) ID() string { return strconv.Itoa(r.child.proc.pid) }

// Diagnose has nothing to add: we explain failures ourselves.
func (r *gopluginRunner) Diagnose(context.Context) string { return "" }

// PluginToHost refuses sockets that others could reach.
func (r *gopluginRunner) PluginToHost(network, address string) (string, string, error) {
	if network != "unix" {
		return "", "", fmt.Errorf("it listens on %s %s: want a unix socket in $%s", network, address, handshake.EnvSocketDir)
	}
	return network, address, nil
}

// HostToPlugin has nothing to translate.
func (r *gopluginRunner) HostToPlugin(network, address string) (string, string, error) {
	return network, address, nil
}

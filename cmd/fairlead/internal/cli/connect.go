package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/core/api/client"
	"github.com/fairlead/fairlead/dataplane/sdk/handshake"
)

const (
	// defaultSocket is the default of api.socket.
	defaultSocket = "/run/fairlead/api.sock"
	// callTimeout bounds a call that an idle agent answers in a millisecond.
	callTimeout = 10 * time.Second
	terminate   = syscall.SIGTERM
)

// connect dials the agent that --api or FAIRLEAD_API names, else the one at
// the default socket, else the first one of `fairlead dev`, and then says so.
func (a *app) connect(ctx context.Context) (*client.Client, error) {
	if target := a.target(); target != "" {
		return a.dial(ctx, target)
	}
	c, err := client.Dial(ctx, defaultSocket)
	if err == nil || !errors.Is(err, client.ErrNoAgent) && !errors.Is(err, client.ErrDenied) {
		return c, err
	}
	dir := devDir(a.env)
	if checkOwned(dir) != nil {
		return nil, err // not ours, or not there
	}
	target := devSocket(dir)
	dev, devErr := client.Dial(ctx, target)
	if devErr != nil {
		return nil, err
	}
	why := "no agent at"
	if errors.Is(err, client.ErrDenied) {
		why = "this user may not open"
	}
	fmt.Fprintf(a.env.Stderr, "fairlead: %s %s, asking the agent of `fairlead dev` at %s\n", why, defaultSocket, target)
	return dev, nil
}

func (a *app) target() string {
	if a.api != "" {
		return a.api
	}
	return a.env.getenv("FAIRLEAD_API")
}

// call connects, runs f with a bounded context and closes.
func (a *app) call(ctx context.Context, f func(context.Context, *client.Client) error) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	return f(ctx, c)
}

// devDir is where `fairlead dev` keeps its agents.
func devDir(env Env) string {
	if dir := env.getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "fairlead-dev")
	}
	return filepath.Join(handshake.TempRoot(), fmt.Sprintf("fairlead-dev-%d", os.Getuid()))
}

// devSocket is the socket of the first agent of `fairlead dev`.
func devSocket(dir string) string { return filepath.Join(dir, "n1", "api.sock") }

// checkOwned refuses a directory that somebody else could have prepared: the
// fallback is in a place where everybody may write.
func checkOwned(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || !ok || int(stat.Uid) != os.Getuid() || info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("%s is not a directory that only this user may write: remove it, or set XDG_RUNTIME_DIR", dir)
	}
	return nil
}

// awaitGone waits until nobody listens at target.
func awaitGone(ctx context.Context, target string) error {
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	network, address := client.Address(target)
	for {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		if err != nil && ctx.Err() == nil {
			return nil
		}
		if err == nil {
			_ = conn.Close()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the agent at %s left, but still runs", target)
		case <-poll.C:
		}
	}
}

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/core/api/client"
)

func (a *app) devCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "dev",
		Short: "Run three agents on this host to try things with",
		Long: `Run three agents on loopback until Ctrl-C, print the members and follow the
transitions. Other commands find these agents by themselves when no agent runs
at the default socket. Everything is in $XDG_RUNTIME_DIR/fairlead-dev (or
fairlead-dev-UID in the directory for temporary files) and is removed in the end.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := a.signalled(cmd.Context())
			defer cancel()
			return a.runDev(ctx)
		},
	}
}

func (a *app) runDev(ctx context.Context) error {
	dir := devDir(a.env)
	unlock, err := lockDevDir(dir)
	if err != nil {
		return err
	}
	defer unlock()

	fmt.Fprintf(a.env.Stderr, "starting %d agents in %s …\n", localNodes, dir)
	cluster, err := startLocalCluster(ctx, a.env, dir)
	defer cluster.stop()
	if err != nil {
		if errors.Is(err, context.Canceled) {
			return nil
		}
		return err
	}
	members, err := cluster.members(ctx)
	if err != nil {
		return err
	}
	if err := a.printDevMembers(cluster, members); err != nil {
		return err
	}

	api, err := client.Dial(ctx, cluster.nodes[0].socket)
	if err != nil {
		return err
	}
	defer api.Close()
	go cluster.tellEnds(ctx)
	err = a.printEvents(ctx, api, 0, true, a.env.Now())
	if ctx.Err() != nil {
		fmt.Fprintln(a.env.Stderr, "stopping …")
		return nil
	}
	return err
}

func (a *app) printDevMembers(c *localCluster, members []client.Member) error {
	if a.output == "json" {
		return printJSON(a.env.Stdout, membersJSON(members))
	}
	if err := printMembers(a.env.Stdout, a.env, members); err != nil {
		return err
	}
	last := c.nodes[len(c.nodes)-1]
	_, err := fmt.Fprintf(a.env.Stdout, `
Try in another terminal:
  fairlead members
  kill -9 %d        # %s fails; watch below
  fairlead leave --api %s
Logs: %s. Ctrl-C stops all.

`, last.cmd.Process.Pid, last.name, c.nodes[1].socket, filepath.Join(c.dir, "n*", "agent.log"))
	return err
}

// tellEnds says when an agent ends before it is stopped.
func (c *localCluster) tellEnds(ctx context.Context) {
	for _, n := range c.nodes {
		go func() {
			select {
			case <-ctx.Done():
			case <-n.done:
				if ctx.Err() == nil {
					fmt.Fprintf(c.env.Stderr, "agent %s (pid %d) ended: %v\n", n.name, n.cmd.Process.Pid, exitReason(n.err))
				}
			}
		}()
	}
}

// lockDevDir makes the directory of `fairlead dev`, takes it for this process
// and empties it of what a killed one left. The returned function removes it.
func lockDevDir(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("dev: %w: set XDG_RUNTIME_DIR to a directory of your own", err)
	}
	if err := checkOwned(dir); err != nil {
		return nil, fmt.Errorf("dev: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("dev: %w", err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = lock.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("dev: already runs in %s: use its agents (fairlead members --api %s), or stop it first", dir, devSocket(dir))
		}
		return nil, fmt.Errorf("dev: lock %s: %w", dir, err)
	}
	if !sameFile(lock) {
		_ = lock.Close()
		return nil, fmt.Errorf("dev: another one is just stopping in %s: try again", dir)
	}
	remove := func() {
		for i := range localNodes {
			_ = os.RemoveAll(filepath.Join(dir, fmt.Sprintf("n%d", i+1)))
		}
	}
	remove()
	return func() {
		remove()
		_ = os.Remove(lock.Name()) // who still waits for it sees that it is gone: sameFile
		_ = os.Remove(dir)
		_ = lock.Close()
	}, nil
}

// sameFile reports whether f is still what its name leads to.
func sameFile(f *os.File) bool {
	opened, err := f.Stat()
	if err != nil {
		return false
	}
	named, err := os.Lstat(f.Name())
	return err == nil && os.SameFile(opened, named)
}

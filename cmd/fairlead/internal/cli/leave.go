package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/core/api/client"
	"github.com/fairlead/fairlead/core/membership"
)

const (
	// leaveTimeout is above any sensible shutdown_timeout: the agent bounds its
	// own stop, this bounds the wait for an agent that hangs.
	leaveTimeout = 2 * time.Minute
	// defaultHold is enough for a package to be unpacked and an agent to start.
	defaultHold = 15 * time.Second
	maxHold     = membership.MaxHold
)

func (a *app) leaveCommand() *cobra.Command {
	var restart, force bool
	var hold time.Duration
	cmd := &cobra.Command{
		Use:   "leave",
		Short: "Make the node leave its cluster and stop its agent",
		Long: `Make the node say left, so that the others do not take it for failed, and stop
its agent. Returns when the agent no longer answers. A restarted agent rejoins.

A server of the store is removed from the servers first: it hands its leadership over,
another one takes its place, and what it has is not needed any more. That is refused if
nobody takes its place or it is the last voter; with --force the others go on with
fewer. Ended early, it stays. A static set (raft.peers) stays as it is, and so do the
servers when the agent is stopped by SIGTERM.

With --restart the node announces that it will be back within --hold, at most
30s, in place of its good-bye: meanwhile the others keep it and its endpoints,
and nobody accuses it. Use it to upgrade or to restart an agent whose services
and plugins go on without it (on_host_loss: serve). It is for one start: a node
that did not come back in time is found to have failed, like any other.

    fairlead leave --restart --hold 20s && systemctl restart fairlead`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case hold < time.Millisecond || hold > maxHold:
				return usagef(cmd, "--hold is %v: want 1ms to %v", hold, maxHold)
			case !restart && cmd.Flags().Changed("hold"):
				return usagef(cmd, "--hold goes with --restart: a node that leaves is not waited for")
			case restart && force:
				return usagef(cmd, "--force does not go with --restart: who comes back stays a server")
			case !restart:
				hold = 0
			}
			return a.leave(cmd.Context(), hold, force)
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "leave also if the servers of the store are fewer then than they shall be")
	cmd.Flags().BoolVar(&restart, "restart", false, "announce a restart in place of a good-bye")
	cmd.Flags().DurationVar(&hold, "hold", defaultHold, "with --restart, how soon the agent is back, at most 30s")
	return cmd
}

// leave ends the agent, for good or, with a hold, for a restart.
func (a *app) leave(ctx context.Context, hold time.Duration, force bool) error {
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	out := struct {
		Name  string `json:"name"`
		State string `json:"state"`
		Hold  string `json:"hold,omitempty"`
		// Server is what became of its part in the store.
		Server string `json:"server,omitempty"`
	}{State: "left"}
	said := "left its cluster and its agent stopped"
	end := func(ctx context.Context) (name string, err error) {
		name, out.Server, err = c.Depart(ctx, force)
		return name, err
	}
	if hold > 0 {
		out.State, out.Hold = "restarting", hold.String()
		said = fmt.Sprintf("announced a restart and its agent stopped: start it again within %v", hold)
		end = func(ctx context.Context) (string, error) { return c.Restart(ctx, hold) }
	}
	out.Name, err = end(ctx)
	if (errors.Is(err, client.ErrNoAgent) || errors.Is(err, client.ErrStopped)) && awaitGone(ctx, c.Target()) == nil {
		return fmt.Errorf("the agent at %s was stopping already, by another's word: fairlead members on another node shows whether it left or restarts", c.Target())
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("the node did not leave within %v, and stays: `fairlead raft status` says what its removal from the servers waits for, --force does not wait for another server: %w", leaveTimeout, err)
	}
	if err != nil {
		return err
	}
	if err := awaitGone(ctx, c.Target()); err != nil {
		return err
	}
	if a.output == "json" {
		return printJSON(a.env.Stdout, out)
	}
	if out.Server != "" {
		said += "; " + printable(out.Server)
	}
	_, err = fmt.Fprintf(a.env.Stdout, "%s %s\n", printable(out.Name), said)
	return err
}

package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
)

// leaveTimeout is above any sensible shutdown_timeout: the agent bounds its
// own stop, this bounds the wait for an agent that hangs.
const leaveTimeout = 2 * time.Minute

func (a *app) leaveCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "leave",
		Short: "Make the node leave its cluster and stop its agent",
		Long: `Make the node say left, so that the others do not take it for failed, and stop
its agent. Returns when the agent no longer answers. A restarted agent rejoins.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), leaveTimeout)
			defer cancel()
			c, err := a.connect(ctx)
			if err != nil {
				return err
			}
			defer c.Close()
			name, err := c.Leave(ctx)
			if err != nil {
				return err
			}
			if err := awaitGone(ctx, c.Target()); err != nil {
				return err
			}
			if a.output == "json" {
				return printJSON(a.env.Stdout, struct {
					Name  string `json:"name"`
					State string `json:"state"`
				}{name, "left"})
			}
			_, err = fmt.Fprintf(a.env.Stdout, "%s left its cluster and its agent stopped\n", printable(name))
			return err
		},
	}
}

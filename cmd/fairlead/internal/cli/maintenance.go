package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/core/api/client"
)

func (a *app) maintenanceCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "maintenance",
		Short: "Take instances of this node out of service, or put them back",
		Long: `Take instances of this node out of service, or put them back: all of them, those of
a service, or one. Meanwhile they are draining: they get no new connections, and
those that they have may go on for the service's drain time. It outlives a restart
of the agent; "fairlead endpoints NAME" shows it.`,
	}
	group(cmd)
	cmd.AddCommand(
		a.maintenanceOf("on", true, "Take instances of this node out of service"),
		a.maintenanceOf("off", false, "Put instances of this node back into service"),
	)
	return cmd
}

func (a *app) maintenanceOf(word string, on bool, short string) *cobra.Command {
	var service, instance string
	cmd := &cobra.Command{
		Use:     word,
		Short:   short,
		Example: "  fairlead maintenance " + word + " --service web --instance web-1",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if instance != "" && service == "" {
				return usagef(cmd, "--instance names no instance without --service: add it")
			}
			return a.call(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				changed, err := c.Maintenance(ctx, on, service, instance)
				if err != nil {
					return err
				}
				if a.output == "json" {
					return printJSON(a.env.Stdout, struct {
						On      bool `json:"on"`
						Changed bool `json:"changed"`
					}{on, changed})
				}
				said := "maintenance is " + word
				if !changed {
					said = "maintenance was " + word + " already, nothing changed"
				}
				_, err = fmt.Fprintln(a.env.Stdout, said)
				return err
			})
		},
	}
	cmd.Flags().StringVar(&service, "service", "", "`NAME` of the service; without it all instances of this node")
	cmd.Flags().StringVar(&instance, "instance", "", "`ID` of the instance; without it all of the service")
	completeBy(cmd, "service", a.completeService)
	completeBy(cmd, "instance", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return a.completeInstance(service)
	})
	return cmd
}

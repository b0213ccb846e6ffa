package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/core/api/client"
)

func (a *app) deregisterCommand() *cobra.Command {
	var instance string
	cmd := &cobra.Command{
		Use:   "deregister NAME",
		Short: "Take back a service, or an instance, that was registered",
		Long: `Take back a service, NAME or NAMESPACE/NAME, that was registered on this node with
all its instances, or one instance. The last instance takes the service with it.
What the configuration or a file of services_dir has is removed there.`,
		Example:           "  fairlead deregister web\n  fairlead deregister web --instance web-1",
		ValidArgsFunction: first(a.completeService),
		Args:              oneArg("the name of a service"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("instance") && instance == "" {
				return usagef(cmd, "--instance is empty: name an instance, or leave it out for all")
			}
			return a.call(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				gone, err := c.Deregister(ctx, args[0], instance)
				if err != nil {
					return err
				}
				if a.output == "json" {
					return printJSON(a.env.Stdout, struct {
						Service   string   `json:"service"`
						Instances []string `json:"instances"`
					}{args[0], append([]string{}, gone...)})
				}
				what := ""
				if len(gone) > 0 {
					what = ": " + strings.Join(gone, ", ")
				}
				_, err = fmt.Fprintf(a.env.Stdout, "deregistered %s%s\n", args[0], what)
				return err
			})
		},
	}
	cmd.Flags().StringVar(&instance, "instance", "", "`ID` of the instance to take back; without it all of them")
	completeBy(cmd, "instance", func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		return a.completeInstance(strings.Join(args, " "))
	})
	return cmd
}

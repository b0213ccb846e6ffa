package cli

import "github.com/spf13/cobra"

func (a *app) pluginCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "plugin",
		Short: "Look at data planes and test them",
		Long: `Look at data planes and test them.

A data plane is a program fairlead-dataplane-NAME beside this one, or in a
directory of FAIRLEAD_PLUGIN_DIRS. See docs/plugins.md for how to write one.`,
	}
	group(cmd)
	cmd.AddCommand(a.pluginConformCommand())
	return cmd
}

package cli

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"
)

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of this program",
		Args:  noArgs,
		RunE: func(*cobra.Command, []string) error {
			platform := runtime.GOOS + "/" + runtime.GOARCH
			if a.output == "json" {
				return printJSON(a.env.Stdout, map[string]string{
					"version": a.env.Version, "go_version": runtime.Version(), "platform": platform,
				})
			}
			_, err := fmt.Fprintf(a.env.Stdout, "fairlead %s (%s, %s)\n", a.env.Version, runtime.Version(), platform)
			return err
		},
	}
}

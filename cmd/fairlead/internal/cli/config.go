package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/core/api/client"
)

// errFailed fails a command that has already said why.
var errFailed = errors.New("failed")

// settingJSON is one entry of `config show -o json`.
type settingJSON struct {
	Key    string `json:"key"`
	Value  string `json:"value"`
	Origin string `json:"origin"`
}

// validationJSON is the answer of `config validate -o json`.
type validationJSON struct {
	OK       bool     `json:"ok"`
	Errors   []string `json:"errors"`
	Warnings []string `json:"warnings"`
}

func (a *app) configCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "config", Short: "Show or check a configuration"}
	group(cmd)
	cmd.AddCommand(a.configShowCommand(), a.configValidateCommand())
	return cmd
}

func (a *app) configShowCommand() *cobra.Command {
	var file string
	var origin bool
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Show every key with its value",
		Long: `Show every key of the configuration with its value: that of the running agent,
or with --config what an agent started with that file and this environment would
have. Secrets are masked.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file == "" {
				return a.call(cmd.Context(), func(ctx context.Context, c *client.Client) error {
					list, err := c.Config(ctx)
					if err != nil {
						return err
					}
					return a.printSettings(list, origin)
				})
			}
			loaded, err := a.load(file, nil)
			if err != nil {
				return err
			}
			var list []client.Setting
			for _, e := range loaded.Config.Show(loaded.Origins) {
				list = append(list, client.Setting{Key: e.Key, Value: e.Value, Origin: e.Origin})
			}
			return a.printSettings(list, origin)
		},
	}
	cmd.Flags().StringVar(&file, "config", "", "show what this `FILE` would give instead of asking the agent")
	cmd.Flags().BoolVar(&origin, "origin", false, "show where each value came from")
	return cmd
}

func (a *app) printSettings(list []client.Setting, origin bool) error {
	if a.output == "json" {
		out := make([]settingJSON, len(list))
		for i, s := range list {
			out[i] = settingJSON(s)
		}
		return printJSON(a.env.Stdout, out)
	}
	head := cells("KEY", "VALUE")
	if origin {
		head = cells("KEY", "VALUE", "ORIGIN")
	}
	rows := [][]cell{head}
	for _, s := range list {
		row := cells(s.Key, printable(s.Value))
		if origin {
			row = append(row, cell{text: printable(s.Origin)})
		}
		rows = append(rows, row)
	}
	return table(a.env.Stdout, a.env.colour(), rows)
}

func (a *app) configValidateCommand() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "validate [FILE]",
		Short: "Check a configuration file and report all errors",
		Long: `Check a configuration file together with the FAIRLEAD_* variables of this
environment, without starting anything. Without FILE it checks ` + defaultConfig + `.`,
		Args: maxArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				if file != "" {
					return usagef(cmd, "%s takes one file, got %q and %q", cmd.CommandPath(), file, args[0])
				}
				file = args[0]
			}
			loaded, err := a.load(file, nil)
			result := validationJSON{OK: err == nil, Errors: lines(err), Warnings: append([]string{}, loaded.Warnings...)}
			if _, gone := os.Stat(defaultConfig); file == "" && errors.Is(gone, fs.ErrNotExist) {
				result.Warnings = append(result.Warnings, "there is no "+defaultConfig+": only the environment was checked, name a file to check that")
			}
			return a.printValidation(result)
		},
	}
	cmd.Flags().StringVar(&file, "config", "", "the same as the argument `FILE`")
	return cmd
}

func (a *app) printValidation(v validationJSON) error {
	if a.output == "json" {
		if err := printJSON(a.env.Stdout, v); err != nil {
			return err
		}
	} else {
		for _, w := range v.Warnings {
			fmt.Fprintf(a.env.Stderr, "warning: %s\n", w)
		}
		for _, e := range v.Errors {
			fmt.Fprintln(a.env.Stderr, e)
		}
		if v.OK {
			fmt.Fprintln(a.env.Stdout, "ok")
		}
	}
	if !v.OK {
		return errFailed
	}
	return nil
}

// lines splits what errors.Join put together.
func lines(err error) []string {
	if err == nil {
		return []string{}
	}
	return strings.Split(err.Error(), "\n")
}

package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/dataplane/conformance"
	"github.com/fairlead/fairlead/dataplane/conformance/l4"
)

func (a *app) pluginConformCommand() *cobra.Command {
	var target conformance.Target
	var options conformance.Options
	var traffic trafficFlags
	var config string
	var list bool
	cmd := &cobra.Command{
		Use:   "conform (--exec PATH [-- ARGS…] | --endpoint unix:PATH)",
		Short: "Test whether a data plane keeps the contract",
		Long: `Test whether a data plane keeps the contract, in any language: over its socket,
as an agent would, and as no agent should.

With --exec it is started, killed and started again; ARGS come before the
suite's own. Of the environment it gets PATH, HOME and TMPDIR only; to set more,
use --exec env -- NAME=VALUE PATH. With --endpoint one is tested that runs
already, without the checks that need a process of their own. It must not be in
use: what it has programmed is replaced and at last removed. One that alters the
kernel belongs into a network namespace.

With --traffic a plane of layer 4 is asked where connections and datagrams go,
against real servers. That needs root, and namespaces for it are made and removed;
what the plane is not made for is excluded by --without, with a reason.

Exit codes: 0 all checks passed or were skipped, 1 some failed, 2 wrong usage, 5
the suite could not run.`,
		Example: `  fairlead plugin conform --exec ./fairlead-dataplane-mine
  fairlead plugin conform --exec python3 -- mine.py
  fairlead plugin conform --endpoint unix:/run/mine.sock --only reconcile,session
  fairlead plugin conform --traffic --exec ./fairlead-dataplane-mine --without 'ends=it is NAT'`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case list:
				return noArgs(cmd, args)
			case (target.Exec == "") == (target.Endpoint == ""):
				return usagef(cmd, "give either --exec or --endpoint")
			case len(args) > 0 && target.Exec == "":
				return usagef(cmd, "arguments %q are for a program: give --exec", args)
			case len(args) > 0 && cmd.ArgsLenAtDash() != 0:
				return usagef(cmd, "argument %q: write the arguments of the program behind --", args[0])
			case target.Child && target.Exec == "":
				return usagef(cmd, "--child is about a program: give --exec")
			case traffic.on && (target.Endpoint != "" || target.Child):
				return usagef(cmd, "--traffic starts the program itself, with --listen: give --exec without --child")
			case traffic.on && (cmd.Flags().Changed("services") || cmd.Flags().Changed("endpoints")):
				return usagef(cmd, "--services and --endpoints are of the large snapshot, which --traffic does without: give --scale")
			case !traffic.on && traffic.changed(cmd):
				return usagef(cmd, "--without, --scale and --seed are for --traffic")
			case config != "" && !json.Valid([]byte(config)):
				return usagef(cmd, "--config %q is no JSON", config)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case list && traffic.on:
				return a.printTrafficChecks()
			case list:
				return a.printChecks()
			case traffic.on:
				return a.conformTraffic(cmd, traffic, l4.Target{Exec: target.Exec, Args: args}, l4.Options{Config: []byte(config), Patience: options.Patience, Only: options.Only})
			}
			target.Args, options.Config = args, []byte(config)
			if err := conformance.Validate(target, options); err != nil {
				return usagef(cmd, "%w", err)
			}
			ctx, stop := a.signalled(cmd.Context())
			defer stop()
			return a.printReport(conformance.Run(ctx, target, options))
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&target.Exec, "exec", "", "the `PATH` of a program to start")
	flags.StringVar(&target.Endpoint, "endpoint", "", "where one serves, `unix:PATH`")
	flags.BoolVar(&target.Child, "child", false, "start the program as an agent does, not with --listen")
	flags.StringVar(&config, "config", "", "a configuration that it takes, `JSON`")
	flags.StringSliceVar(&options.Only, "only", nil, "only these `CHECKS` or groups of them")
	flags.IntVar(&options.Services, "services", 10_000, "services of the large snapshot")
	flags.IntVar(&options.EndpointsPerService, "endpoints", 10, "endpoints of each of them")
	flags.DurationVar(&options.Patience, "patience", 30*time.Second, "what a call with much to do may take")
	traffic.register(flags)
	_ = cmd.RegisterFlagCompletionFunc("only", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return groups(traffic.on), cobra.ShellCompDirectiveNoFileComp
	})
	_ = cmd.RegisterFlagCompletionFunc("without", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		var words []string
		for _, f := range l4.Features() {
			words = append(words, string(f)+"=")
		}
		return words, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	})
	flags.BoolVar(&list, "list", false, "list the checks and what they demand")
	return cmd
}

// groups are those of the checks of one suite.
func groups(traffic bool) []string {
	var names []string
	if traffic {
		for _, c := range l4.Checks() {
			names = append(names, c.Group())
		}
	} else {
		for _, c := range conformance.Checks() {
			names = append(names, c.Group())
		}
	}
	return slices.Compact(names)
}

// checkJSON is one entry of `plugin conform --list -o json`.
type checkJSON struct {
	ID     string `json:"id"`
	Demand string `json:"demand"`
	Remedy string `json:"remedy"`
	Exec   bool   `json:"exec"`
}

func (a *app) printChecks() error {
	checks := conformance.Checks()
	out := make([]checkJSON, len(checks))
	for i, c := range checks {
		out[i] = checkJSON{ID: c.ID, Demand: c.Demand, Remedy: c.Remedy, Exec: c.Exec}
	}
	return a.printDemands(out)
}

func (a *app) printDemands(checks []checkJSON) error {
	if a.output == "json" {
		return printJSON(a.env.Stdout, checks)
	}
	rows := [][]cell{cells("CHECK", "DEMAND")}
	for _, c := range checks {
		rows = append(rows, cells(c.ID, c.Demand))
	}
	return table(a.env.Stdout, a.env.colour(), rows)
}

func (a *app) printReport(r conformance.Report) error {
	var err error
	switch {
	case a.output == "json":
		err = printJSON(a.env.Stdout, r)
	case len(r.Results) > 0:
		err = r.WriteText(a.env.Stdout)
	}
	switch {
	case err != nil:
		return fmt.Errorf("write the report: %w", err)
	case r.Error != "":
		return &exitError{code: ExitInconclusive, err: errors.New(r.Error)}
	case !r.OK():
		return &exitError{code: ExitFailed}
	}
	return nil
}

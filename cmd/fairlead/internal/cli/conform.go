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

// conformFlags are the flags of `plugin conform`.
type conformFlags struct {
	target  conformance.Target
	options conformance.Options
	traffic trafficFlags
	config  string
	list    bool
}

func (a *app) pluginConformCommand() *cobra.Command {
	var f conformFlags
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
		Args: f.check,
		RunE: func(cmd *cobra.Command, args []string) error { return a.conform(cmd, f, args) },
	}
	f.register(cmd)
	return cmd
}

func (f *conformFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.target.Exec, "exec", "", "the `PATH` of a program to start")
	flags.StringVar(&f.target.Endpoint, "endpoint", "", "where one serves, `unix:PATH`")
	flags.BoolVar(&f.target.Child, "child", false, "start the program as an agent does, not with --listen")
	flags.StringVar(&f.config, "config", "", "a configuration that it takes, `JSON`")
	flags.StringSliceVar(&f.options.Only, "only", nil, "only these `CHECKS` or groups of them")
	flags.IntVar(&f.options.Services, "services", 10_000, "services of the large snapshot")
	flags.IntVar(&f.options.EndpointsPerService, "endpoints", 10, "endpoints of each of them")
	flags.DurationVar(&f.options.Patience, "patience", 30*time.Second, "what a call with much to do may take")
	f.traffic.register(flags)
	flags.BoolVar(&f.list, "list", false, "list the checks and what they demand")
	_ = cmd.RegisterFlagCompletionFunc("only", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return groups(f.traffic.on), cobra.ShellCompDirectiveNoFileComp
	})
	_ = cmd.RegisterFlagCompletionFunc("without", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		var words []string
		for _, feature := range l4.Features() {
			words = append(words, string(feature)+"=")
		}
		return words, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	})
}

// check refuses flags and arguments that do not go together.
func (f *conformFlags) check(cmd *cobra.Command, args []string) error {
	switch {
	case f.list:
		return noArgs(cmd, args)
	case (f.target.Exec == "") == (f.target.Endpoint == ""):
		return usagef(cmd, "give either --exec or --endpoint")
	case len(args) > 0 && f.target.Exec == "":
		return usagef(cmd, "arguments %q are for a program: give --exec", args)
	case len(args) > 0 && cmd.ArgsLenAtDash() != 0:
		return usagef(cmd, "argument %q: write the arguments of the program behind --", args[0])
	case f.target.Child && f.target.Exec == "":
		return usagef(cmd, "--child is about a program: give --exec")
	case f.traffic.on && (f.target.Endpoint != "" || f.target.Child):
		return usagef(cmd, "--traffic starts the program itself, with --listen: give --exec without --child")
	case f.traffic.on && (cmd.Flags().Changed("services") || cmd.Flags().Changed("endpoints")):
		return usagef(cmd, "--services and --endpoints are of the large snapshot, which --traffic does without: give --scale")
	case !f.traffic.on && f.traffic.changed(cmd):
		return usagef(cmd, "--without, --scale and --seed are for --traffic")
	case f.config != "" && !json.Valid([]byte(f.config)):
		return usagef(cmd, "--config %q is no JSON", f.config)
	}
	return nil
}

func (a *app) conform(cmd *cobra.Command, f conformFlags, args []string) error {
	switch {
	case f.list && f.traffic.on:
		return a.printTrafficChecks()
	case f.list:
		return a.printChecks()
	case f.traffic.on:
		return a.conformTraffic(cmd, f.traffic, l4.Target{Exec: f.target.Exec, Args: args}, l4.Options{Config: []byte(f.config), Patience: f.options.Patience, Only: f.options.Only})
	}
	f.target.Args, f.options.Config = args, []byte(f.config)
	if err := conformance.Validate(f.target, f.options); err != nil {
		return usagef(cmd, "%w", err)
	}
	ctx, stop := a.signalled(cmd.Context())
	defer stop()
	return a.printReport(conformance.Run(ctx, f.target, f.options))
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

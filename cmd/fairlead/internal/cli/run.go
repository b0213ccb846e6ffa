package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fairlead/fairlead/core/config"
)

// Exit codes, the same for every command. Those above 2 are results.
const (
	ExitOK           = 0
	ExitFailed       = 1
	ExitUsage        = 2
	ExitDegraded     = 3
	ExitUnsupported  = 4
	ExitInconclusive = 5
)

// app is one run of the command line.
type app struct {
	env    Env
	api    string // --api
	apiTLS apiTLS
	output string // --output: text or json
}

// Run executes one command and returns its exit code: 0 ok, 1 failed, 2 not
// understood, 3 degraded, 4 unsupported, 5 inconclusive. Errors go to
// env.Stderr, one line each.
func Run(args []string, env Env) int {
	a := &app{env: env}
	root := a.root()
	root.SetArgs(args)
	err := root.ExecuteContext(context.Background())
	var usage *usageError
	var exit *exitError
	switch {
	case err == nil:
		return ExitOK
	case errors.As(err, &exit):
		if exit.err != nil {
			fmt.Fprintf(env.Stderr, "fairlead: %v\n", exit.err)
		}
		return exit.code
	case errors.Is(err, errFailed):
		return ExitFailed
	case errors.As(err, &usage):
		fmt.Fprintf(env.Stderr, "fairlead: %v\nSee `%s --help`.\n", err, usage.command)
		return ExitUsage
	default:
		fmt.Fprintf(env.Stderr, "fairlead: %v\n", err)
		return ExitFailed
	}
}

// exitError ends a command with a code that is a result. It is silent if err is
// nil: the command said it already.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return fmt.Sprintf("exit code %d: %v", e.code, e.err) }
func (e *exitError) Unwrap() error { return e.err }

// usageError is a command line that was not understood.
type usageError struct {
	command string // where to ask for help
	err     error
}

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usagef(cmd *cobra.Command, format string, args ...any) error {
	return &usageError{command: cmd.CommandPath(), err: fmt.Errorf(format, args...)}
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "fairlead",
		Short: "Guides each connection to a live instance",
		Long: `Fairlead runs a small agent on every node. The agents find each other, agree by
gossip who is alive, and guide each connection to a live instance.

Try it on this host with "fairlead dev", or watch a failure with "fairlead demo".`,
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if !slices.Contains(outputs(), a.output) {
				return usagef(cmd, "--output is %q: want %s", a.output, strings.Join(outputs(), " or "))
			}
			return nil
		},
	}
	group(root)
	root.SetIn(a.env.Stdin)
	root.SetOut(a.env.Stdout)
	root.SetErr(a.env.Stderr)
	root.SetFlagErrorFunc(flagError)

	flags := root.PersistentFlags()
	flags.StringVar(&a.api, "api", "", "`SOCKET`, HOST:PORT or https://HOST:PORT of the agent (default: $FAIRLEAD_API, else "+defaultSocket+", else that of `fairlead dev`)")
	a.apiTLS.flags(flags)
	flags.StringVarP(&a.output, "output", "o", "text", "form of the output: text or json")
	complete(root, "output", outputs()...)

	root.AddCommand(
		a.agentCommand(),
		a.membersCommand(),
		a.servicesCommand(),
		a.endpointsCommand(),
		a.registerCommand(),
		a.deregisterCommand(),
		a.maintenanceCommand(),
		a.eventsCommand(),
		a.observeCommand(),
		a.statsCommand(),
		a.kvCommand(),
		a.raftCommand(),
		a.snapshotCommand(),
		a.leaveCommand(),
		a.configCommand(),
		a.keygenCommand(),
		a.devCommand(),
		a.demoCommand(),
		a.pluginCommand(),
		a.cleanupCommand(),
		a.checkCommand(),
		a.versionCommand(),
		a.manCommand(),
		a.instanceCommand(),
		a.sweepCommand(),
	)
	ownCobra(root)
	noFiles(root)
	return root
}

// ownCobra makes the commands that cobra adds refuse words that they do not know, as
// all others do.
func ownCobra(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	root.InitDefaultHelpCmd()
	for _, cmd := range root.Commands() {
		switch cmd.Name() {
		case "completion":
			group(cmd)
		case "help":
			cmd.Args = func(cmd *cobra.Command, args []string) error {
				found, rest, err := cmd.Root().Find(args)
				if err != nil || len(rest) == 0 {
					return err
				}
				return unknown(found, rest[0])
			}
		}
	}
}

func outputs() []string { return []string{"text", "json"} }

// wantedOf says what a flag of a type takes, "" if its own error says it.
func wantedOf(flagType string) string {
	switch flagType {
	case "uint16":
		return "a whole number from 0 to 65535"
	case "int", "int32", "int64", "uint", "uint32", "uint64":
		return "a whole number"
	case "duration":
		return "a duration with its unit, such as 100ms, 2s or 1m"
	case "bool":
		return "true or false"
	}
	return ""
}

// flagError says what a flag takes that was given something else, and names the
// nearest flag in place of one that does not exist.
func flagError(cmd *cobra.Command, err error) error {
	var wrong *pflag.InvalidValueError
	if errors.As(err, &wrong) {
		if want := wantedOf(wrong.GetFlag().Value.Type()); want != "" {
			return usagef(cmd, "--%s is %q: want %s", wrong.GetFlag().Name, wrong.GetValue(), want)
		}
	}
	var missing *pflag.NotExistError
	if !errors.As(err, &missing) || missing.GetSpecifiedShortnames() != "" {
		return usagef(cmd, "%w", err)
	}
	name := "--" + missing.GetSpecifiedName()
	var names []string
	inSection := "" // for --data-dir, which is --node.data_dir
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		names = append(names, "--"+f.Name)
		dot := strings.LastIndex(f.Name, ".")
		if inSection == "" && dot >= 0 && config.DidYouMean(name, []string{"--" + f.Name[dot+1:]}) != "" {
			inSection = "; did you mean --" + f.Name + "?"
		}
	})
	return usagef(cmd, "%w%s", err, cmp.Or(config.DidYouMean(name, names), inSection))
}

// group makes cmd a list of commands: alone it prints its help, and a word
// that is none of them is a usage error.
func group(cmd *cobra.Command) {
	cmd.Args = cobra.ArbitraryArgs
	cmd.SuggestionsMinimumDistance = 2 // typing errors that are still meant
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cmd.Help()
		}
		return unknown(cmd, args[0])
	}
}

// unknown is the error of a word that is no command below cmd.
func unknown(cmd *cobra.Command, word string) error {
	hint := ""
	if near := cmd.SuggestionsFor(word); len(near) != 0 {
		hint = fmt.Sprintf(", did you mean %q?", near[0])
	}
	return usagef(cmd, "unknown command %q%s", word, hint)
}

// noArgs refuses arguments.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) != 0 {
		return usagef(cmd, "%s takes no arguments, got %q", cmd.CommandPath(), args[0])
	}
	return nil
}

// maxArgs refuses more than n arguments.
func maxArgs(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > n {
			return usagef(cmd, "%s takes at most %d argument, got %q", cmd.CommandPath(), n, args[n])
		}
		return nil
	}
}

// signalled returns a context that ends at the first SIGINT or SIGTERM, or one of
// these others.
func (a *app) signalled(ctx context.Context, others ...os.Signal) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	if a.env.Signals == nil {
		return ctx, cancel
	}
	received, stop := a.env.Signals()
	go func() {
		defer stop()
		for {
			select {
			case <-ctx.Done():
				return
			case s := <-received:
				if s == os.Interrupt || s == terminate || slices.Contains(others, s) {
					cancel()
				}
			}
		}
	}()
	return ctx, cancel
}

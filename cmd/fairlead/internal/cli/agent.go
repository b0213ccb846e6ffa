package cli

import (
	"errors"
	"io/fs"
	"os"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fairlead/fairlead/core/agent"
	"github.com/fairlead/fairlead/core/config"
)

// defaultConfig is read if it exists and --config names no other file.
const defaultConfig = "/etc/fairlead/fairlead.yaml"

func (a *app) agentCommand() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Run the agent of this node",
		Long: `Run the agent of this node in the foreground; it logs to standard error.

Every key of the configuration file is also a flag named by its path, and a
variable (FAIRLEAD_GOSSIP_BIND). A flag counts over a variable, a variable over
the file, the file over the default.

SIGTERM and SIGINT make the node leave its cluster and stop; a second one stops
at once. SIGHUP reads the configuration again; what changes only at a restart is
named in the log.`,
		Example: `  fairlead agent --node.name n1 --node.data_dir /tmp/n1 --api.socket /tmp/n1/api.sock
  fairlead agent --config /etc/fairlead/fairlead.yaml`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.runAgent(cmd, file)
		},
	}
	cmd.Flags().StringVar(&file, "config", "", "configuration `FILE` (default: "+defaultConfig+" if it exists)")
	config.RegisterFlags(cmd.Flags())
	for _, key := range config.Keys() {
		if len(key.Enum) != 0 {
			complete(cmd, key.Flag, key.Enum...)
		}
	}
	return cmd
}

func (a *app) runAgent(cmd *cobra.Command, file string) error {
	// First of all: whoever changes files and sends SIGHUP does not know how far a start
	// has come, and one that nobody takes ends the process.
	var received <-chan os.Signal
	if a.env.Signals != nil {
		c, stop := a.env.Signals()
		defer stop()
		received = c
	}
	load := func() (agent.Loaded, error) { return a.load(file, cmd.Flags()) }
	loaded, err := load()
	if err != nil {
		if ofFlags(err) {
			return &usageError{command: cmd.CommandPath(), err: err}
		}
		return err
	}
	log, level, err := agent.NewLogger(loaded.Config.Log, a.env.Stderr)
	if err != nil {
		return err
	}
	node, err := agent.New(agent.Options{
		Loaded:  loaded,
		Reload:  load,
		Log:     log,
		Level:   level,
		Metrics: prometheus.NewRegistry(),
		Version: a.env.Version,
	})
	if err != nil {
		return err
	}
	if a.env.OutliveReader != nil {
		// A node must not fail because whatever reads its log does.
		defer a.env.OutliveReader()()
	}
	return node.Run(cmd.Context(), received)
}

// ofFlags reports whether all that is wrong with a configuration is wrong with flags.
func ofFlags(err error) bool {
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) {
		all := joined.Unwrap()
		return len(all) > 0 && !slices.ContainsFunc(all, func(e error) bool { return !ofFlags(e) })
	}
	var one *config.Error
	return errors.As(err, &one) && one.Origin.Layer == config.LayerFlag
}

// load reads the configuration that an agent started with these flags has.
// Without a file it takes the default one, if there is one.
func (a *app) load(file string, flags *pflag.FlagSet) (agent.Loaded, error) {
	if file == "" {
		if _, err := os.Stat(defaultConfig); !errors.Is(err, fs.ErrNotExist) {
			file = defaultConfig
		}
	}
	// Without a host name, Load says that node.name has to be set.
	hostname, _ := os.Hostname()
	cfg, origins, warnings, err := config.Load(config.Options{
		File:     file,
		ReadFile: os.ReadFile,
		Environ:  a.env.Environ,
		Flags:    flags,
		Hostname: hostname,
	})
	return agent.Loaded{Config: cfg, Origins: origins, Warnings: warnings}, err
}

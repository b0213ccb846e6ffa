package sdk

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/sdk/handshake"
)

// arguments are those of a provider's command line.
type arguments struct {
	help, info, debug bool
	listen, follow    string
	configFile        string
	config            dataplane.Config
}

func (a *arguments) byItself() bool { return a.listen != "" || a.follow != "" || a.debug }

func parseArguments(args []string) (*arguments, error) {
	a := &arguments{}
	flags := flag.NewFlagSet("provider", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.Usage = func() {}
	flags.BoolVar(&a.help, "help", false, "")
	flags.BoolVar(&a.info, "plugin-info", false, "")
	flags.BoolVar(&a.debug, "debug", false, "")
	flags.StringVar(&a.listen, "listen", "", "")
	flags.StringVar(&a.follow, "follow", "", "")
	flags.StringVar(&a.configFile, "config", "", "")
	flags.StringVar(&a.config.RunDir, "run-dir", "", "")
	flags.StringVar(&a.config.StateDir, "state-dir", "", "")
	flags.StringVar(&a.config.InstanceID, "instance-id", "", "")
	flags.StringVar(&a.config.Node, "node", "", "")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		a.help = true
	case err != nil:
		return nil, err
	case flags.NArg() > 0:
		return nil, fmt.Errorf("argument %q is not known", flags.Arg(0))
	}
	return a, nil
}

// readConfig completes the configuration of a provider that runs by itself;
// given is false if nobody gave one, so that the agent will.
func (a *arguments) readConfig(info dataplane.Info, own func() ([]byte, error)) (c dataplane.Config, given bool, err error) {
	c = a.config
	switch {
	case a.configFile != "":
		if c.JSON, err = os.ReadFile(a.configFile); err != nil {
			return c, true, fmt.Errorf("--config: %w", err)
		}
	case own != nil:
		if c.JSON, err = own(); err != nil {
			return c, true, fmt.Errorf("configuration: %w", err)
		}
	case a.follow == "" && sameConfig(c, dataplane.Config{}) && c.InstanceID == "": // plain --listen
		return c, false, nil
	}
	if c.InstanceID == "" {
		c.InstanceID = info.Name
	}
	return c, true, nil
}

// usage is what --help prints.
func usage(info dataplane.Info) string {
	program := handshake.FilePrefix + info.Name
	return strings.ReplaceAll(`PROGRAM is a data plane of Fairlead. An agent starts it by itself; by hand:

  PROGRAM --plugin-info           print what it is, as JSON
  PROGRAM --listen unix:PATH      run on a socket, where an agent adopts it
  PROGRAM --follow ADDRESS        run, and fetch what to do from the agent at
                                  unix:PATH or at a HOST:PORT of this host
  PROGRAM --debug                 run, log everything, and say how to attach

With --listen, --follow or --debug:

  --config FILE         its configuration, JSON; without, the agent sends one
                        (with --follow: an empty one)
  --instance-id ID      tags what it makes in the system (default: its name)
  --run-dir DIR         for its sockets
  --state-dir DIR       for what it keeps
  --node NAME           the name of this node, for people

Exit codes: 0 asked to end, 1 failed, 2 wrong arguments or a panic.
`, "PROGRAM", program)
}

// explanation is for those who start a provider as if it were a command.
func explanation(info dataplane.Info) string {
	return fmt.Sprintf(`%s%s is a data plane of Fairlead, to be started by an agent: put it beside
the fairlead binary, or into a directory of FAIRLEAD_PLUGIN_DIRS, and name it in
FAIRLEAD_DATAPLANE. To run it by itself, see --help.
`, handshake.FilePrefix, info.Name)
}

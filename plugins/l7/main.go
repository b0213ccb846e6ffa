package l7

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/dataplane/sdk"
	"github.com/fairlead/fairlead/plugins/l7/internal/conf"
	"github.com/fairlead/fairlead/plugins/l7/internal/settings"
)

// Exit codes of the commands.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// stopTime bounds the end of a provider that runs by the SDK's --listen or
// --follow: the default grace, and some.
const stopTime = 15 * time.Second

// Main is the process: the commands serve and validate run the proxy by itself,
// anything else is for an agent. It returns the exit code.
func Main(version string) int {
	args := os.Args[1:]
	command := ""
	if len(args) > 0 {
		command = args[0]
	}
	switch command {
	case "serve":
		// A reader of the logs that goes away must not end the proxy.
		signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
		signals := make(chan os.Signal, 8)
		signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
		defer signal.Stop(signals)
		return Serve(context.Background(), Process{
			Args: args[1:], Environ: os.Environ(), Version: version, Stdout: os.Stdout, Stderr: os.Stderr, Signals: signals,
		})
	case "validate":
		return Validate(Process{Args: args[1:], Environ: os.Environ(), Stdout: os.Stdout, Stderr: os.Stderr})
	case "version":
		fmt.Fprintln(os.Stdout, version)
		return exitOK
	case "help", "--help", "-h":
		fmt.Fprint(os.Stdout, usage())
		return exitOK
	}
	if command != "" && !strings.HasPrefix(command, "-") {
		fmt.Fprintf(os.Stderr, "command %q is not known; there are serve, validate, version and help\n", command)
		return exitUsage
	}
	return sdk.Serve(New(version), sdk.StopTime(stopTime))
}

// Process is what a command sees of its process.
type Process struct {
	Args    []string // behind the command
	Environ []string
	Version string
	Stdout  io.Writer
	Stderr  io.Writer
	Signals <-chan os.Signal
}

func (p Process) load() (*conf.Config, int) {
	cfg, err := conf.Load(conf.Input{Args: p.Args, Environ: p.Environ, ReadFile: os.ReadFile})
	switch {
	case err == nil:
		return cfg, exitOK
	case errors.Is(err, conf.ErrHelp):
		fmt.Fprint(p.Stdout, usage())
		return nil, exitOK
	case errors.Is(err, conf.ErrUsage):
		fmt.Fprintf(p.Stderr, "%v\n", err)
		return nil, exitUsage
	}
	fmt.Fprintf(p.Stderr, "%v\n", err)
	return nil, exitFailed
}

// Validate checks a configuration as Serve would, and opens nothing.
func Validate(p Process) int {
	cfg, code := p.load()
	if cfg == nil {
		return code
	}
	from := "the configuration"
	if cfg.File != "" {
		from = cfg.File
	}
	what := fmt.Sprintf("%d services", len(cfg.Services))
	switch {
	case cfg.Follow != "":
		what = "follows " + cfg.Follow
	case cfg.Socket != "":
		what = "waits for an agent at " + cfg.Socket
	}
	fmt.Fprintf(p.Stdout, "%s is valid: %s, listens at %s\n", from, what, strings.Join(cfg.Settings.Listen, ", "))
	return exitOK
}

func usage() string {
	var b strings.Builder
	b.WriteString(`fairlead-dataplane-l7 is a reverse proxy for HTTP whose backends are live instances.

  fairlead-dataplane-l7 serve --config l7.yaml     run by itself
  fairlead-dataplane-l7 validate --config l7.yaml  check a configuration, open nothing
  fairlead-dataplane-l7 version

Under an agent of Fairlead it needs no arguments; --plugin-info says what it is.

Each setting is a flag, a variable, or a key of the file; the first of them counts.
Backends come from one of

  --services YAML          a list of services, as in the file
  --follow ADDRESS         an agent: its socket, unix:PATH, or its api.listen, HOST:PORT
  --provider-socket PATH   an agent that adopts this process there

and further there are

  --config FILE            (FAIRLEAD_L7_CONFIG)
  --log-level LEVEL        debug, info, warn or error
`)
	for _, k := range settings.Keys() {
		value := k.Show(conf.Defaults())
		if value == "" {
			value = "none"
		}
		fmt.Fprintf(&b, "  --%-22s %s (%s; %s)\n", strings.ReplaceAll(k.Name, "_", "-"), k.Doc, value, conf.Variable(k.Name))
	}
	b.WriteString(`
Signals: HUP reloads, TERM drains and ends, a second TERM ends at once.
Exit codes: 0 asked to end, or valid; 1 failed, or not valid; 2 wrong arguments.
`)
	return b.String()
}

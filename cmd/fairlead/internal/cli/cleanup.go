package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/core/agent"
	"github.com/fairlead/fairlead/core/api/client"
	"github.com/fairlead/fairlead/core/membership"
	"github.com/fairlead/fairlead/core/pluginhost"
	"github.com/fairlead/fairlead/dataplane"
)

// cleanupJSON is the answer of `cleanup -o json`. Scripts rely on it: keys are added at
// the end and never renamed.
type cleanupJSON struct {
	DryRun bool              `json:"dry_run"`
	Items  []cleanupItemJSON `json:"items"`
}

// cleanupItemJSON is one object that was found.
type cleanupItemJSON struct {
	Plugin   string `json:"plugin"` // empty: it is the host's
	Object   string `json:"object"` // empty: it is about the plugin as a whole
	Instance string `json:"instance_id"`
	Result   string `json:"result"` // removed, would-remove, kept, failed
	Message  string `json:"message"`
	InUse    bool   `json:"in_use"` // it was to be removed and was not, as somebody uses it
}

// cleanupOptions are the flags.
type cleanupOptions struct {
	file     string
	instance string
	all      bool
	dryRun   bool
	force    bool
}

func (a *app) cleanupCommand() *cobra.Command {
	var o cleanupOptions
	cmd := &cobra.Command{
		Use:   "cleanup",
		Short: "Remove what data planes left on this host, also after a crash",
		Long: `Remove what data planes have left on this host: in the kernel, and beside the
agent's socket and in its data directory. Run it as the agent runs. Each plugin
that is installed is asked to clean, also those that no agent has chosen; it needs
no agent and no state. The identity of the node stays.

It removes what the agent of this configuration left, by the id in its data
directory; where there is none, what any agent left. --instance names another id,
--all means every one. What an agent or a data plane that runs uses is kept, and
said; --force removes that too, and its user puts it back within seconds.

An agent that stops in order leaves its data planes programmed, so that
connections go on while it is restarted. So this is for hosts that it leaves for
good, and for what a crash left.

Exit codes: 0 nothing is left of what was to go, 1 something is: it is in use, it
could not be removed, or a plugin could not be asked.`,
		Example: "  sudo fairlead cleanup --dry-run\n  sudo fairlead cleanup --all",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.all && o.instance != "" {
				return usagef(cmd, "give --instance or --all, not both")
			}
			return a.withPlugins(o.file, func(p *plugins) error {
				ctx, stop := a.signalled(cmd.Context())
				defer stop()
				return a.cleanup(ctx, p, o)
			})
		},
	}
	configFlag(cmd, &o.file)
	cmd.Flags().StringVar(&o.instance, "instance", "", "clean after this instance `ID` only")
	cmd.Flags().BoolVar(&o.all, "all", false, "clean after every instance")
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", false, "say what would be removed, and remove nothing")
	cmd.Flags().BoolVar(&o.force, "force", false, "remove what is in use, too")
	return cmd
}

// cleanup finds out what is whose and in use, and removes the rest.
func (a *app) cleanup(ctx context.Context, p *plugins, o cleanupOptions) error {
	cfg := p.loaded.Config
	own, err := ownInstances(p.loaded)
	if err != nil && o.instance == "" && !o.all {
		return fmt.Errorf("%w; name the instance with --instance, or take --all", err)
	}
	var users []pluginhost.User
	trace, err := pluginhost.OpenTrace(agent.PluginRunDir(cfg), agent.PluginStateDir(cfg))
	switch {
	case errors.Is(err, pluginhost.ErrInUse):
		for _, id := range own {
			users = append(users, pluginhost.User{Who: "the agent of " + agent.PluginRunDir(cfg), Instance: id})
		}
	case err != nil:
		return err
	default:
		defer trace.Close()
		own = append(own, trace.Instances()...)
	}
	clean := pluginhost.CleanOptions{DryRun: o.dryRun, Force: o.force}
	switch {
	case o.instance != "":
		clean.Instances = []string{o.instance}
	case !o.all:
		clean.Instances = own
	}
	// The directories are those of this configuration: they go with its instances.
	mine := trace != nil && (len(clean.Instances) == 0 || slices.ContainsFunc(own, func(id string) bool { return slices.Contains(clean.Instances, id) }))

	var found []pluginhost.Cleaned
	var ended []int
	if mine {
		found, ended = trace.EndProcesses(pluginhost.DefaultTiming(), o.dryRun)
	}
	users = append(users, agentUsers(ctx)...)
	for _, u := range pluginhost.Users(ctx) {
		if !slices.Contains(ended, u.PID) {
			users = append(users, u)
		}
	}
	clean.Users = users
	if len(p.usable()) == 0 {
		fmt.Fprintln(a.env.Stderr, "warning: "+noneInstalled+"; so none was asked what it left")
	}
	found = append(found, p.Clean(ctx, clean)...)
	if mine {
		found = append(found, trace.Remove(o.dryRun, slices.ContainsFunc(found, stays))...)
		found = append(found, staleSocket(cfg.API.SocketPath(), o.dryRun)...)
	}
	if ctx.Err() != nil {
		return fmt.Errorf("cleanup: %w", ctx.Err())
	}
	return a.printCleaned(found, o)
}

// ownInstances are the ids of the agent of a configuration, as its data directory
// tells them; none if it keeps nothing.
func ownInstances(l agent.Loaded) ([]string, error) {
	if l.Config.Node.InMemory || l.Config.Node.DataDir == "" {
		return nil, nil
	}
	id, err := membership.ReadNodeID(l.Config.Node.DataDir)
	if err != nil || id == 0 {
		return nil, err
	}
	return []string{id.String()}, nil
}

// agentAskTime bounds the question who an agent is.
const agentAskTime = 2 * time.Second

// agentUsers are the agents that run on this host: what they have in the system they
// use, also while no process of their data planes is there.
func agentUsers(ctx context.Context) []pluginhost.User {
	var out []pluginhost.User
	for _, l := range pluginhost.Listeners(isAgent) {
		ctx, cancel := context.WithTimeout(ctx, agentAskTime)
		c, err := client.Dial(ctx, l.Socket)
		if err == nil {
			var s client.Status
			if s, err = c.Status(ctx); err == nil {
				out = append(out, pluginhost.User{Who: fmt.Sprintf("the agent %s, pid %d", s.Name, l.PID), PID: l.PID, Instance: s.ID.String()})
			}
			_ = c.Close()
		}
		cancel()
	}
	return out
}

func isAgent(argv []string) bool {
	return filepath.Base(argv[0]) == "fairlead" && slices.Contains(argv[1:], "agent")
}

// staleSocket removes the API socket of an agent that is gone.
func staleSocket(path string, dryRun bool) []pluginhost.Cleaned {
	info, err := os.Lstat(path)
	if err != nil || info.Mode()&os.ModeSocket == 0 {
		return nil
	}
	conn, err := net.Dial("unix", path)
	if err == nil {
		_ = conn.Close()
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return nil // somebody answers, or it is not ours to judge
	}
	c := pluginhost.Cleaned{Object: path, Result: dataplane.WouldRemove}
	if !dryRun {
		c.Result = dataplane.Removed
		if err := os.Remove(path); err != nil {
			c.Result, c.Message = dataplane.Failed, err.Error()
		}
	}
	return []pluginhost.Cleaned{c}
}

// stays reports whether something is left that was to go.
func stays(c pluginhost.Cleaned) bool {
	return c.InUse || c.Result == dataplane.Failed || c.Result == dataplane.Pending
}

func (a *app) printCleaned(found []pluginhost.Cleaned, o cleanupOptions) error {
	out := cleanupJSON{DryRun: o.dryRun, Items: []cleanupItemJSON{}}
	left, used := 0, 0
	for _, c := range found {
		out.Items = append(out.Items, cleanupItemJSON{c.Plugin, c.Object, c.Instance, c.Result.String(), c.Message, c.InUse})
		if stays(c) {
			left++
		}
		if c.InUse {
			used++
		}
	}
	if a.output == "json" {
		if err := printJSON(a.env.Stdout, out); err != nil {
			return err
		}
	} else if err := a.writeCleaned(out); err != nil {
		return err
	}
	switch {
	case used == left && used > 0:
		return fmt.Errorf("cleanup: %d objects are in use and stay: stop who uses them first, or take --force", used)
	case left > 0:
		return fmt.Errorf("cleanup: %d objects are left, see the list above: correct what is said there, and call it again", left)
	}
	return nil
}

func (a *app) writeCleaned(out cleanupJSON) error {
	if len(out.Items) == 0 {
		a.say("nothing is left\n")
		return nil
	}
	rows := [][]cell{cells("PLUGIN", "OBJECT", "RESULT", "MESSAGE")}
	for _, i := range out.Items {
		row := cells(dash(i.Plugin), dash(i.Object), i.Result, strings.ReplaceAll(i.Message, "\n", "; "))
		switch {
		case i.InUse:
			row[2].sgr = "33" // yellow
		case i.Result == dataplane.Failed.String():
			row[2].sgr = "31" // red
		}
		rows = append(rows, row)
	}
	return table(a.env.Stdout, a.env.colour(), printableRows(rows))
}

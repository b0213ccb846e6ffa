package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/core/agent"
	"github.com/fairlead/fairlead/core/pluginhost"
	"github.com/fairlead/fairlead/dataplane/sdk/handshake"
)

func (a *app) pluginCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "plugin",
		Short: "Look at data planes and test them",
		Long: `Look at data planes and test them.

A data plane is a program fairlead-dataplane-NAME beside this one, or in a
directory of FAIRLEAD_PLUGIN_DIRS. See docs/plugins.md for how to write one.`,
	}
	group(cmd)
	cmd.AddCommand(a.pluginListCommand(), a.pluginInfoCommand(), a.pluginProbeCommand(), a.pluginExplainCommand(), a.pluginRestartCommand(), a.pluginNewCommand(), a.pluginConformCommand())
	return cmd
}

// noneInstalled is said where plugins are asked and there are none.
const noneInstalled = "no data plane is installed: put fairlead-dataplane-NAME beside fairlead or into a directory of FAIRLEAD_PLUGIN_DIRS"

// plugins is what the commands about plugins look at: those that an agent with
// this configuration would find.
type plugins struct {
	*pluginhost.Host
	loaded agent.Loaded
	dir    string // of this command's own plugins, for the time that it runs
}

func (a *app) openPlugins(file string) (*plugins, error) {
	loaded, err := a.load(file, nil)
	if err != nil {
		return nil, err
	}
	binary, err := a.env.Executable()
	if err != nil {
		return nil, fmt.Errorf("find the directory of this program: %w", err)
	}
	dir, err := handshake.TempDir("fairlead-")
	if err != nil {
		return nil, err
	}
	p := &plugins{loaded: loaded, dir: dir}
	p.Host, err = pluginhost.New(pluginhost.Config{
		Search: pluginhost.SearchOf(a.env.Environ, binary),
		RunDir: filepath.Join(dir, "run"), StateDir: dir, InstanceID: "cli", Node: loaded.Config.Node.Name,
		Settings: pluginhost.SettingsOf(loaded.Config, loaded.Origins),
		Environ:  a.env.Environ, Metrics: prometheus.NewRegistry(),
	})
	if err != nil {
		_ = os.RemoveAll(dir)
		return nil, err
	}
	return p, nil
}

func (p *plugins) close() {
	p.Stop()
	_ = os.RemoveAll(p.dir)
}

// choice returns what the agent of this configuration last decided, if this user
// may know.
func (p *plugins) choice() (pluginhost.Kept, bool) {
	return pluginhost.ReadChoice(agent.PluginStateDir(p.loaded.Config))
}

// withPlugins runs f with the plugins of the configuration.
func (a *app) withPlugins(file string, f func(*plugins) error) error {
	p, err := a.openPlugins(file)
	if err != nil {
		return err
	}
	defer p.close()
	return f(p)
}

func configFlag(cmd *cobra.Command, file *string) {
	cmd.Flags().StringVar(file, "config", "", "configuration `FILE` of the agent (default: "+defaultConfig+" if it exists)")
}

// completePlugin offers the names of the installed plugins, each once.
func (a *app) completePlugin(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	var names []string
	// Without a configuration that can be read there is nothing to offer, and no place to say so.
	_ = a.withPlugins("", func(p *plugins) error {
		for _, c := range p.Discovery().Candidates {
			if c.ShadowedBy == "" && !slices.Contains(args, c.Name) {
				names = append(names, c.Name)
			}
		}
		return nil
	})
	return names, cobra.ShellCompDirectiveNoFileComp
}

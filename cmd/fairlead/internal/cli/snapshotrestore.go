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

	"github.com/fairlead/fairlead/core/config"
	"github.com/fairlead/fairlead/core/membership"
	"github.com/fairlead/fairlead/core/server"
)

// restoredJSON is the answer of `snapshot restore -o json`. Scripts rely on it: keys
// are added at the end and never renamed. Ids are in hexadecimal.
type restoredJSON struct {
	backupJSON
	DataDir string   `json:"data_dir"`
	Cluster string   `json:"cluster_id"`
	ID      string   `json:"id"`
	Servers []string `json:"servers"` // names of a static set; empty: it is alone
}

func (a *app) snapshotRestoreCommand() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "restore FILE",
		Short: "Make a server that begins with a backup",
		Long: `Make, in the data directory of this configuration, a server of a new group that
begins with what a backup has. The agent must not run, and the data directory must
not be one of a server already: move raft.json, raft/ and formation.json in it aside,
and keep them until you have what you want.

Do it on one server. The others are started after it, with those files moved aside as
well, and are taken in. Only for a static set (raft.peers) do it on each of them, with
the same file, before any is started. Revisions go on from those of the backup; leases
begin anew.

It takes the configuration as "fairlead agent" does: a file, FAIRLEAD_* and flags.`,
		Example: `  fairlead snapshot restore backup.snap --config /etc/fairlead/fairlead.yaml
  fairlead snapshot restore backup.snap --node.data_dir /var/lib/fairlead`,
		Args: exactly("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			loaded, err := a.load(file, cmd.Flags())
			switch {
			case ofFlags(err):
				return &usageError{command: cmd.CommandPath(), err: err}
			case err != nil:
				return err
			}
			return a.restore(cmd.Context(), loaded.Config, args[0])
		},
	}
	cmd.Flags().StringVar(&file, "config", "", "configuration `FILE` of the agent (default: "+defaultConfig+" if it exists)")
	config.RegisterFlags(cmd.Flags())
	return cmd
}

// restore refuses what would harm an agent, before it reads and after.
func (a *app) restore(ctx context.Context, cfg *config.Config, path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if _, err := describe(path, data); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if cfg.Node.InMemory || cfg.Node.DataDir == "" {
		return errors.New("node.in_memory is set: there is no data directory to restore to")
	}
	if err := a.refuseRunning(ctx, cfg); err != nil {
		return err
	}
	release, err := membership.LockDataDir(cfg.Node.DataDir)
	if err != nil {
		return err
	}
	defer func() { _ = release() }() // the process ends, and with it the lock
	rc := server.RestoreConfig{Cluster: cfg.Cluster.Name, Node: cfg.Node.Name, Dir: cfg.Node.DataDir, Backup: data}
	for _, p := range cfg.Raft.Peers {
		rc.Set = append(rc.Set, server.Peer{Name: p.Name, Addr: p.Addr})
	}
	done, err := server.Restore(rc)
	if err != nil {
		return err
	}
	return a.printRestored(restoredJSON{
		backupJSON: describeView(path, data, done.View), DataDir: cfg.Node.DataDir,
		Cluster: formatRaftID(done.Identity.Cluster), ID: formatRaftID(done.Identity.Server), Servers: append([]string{}, done.Identity.Set...),
	}, cfg.Node.Name)
}

// refuseRunning refuses while an agent answers at the socket of the configuration: it
// may have another data directory, but then one of the two is not what was meant.
func (a *app) refuseRunning(ctx context.Context, cfg *config.Config) error {
	target := cmp.Or(a.target(), cfg.API.SocketPath())
	if target == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, agentAskTime)
	defer cancel()
	c, err := a.dial(ctx, target)
	if err != nil {
		return nil // nobody that could be asked; the lock tells the rest
	}
	_ = c.Close()
	return fmt.Errorf("an agent answers at %s: stop it first", target)
}

func (a *app) printRestored(r restoredJSON, node string) error {
	if a.output == "json" {
		return printJSON(a.env.Stdout, r)
	}
	user := r.Keyspaces[0]
	if err := a.print("restored %s at revision %d to %s: server %s of group %s\n", keys(user.Keys), user.Revision, printable(r.DataDir), r.ID, r.Cluster); err != nil {
		return err
	}
	others := slices.DeleteFunc(slices.Clone(r.Servers), func(name string) bool { return name == node })
	if len(others) == 0 {
		return a.print("start the agent, and other servers with empty data directories\n")
	}
	return a.print("restore the same file on %s, then start all\n", strings.Join(others, ", "))
}

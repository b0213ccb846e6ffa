package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fairlead/fairlead/core/api/client"
	"github.com/fairlead/fairlead/core/config"
	"github.com/fairlead/fairlead/core/membership"
	"github.com/fairlead/fairlead/core/server"
	"github.com/fairlead/fairlead/core/store"
)

// recoveredJSON is the answer of `raft recover -o json` on a stopped agent, and
// givenUpJSON that of a running one. Scripts rely on them: keys are added at the end and
// never renamed. Ids are in hexadecimal.
type (
	recoveredJSON struct {
		DataDir   string         `json:"data_dir"`
		Cluster   string         `json:"cluster_id"`
		ID        string         `json:"id"`
		Was       string         `json:"old_cluster_id"`
		Aside     string         `json:"old_log"`
		Committed uint64         `json:"commit_index"` // as this server knew it
		Last      uint64         `json:"last_index"`
		Keyspaces []keyspaceJSON `json:"keyspaces"`
	}
	givenUpJSON struct {
		Cluster string `json:"cluster_id"`
	}
)

func (a *app) raftRecoverCommand() *cobra.Command {
	var file string
	var yes bool
	cmd := &cobra.Command{
		Use:   "recover [CLUSTER]",
		Short: "Go on without servers that are lost for good",
		Long: `There are two cases.

The agent runs and waits for servers that are lost ("fairlead raft status" says for
which). Then "fairlead raft recover" on its node gives their cluster up, so that it
may form or join another. That is refused while one of them may still know better.

Most servers of the store are lost for good, so that nobody leads any more. Then stop
the agent of the one that has most (last_index), and give its configuration, as
"fairlead agent" takes it: a file, FAIRLEAD_* and flags. What it has becomes a new
group of this server alone, under a new id. Without --yes-data-may-be-lost nothing is
changed, and what would come of it is shown.

  - What was written last may be lost, if this server did not have it yet; and what was
    never acknowledged may be there all the same: all of its log counts.
  - The other old servers are no part of the new group, and refused by it. Start them
    with empty data directories; they are taken in. Never recover on two of them.
  - The old log is kept beside the new one until you remove it.`,
		Example: `  fairlead raft recover
  fairlead raft recover --config /etc/fairlead/fairlead.yaml --yes-data-may-be-lost`,
		ValidArgsFunction: cobra.NoFileCompletions,
		Args:              maxArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !yes && !configured(cmd) {
				return a.giveUp(cmd.Context(), args)
			}
			if len(args) > 0 {
				return usagef(cmd, "CLUSTER is asked of a running agent; a stopped one knows its own: leave %q out", args[0])
			}
			loaded, err := a.load(file, cmd.Flags())
			switch {
			case ofFlags(err):
				return &usageError{command: cmd.CommandPath(), err: err}
			case err != nil:
				return err
			}
			return a.recover(cmd.Context(), loaded.Config, yes)
		},
	}
	cmd.Flags().StringVar(&file, "config", "", "configuration `FILE` of the stopped agent")
	cmd.Flags().BoolVar(&yes, "yes-data-may-be-lost", false, "do it, on a stopped agent (without --config: that of "+defaultConfig+" if it exists)")
	config.RegisterFlags(cmd.Flags())
	return cmd
}

// configured reports whether a configuration was given.
func configured(cmd *cobra.Command) bool {
	given := false
	cmd.Flags().Visit(func(f *pflag.Flag) { given = given || cmd.InheritedFlags().Lookup(f.Name) == nil })
	return given
}

// giveUp has a running agent give a cluster up.
func (a *app) giveUp(ctx context.Context, args []string) error {
	cluster := ""
	if len(args) > 0 {
		cluster = args[0]
	}
	return a.call(ctx, func(ctx context.Context, c *client.Client) error {
		given, err := c.RaftRecover(ctx, cluster)
		switch {
		case err != nil:
			return err
		case a.output == "json":
			return printJSON(a.env.Stdout, givenUpJSON{given})
		}
		return a.print("gave cluster %s up: `fairlead raft status` says what the node waits for now\n", given)
	})
}

// recover makes of the server of a stopped agent a group of its own.
func (a *app) recover(ctx context.Context, cfg *config.Config, yes bool) error {
	if cfg.Node.InMemory || cfg.Node.DataDir == "" {
		return errors.New("node.in_memory is set: there is nothing that a server could be recovered from")
	}
	if err := a.refuseRunning(ctx, cfg); err != nil {
		return err
	}
	release, err := membership.LockDataDir(cfg.Node.DataDir)
	if err != nil {
		return err
	}
	defer func() { _ = release() }() // the process ends, and with it the lock
	rc := server.RecoverConfig{Node: cfg.Node.Name, Dir: cfg.Node.DataDir, Try: !yes}
	for _, p := range cfg.Raft.Peers {
		rc.Set = append(rc.Set, server.Peer{Name: p.Name, Addr: p.Addr})
	}
	done, err := server.Recover(rc)
	if err != nil {
		return err
	}
	return a.printRecovered(done, cfg.Node.DataDir, yes)
}

func (a *app) printRecovered(r server.Recovered, dir string, yes bool) error {
	out := recoveredJSON{
		DataDir: dir, Cluster: formatRaftID(r.Is.Cluster), ID: formatRaftID(r.Is.Server), Was: formatRaftID(r.Was.Cluster), Aside: r.Aside,
		Committed: r.Commit, Last: r.Last, Keyspaces: []keyspaceJSON{},
	}
	for _, k := range []store.Keyspace{store.User, store.System} {
		s := r.View.Stats(k)
		out.Keyspaces = append(out.Keyspaces, keyspaceJSON{k.String(), s.Revision, s.Compacted, uint64(max(s.Keys, 0)), s.Bytes, s.QuotaBytes, s.Full})
	}
	var err error
	user := out.Keyspaces[0]
	switch {
	case a.output == "json":
		err = printJSON(a.env.Stdout, out)
	case !yes:
		err = a.print("server %s of group %s has %s at revision %d: entry %d is the last, and %d was known to be committed\n",
			formatRaftID(r.Was.Server), out.Was, keys(int64(user.Keys)), user.Revision, r.Last, r.Commit)
	default:
		err = a.print("recovered %s at revision %d: %s is server %s of the new group %s, alone\nthe log of the old group is in %s\nstart the agent, and the others with empty data directories\n",
			keys(int64(user.Keys)), user.Revision, printable(dir), out.ID, out.Cluster, printable(r.Aside))
	}
	if err != nil || yes {
		return err
	}
	return errors.New("nothing was changed: if most of the old servers are lost for good, and none of the others has a higher last entry, say --yes-data-may-be-lost")
}

package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/core/api/client"
)

// followedJSON is the answer of `raft follow -o json`. Scripts rely on it: keys are
// added at the end and never renamed.
type followedJSON struct {
	Cluster     string `json:"cluster_id"`
	Revision    int64  `json:"revision"`
	Keys        uint64 `json:"keys"`
	WasCluster  string `json:"old_cluster_id"`
	WasRevision int64  `json:"old_revision"`
	KeptAs      string `json:"old_copy"` // file; empty: there was none
}

// followTimeout is longer than the agent waits for the servers.
const followTimeout = 40 * time.Second

func (a *app) raftFollowCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "follow CLUSTER",
		Short: "Follow servers that the agent refuses",
		Long: `An agent that is no server keeps a copy of the cluster's own keys, which never goes
back: it refuses servers of another group, and those that are behind the copy. Where
servers were begun anew, or restored from a backup, that is meant. Then this command,
on each such node, has its agent follow them. CLUSTER is the id of theirs that
"fairlead raft status" names; no other one is followed by it.

What is configured stays as it is known until all was read, and changes then at once.
The copy before is kept beside the new one, as system.copy.before in the data directory.`,
		Example:           `  fairlead raft follow 51d98a7ffd61ba87`,
		ValidArgsFunction: cobra.NoFileCompletions,
		Args:              exactly("CLUSTER"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), followTimeout)
			defer cancel()
			c, err := a.connect(ctx)
			if err != nil {
				return err
			}
			defer c.Close()
			return a.follow(ctx, c, args[0])
		},
	}
}

func (a *app) follow(ctx context.Context, c *client.Client, cluster string) error {
	got, err := c.RaftFollow(ctx, cluster)
	switch {
	case err != nil:
		return err
	case a.output == "json":
		return printJSON(a.env.Stdout, followedJSON{cluster, got.Revision, got.Keys, got.WasCluster, got.WasRevision, got.KeptAs})
	}
	if err := a.print("follows cluster %s at revision %d, with %s\n", printable(cluster), got.Revision, keys(int64(got.Keys))); err != nil || got.WasCluster == "" {
		return err
	}
	kept := ""
	if got.KeptAs != "" {
		kept = ": kept as " + printable(got.KeptAs)
	}
	return a.print("the copy before was of cluster %s at revision %d%s\n", printable(got.WasCluster), got.WasRevision, kept)
}

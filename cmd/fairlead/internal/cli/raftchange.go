package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/core/api/client"
)

// transferTimeout is above two election timeouts of any sensible length.
const transferTimeout = 30 * time.Second

// leaderJSON is the answer of `raft transfer -o json`, and removedJSON of `raft remove`.
// Scripts rely on them: keys are added at the end and never renamed.
type (
	leaderJSON struct {
		Leader string `json:"leader"`
		ID     string `json:"leader_id"`
	}
	removedJSON struct {
		Name  string `json:"name"`
		ID    string `json:"id"`
		State string `json:"state"` // gone, cancelled
	}
)

func (a *app) raftTransferCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "transfer NAME|ID",
		Short: "Hand the leadership of the store to another server",
		Long: `Have the server that leads the store hand that over to another voter, by its name
or id as "fairlead raft list-peers" shows them, and return when somebody else leads.
Meanwhile writes wait for a moment. It fails, and the leader stays, if the other one is
down or far behind. It can be asked of each agent that is a server.`,
		ValidArgsFunction: a.completeServer(func(m client.RaftMember) bool { return m.Role == "voter" }),
		Args:              exactly("NAME|ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), transferTimeout)
			defer cancel()
			c, err := a.connect(ctx)
			if err != nil {
				return err
			}
			defer c.Close()
			id, name, err := c.RaftTransfer(ctx, args[0])
			switch {
			case err != nil:
				return err
			case a.output == "json":
				return printJSON(a.env.Stdout, leaderJSON{name, formatRaftID(id)})
			}
			return a.print("%s leads the store\n", serverName(client.RaftMember{ID: id, Name: name}))
		},
	}
}

func (a *app) raftRemoveCommand() *cobra.Command {
	var force, cancel bool
	cmd := &cobra.Command{
		Use:   "remove NAME|ID",
		Short: "Remove a server from those that keep the store",
		Long: `Ask for the removal of a server, by its name or id as "fairlead raft list-peers"
shows them, and wait until it is not needed any more. That is refused for the last
voter, for a static set (raft.peers), and if no other server is there to take its
place; with --force the others go on with fewer.

The wish is written in the store, and whoever leads grants it: so it stands when this
command ends early, by Ctrl-C too. --cancel takes it back, as long as the server is
there. "fairlead raft status" shows who is to leave.

The id of a removed server is never used again. An agent that runs on comes back as
a new server, which waits to be needed: to take a node away, "fairlead leave" there, or
set cluster.server to false. One that is gone for good needs nothing else.`,
		ValidArgsFunction: a.completeServer(func(client.RaftMember) bool { return true }),
		Args:              exactly("NAME|ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if force && cancel {
				return usagef(cmd, "--cancel takes a wish back, and --force makes one")
			}
			return a.raftRemove(cmd.Context(), args[0], force, cancel)
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "remove it also if nobody takes its place")
	cmd.Flags().BoolVar(&cancel, "cancel", false, "take back the wish that it be removed")
	return cmd
}

func (a *app) raftRemove(ctx context.Context, server string, force, cancel bool) error {
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	var last client.RaftRemoved
	for st, err := range c.RaftRemove(ctx, server, force, cancel) {
		if err != nil {
			if last.State != "" && (ctx.Err() != nil || errors.Is(err, client.ErrStopped)) {
				return fmt.Errorf("%w: the wish that %s be removed stands; `fairlead raft remove --cancel %s` takes it back", err, removedName(last), printable(server))
			}
			return err
		}
		a.tellRemoval(last, st)
		last = st
	}
	switch {
	case a.output == "json":
		return printJSON(a.env.Stdout, removedJSON{last.Name, formatRaftID(last.ID), last.State})
	case last.State == "cancelled":
		return a.print("%s stays\n", removedName(last))
	}
	return a.print("%s was removed, and is not needed any more\n", removedName(last))
}

// tellRemoval says on standard error what a removal waits for, when that changes.
func (a *app) tellRemoval(was, now client.RaftRemoved) {
	text := ""
	switch {
	case now.State == "asked" && now.Why != "":
		text = fmt.Sprintf("waiting for the removal of %s: %s", removedName(now), printable(now.Why))
	case now.State == "asked" && was.State == "":
		text = "waiting for the removal of " + removedName(now)
	case now.State == "left" && was.State != "left":
		text = removedName(now) + " was removed; waiting until the others do not need it"
	}
	if text != "" && a.env.Terminal {
		fmt.Fprintln(a.env.Stderr, strings.TrimSpace(text))
	}
}

func removedName(r client.RaftRemoved) string {
	return serverName(client.RaftMember{ID: r.ID, Name: r.Name})
}

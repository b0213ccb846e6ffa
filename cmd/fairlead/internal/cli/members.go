package cli

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/core/api/client"
	"github.com/fairlead/fairlead/core/model"
)

// memberJSON is one entry of `members -o json`. Scripts rely on it: keys are
// added at the end and never renamed.
type memberJSON struct {
	Name        string       `json:"name"`
	ID          model.NodeID `json:"id"`
	State       model.State  `json:"state"`
	Addr        string       `json:"addr"`
	Epoch       uint64       `json:"epoch"`
	Incarnation uint64       `json:"incarnation"`
	Role        string       `json:"role"`
}

func (a *app) membersCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "members",
		Short: "List the nodes of the cluster and their states",
		Long: `List the nodes of the cluster as one agent sees them.

Each is alive, suspect (a probe went unanswered; it may still refute), dead (it
did not refute in time) or left (it said good-bye). One that announced a restart
is alive, and shows when it is to be back by. ROLE is leader, follower or learner
of a server of the store, as it says itself, and member of others. EPOCH counts the starts of the
node, INC is raised when it refutes; SINCE is when the state last changed.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.call(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				members, err := c.Members(ctx)
				if err != nil {
					return err
				}
				a.warnUnready(ctx, c)
				if a.output == "json" {
					return printJSON(a.env.Stdout, membersJSON(members))
				}
				return printMembers(a.env.Stdout, a.env, members)
			})
		},
	}
}

// warnUnready says on standard error why the table is not to be relied on: an
// agent that fell silent still shows what it last heard.
func (a *app) warnUnready(ctx context.Context, c *client.Client) {
	if st, err := c.Status(ctx); err == nil && !st.Ready && st.NotReady != "" {
		fmt.Fprintf(a.env.Stderr, "fairlead: %s is not ready: %s\n", printable(st.Name), printable(st.NotReady))
	}
}

func membersJSON(members []client.Member) []memberJSON {
	out := make([]memberJSON, len(members))
	for i, m := range members {
		out[i] = memberJSON{
			Name: m.Name, ID: m.ID, State: m.State, Addr: m.Addr,
			Epoch: m.Epoch, Incarnation: m.Incarnation, Role: m.Role,
		}
	}
	return out
}

func printMembers(w io.Writer, env Env, members []client.Member) error {
	rows := [][]cell{cells("NAME", "ID", "STATE", "ROLE", "ADDRESS", "EPOCH", "INC", "SINCE")}
	for _, m := range members {
		state := m.State.String()
		if !m.HeldUntil.IsZero() {
			state += ", back by " + clock(env, m.HeldUntil, time.TimeOnly)
		}
		role := printable(m.Role)
		if m.State != model.StateAlive {
			role = "-" // it says no more than the state
		}
		row := cells(printable(m.Name), m.ID.String(), state, role, m.Addr,
			strconv.FormatUint(m.Epoch, 10), strconv.FormatUint(m.Incarnation, 10),
			clock(env, m.Since, time.DateTime))
		row[2].sgr = stateColour(m.State)
		rows = append(rows, row)
	}
	if err := table(w, env.colour(), rows); err != nil {
		return fmt.Errorf("write the list: %w", err)
	}
	return nil
}

// clock shows a time in the location of the Env's clock.
func clock(env Env, t time.Time, layout string) string {
	return t.In(env.Now().Location()).Format(layout)
}

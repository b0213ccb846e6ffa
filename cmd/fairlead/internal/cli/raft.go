package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/core/api/client"
)

// raftJSON is the answer of `raft status -o json`. Scripts rely on it: keys are added
// at the end and never renamed. Ids are in hexadecimal.
type raftJSON struct {
	State     string           `json:"state"` // ok, degraded
	Problems  []string         `json:"problems"`
	Server    bool             `json:"server"`
	NotServer string           `json:"not_server,omitempty"`
	Cluster   string           `json:"cluster_id,omitempty"`
	ID        string           `json:"id,omitempty"`
	Role      string           `json:"role,omitempty"`
	Term      uint64           `json:"term"`
	Leader    string           `json:"leader,omitempty"`
	LeaderID  string           `json:"leader_id,omitempty"`
	Commit    uint64           `json:"commit_index"`
	Applied   uint64           `json:"applied_index"`
	Snapshot  uint64           `json:"snapshot_index"`
	LogBytes  uint64           `json:"log_bytes"`
	NoSpace   bool             `json:"no_space"`
	Servers   []raftServerJSON `json:"servers"`
	Keyspaces []keyspaceJSON   `json:"keyspaces"`
	Copy      *copyJSON        `json:"copy,omitempty"`
	Awaits    string           `json:"awaits,omitempty"`
	Lacks     string           `json:"lacks,omitempty"`
	Joint     string           `json:"joint_since,omitempty"` // RFC 3339
	Unasked   string           `json:"leader_not_asked,omitempty"`
	LowSpace  []string         `json:"low_space,omitempty"`
}

// copyJSON is what an agent that is no server knows of the cluster's own keys.
type copyJSON struct {
	Cluster  string   `json:"cluster_id"` // empty: nothing is known yet
	Revision int64    `json:"revision"`
	Keys     uint64   `json:"keys"`
	Age      *float64 `json:"age_seconds"` // since it was the newest there is; null: it never was
	Server   string   `json:"server"`      // whom it comes from; empty: nobody now
	Addr     string   `json:"addr"`
	Problem  string   `json:"problem"`
}

// raftPeerJSON is one entry of `raft list-peers -o json`.
type raftPeerJSON struct {
	Name  string  `json:"name"`
	ID    string  `json:"id"`
	Addr  string  `json:"addr"`
	Role  string  `json:"role"`  // leader, voter, learner
	Match *uint64 `json:"match"` // null: the leader, who knows it, was not reached
}

// raftServerJSON is a server in `raft status -o json`.
type raftServerJSON struct {
	raftPeerJSON
	Heard   *bool `json:"heard"` // the leader heard of it lately; null as match is
	Leaving bool  `json:"leaving"`
}

// keyspaceJSON is how full a set of keys is.
type keyspaceJSON struct {
	Name      string `json:"name"` // user, system
	Revision  int64  `json:"revision"`
	Compacted int64  `json:"compacted_revision"`
	Keys      uint64 `json:"keys"` // with a history, deleted ones included
	Bytes     int64  `json:"bytes"`
	Quota     int64  `json:"quota_bytes"`
	Full      bool   `json:"full"`
}

func (a *app) raftCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "raft", Short: "Show and change the servers that keep the store"}
	group(cmd)
	cmd.AddCommand(
		&cobra.Command{
			Use:   "status",
			Short: "Show how the store fares, as one agent sees it",
			Long: `Show whether the agent's node is a server of the store, who leads, how far its log
is, and how full the store is.

An agent that is no server follows one, and keeps a copy of the cluster's own keys:
its revision, how old it is at most, and whom it comes from.

MATCH is up to where the log of a server is that of the leader, and HEARD whether
the leader heard of it lately. The leader alone knows both, and is asked.

Exit code 3 means degraded, and the last line says why: nobody leads, a server
failed or is not heard of, there are fewer than there shall be, a change of them takes
long, the node waits to become one, a disk or a set of keys is full, no server is
followed.`,
			Args: noArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				return a.withRaft(cmd, (*client.Client).Raft, a.printRaft)
			},
		},
		&cobra.Command{
			Use:   "list-peers",
			Short: "List the servers of the store",
			Long: `List the servers of the store as one agent knows them: leader, voter or learner.
An agent that is no server asks one.
MATCH is up to where the log of a server is that of the leader, who is asked for it.`,
			Args: noArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				return a.withRaft(cmd, (*client.Client).RaftPeers, a.printPeers)
			},
		},
		a.raftTransferCommand(),
		a.raftRemoveCommand(),
		a.raftFollowCommand(),
		a.raftRecoverCommand(),
	)
	return cmd
}

func (a *app) withRaft(cmd *cobra.Command, ask func(*client.Client, context.Context) (client.RaftStatus, error), print func(client.RaftStatus) error) error {
	return a.call(cmd.Context(), func(ctx context.Context, c *client.Client) error {
		st, err := ask(c, ctx)
		if err != nil {
			return err
		}
		return print(st)
	})
}

// raftProblems says what is wrong.
func raftProblems(st client.RaftStatus) []string {
	problems := []string{}
	if st.LastFailure != "" {
		problems = append(problems, "this server failed: "+st.LastFailure)
	}
	if st.Awaits != "" {
		problems = append(problems, printable(st.Awaits))
	}
	if st.Server && st.Leader == 0 && len(st.Members) > 0 {
		problems = append(problems, "nobody leads: most of the servers have to run and to reach each other")
	}
	for _, m := range st.Members {
		if m.MatchKnown && !m.Active && m.ID != st.ID {
			problems = append(problems, fmt.Sprintf("the server %s is not heard of", serverName(m)))
		}
	}
	if st.Lacks != "" {
		problems = append(problems, printable(st.Lacks))
	}
	if at := st.JointSince; !at.IsZero() && time.Since(at) > jointPatience {
		problems = append(problems, fmt.Sprintf("a change of the servers takes %v already: most of the old and of the new ones have to be up", time.Since(at).Round(time.Second)))
	}
	switch {
	case st.NoSpace:
		problems = append(problems, "nothing is written for want of room on the disks of "+names(st.LowSpace))
	case len(st.LowSpace) > 0:
		problems = append(problems, "the disks are nearly full of "+names(st.LowSpace))
	}
	for _, k := range st.Keyspaces {
		if k.Full {
			problems = append(problems, fmt.Sprintf("the %s keys are full: delete some, then `fairlead kv compact` and `fairlead kv alarm disarm`", k.Name))
		}
	}
	if c := st.Copy; c != nil && c.Problem != "" {
		problems = append(problems, "no server is followed: "+printable(c.Problem))
	}
	return problems
}

// jointPatience is how long a change may take before it is a problem.
const jointPatience = 10 * time.Second

func names(list []string) string {
	if len(list) == 0 {
		return "most servers"
	}
	out := make([]string, len(list))
	for i, n := range list {
		out[i] = printable(n)
	}
	return strings.Join(out, ", ")
}

// serverName is how people call a server: one that told its name to nobody yet has
// an id only.
func serverName(m client.RaftMember) string {
	if m.Name == "" {
		return formatRaftID(m.ID)
	}
	return printable(m.Name)
}

// formatRaftID prints an id as the data directory has it; nothing for none.
func formatRaftID(id uint64) string {
	if id == 0 {
		return ""
	}
	return fmt.Sprintf("%016x", id)
}

func (a *app) printRaft(st client.RaftStatus) error {
	problems := raftProblems(st)
	var err error
	if a.output == "json" {
		err = printJSON(a.env.Stdout, toRaftJSON(st, problems))
	} else {
		err = a.writeRaft(st)
	}
	if err != nil || len(problems) == 0 {
		return err
	}
	return &exitError{code: ExitDegraded, err: errors.New("degraded: " + strings.Join(problems, "; "))}
}

func (a *app) writeRaft(st client.RaftStatus) error {
	if !st.Server && st.NotServer != st.Awaits {
		if err := a.print("no server: %s\n", printable(st.NotServer)); err != nil {
			return err
		}
	}
	var rows [][]cell
	line := func(name, format string, args ...any) {
		rows = append(rows, cells(name, fmt.Sprintf(format, args...)))
	}
	if st.ClusterID != "" {
		line("group", "%s", printable(st.ClusterID))
	}
	if st.Awaits != "" {
		line("waits", "%s", printable(st.Awaits))
	}
	if st.ID != 0 {
		line("server", "%s", formatRaftID(st.ID))
		line("role", "%s in term %d", st.Role, st.Term)
		leader := "nobody"
		if st.Leader != 0 {
			leader = serverName(client.RaftMember{ID: st.Leader, Name: st.LeaderName})
		}
		line("leader", "%s", leader)
		line("log", "applied %d of %d, snapshot at %d, %s on disk", st.Applied, max(st.Commit, st.Applied), st.Snapshot, size(int64(st.LogBytes)))
	}
	if st.Lacks != "" {
		line("lacking", "%s", printable(st.Lacks))
	}
	if !st.JointSince.IsZero() {
		line("change", "under way since %s", st.JointSince.Format(time.RFC3339))
	}
	if st.Unasked != "" {
		line("unknown", "what only the leader knows: %s", printable(st.Unasked))
	}
	if c := st.Copy; c != nil {
		line("copy", "%s", copyText(c))
		from := "nobody"
		if c.Server != "" {
			from = printable(strings.TrimSpace(c.Server + " " + c.Address))
		}
		line("from", "%s", from)
	}
	err := table(a.env.Stdout, a.env.colour(), rows)
	if err == nil && len(st.Members) > 0 {
		err = a.print("\n")
		if err == nil {
			err = a.writePeers(st, true)
		}
	}
	if err != nil || len(st.Keyspaces) == 0 {
		return err
	}
	rows = [][]cell{cells("KEYSPACE", "REVISION", "COMPACTED", "KEYS", "SIZE", "OF", "STATE")}
	for _, k := range st.Keyspaces {
		row := cells(printable(k.Name), strconv.FormatInt(k.Revision, 10), strconv.FormatInt(k.Compacted, 10), strconv.FormatUint(k.Keys, 10), size(k.Bytes), size(k.QuotaBytes), "ok")
		if k.Full {
			row[6] = cell{"full", "31"} // red
		}
		rows = append(rows, row)
	}
	if err := a.print("\n"); err != nil {
		return err
	}
	return table(a.env.Stdout, a.env.colour(), rows)
}

// copyText says what a copy is.
func copyText(c *client.RaftCopy) string {
	if c.ClusterID == "" {
		return "none yet"
	}
	age := "never known to be current"
	if c.AgeKnown {
		age = fmt.Sprintf("current %v ago", c.Age.Round(copyRound(c.Age)))
	}
	return fmt.Sprintf("revision %d of group %s, %d keys, %s", c.Revision, printable(c.ClusterID), c.Keys, age)
}

// copyRound is how exactly people want an age.
func copyRound(age time.Duration) time.Duration {
	if age < time.Minute {
		return 100 * time.Millisecond
	}
	return time.Second
}

func (a *app) printPeers(st client.RaftStatus) error {
	if a.output == "json" {
		return printJSON(a.env.Stdout, toPeersJSON(st.Members))
	}
	if len(st.Members) == 0 && st.NotServer != "" {
		fmt.Fprintf(a.env.Stderr, "fairlead: this agent is no server, and no server answers it: %s; ask the agent of one, as `fairlead members` shows them\n", printable(st.NotServer))
	}
	return a.writePeers(st, false)
}

// writePeers prints a row for each server, also whether it is heard of if wanted.
func (a *app) writePeers(st client.RaftStatus, heard bool) error {
	head := cells("NAME", "ID", "ADDR", "ROLE", "MATCH")
	if heard {
		head = append(head, cell{text: "HEARD"})
	}
	rows := [][]cell{head}
	for _, m := range st.Members {
		row := cells(dash(m.Name), formatRaftID(m.ID), dash(m.Addr), m.Role, "-")
		if m.MatchKnown {
			row[4].text = strconv.FormatUint(m.Match, 10)
		}
		if m.Role == "leader" {
			row[3].sgr = "32" // green
		}
		switch {
		case !heard:
		case !m.MatchKnown:
			row = append(row, cell{text: "-"})
		case m.Active || m.ID == st.ID:
			row = append(row, cell{text: "yes"})
		default:
			row = append(row, cell{"no", "31"})
		}
		if m.Leaving && heard {
			row = append(row, cell{"leaving", "33"}) // yellow
		}
		rows = append(rows, row)
	}
	return table(a.env.Stdout, a.env.colour(), rows)
}

func toPeersJSON(members []client.RaftMember) []raftPeerJSON {
	out := make([]raftPeerJSON, len(members))
	for i, m := range members {
		out[i] = raftPeerJSON{Name: m.Name, ID: formatRaftID(m.ID), Addr: m.Addr, Role: m.Role}
		if m.MatchKnown {
			out[i].Match = &m.Match
		}
	}
	return out
}

func toServersJSON(members []client.RaftMember) []raftServerJSON {
	out := make([]raftServerJSON, len(members))
	for i, p := range toPeersJSON(members) {
		out[i] = raftServerJSON{raftPeerJSON: p, Leaving: members[i].Leaving}
		if p.Match != nil {
			out[i].Heard = &members[i].Active
		}
	}
	return out
}

func toRaftJSON(st client.RaftStatus, problems []string) raftJSON {
	out := raftJSON{
		State: "ok", Problems: problems, Server: st.Server, NotServer: st.NotServer, Cluster: st.ClusterID, ID: formatRaftID(st.ID),
		Role: st.Role, Term: st.Term, Leader: st.LeaderName, LeaderID: formatRaftID(st.Leader), Commit: st.Commit, Applied: st.Applied,
		Snapshot: st.Snapshot, LogBytes: st.LogBytes, NoSpace: st.NoSpace, Servers: toServersJSON(st.Members), Awaits: st.Awaits, Lacks: st.Lacks, Unasked: st.Unasked, LowSpace: st.LowSpace, Keyspaces: []keyspaceJSON{},
	}
	if !st.JointSince.IsZero() {
		out.Joint = st.JointSince.Format(time.RFC3339)
	}
	if len(problems) > 0 {
		out.State = "degraded"
	}
	for _, k := range st.Keyspaces {
		out.Keyspaces = append(out.Keyspaces, keyspaceJSON{k.Name, k.Revision, k.Compacted, k.Keys, k.Bytes, k.QuotaBytes, k.Full})
	}
	if c := st.Copy; c != nil {
		out.Copy = &copyJSON{Cluster: c.ClusterID, Revision: c.Revision, Keys: c.Keys, Server: c.Server, Addr: c.Address, Problem: c.Problem}
		if c.AgeKnown {
			seconds := c.Age.Seconds()
			out.Copy.Age = &seconds
		}
	}
	return out
}

// size prints a number of bytes for people.
func size(bytes int64) string {
	if bytes < 1<<10 {
		return fmt.Sprintf("%d B", bytes)
	}
	unit, f := "KMGT", float64(bytes)/(1<<10)
	for f >= 1<<10 && len(unit) > 1 {
		unit, f = unit[1:], f/(1<<10)
	}
	return fmt.Sprintf("%.1f %ciB", f, unit[0])
}

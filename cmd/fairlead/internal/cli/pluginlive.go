package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/core/api/client"
	"github.com/fairlead/fairlead/core/pluginhost"
)

// restartTimeout bounds a restart: an orderly end, a start that takes its time,
// and the configuration.
const restartTimeout = time.Minute

// pluginLiveJSON is what only a running agent knows of a data plane. Scripts rely
// on it: keys are added at the end and never renamed.
type pluginLiveJSON struct {
	How           string            `json:"how"` // child, kept, alone, follows
	PID           int               `json:"pid"` // 0: none, or not the agent's
	Socket        string            `json:"socket"`
	Since         string            `json:"since"` // of the state; RFC 3339, UTC
	Until         string            `json:"until"` // of the next try; empty: not a matter of time
	Restarts      uint64            `json:"restarts"`
	Losses        uint64            `json:"losses"`
	LastWords     []string          `json:"last_words"`
	Verdict       string            `json:"verdict"`
	Health        string            `json:"health"`
	HealthReasons []string          `json:"health_reasons"`
	Session       *pluginSession    `json:"session"` // null: it was told nothing yet
	Generation    uint64            `json:"generation"`
	Complete      bool              `json:"complete"`
	Services      uint64            `json:"services"`
	Endpoints     uint64            `json:"endpoints"`
	Error         string            `json:"error"` // of the last Reconcile
	NotProgrammed []pluginTroubleJS `json:"not_programmed"`
}

type pluginSession struct {
	AgentID   string `json:"agent_id"`
	BootEpoch uint64 `json:"boot_epoch"`
}

type pluginTroubleJS struct {
	Service string `json:"service"`
	Status  string `json:"status"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// agentOf connects to the agent that --api names, else to that of a
// configuration, else as other commands do.
func (a *app) agentOf(ctx context.Context, p *plugins) (*client.Client, error) {
	if socket := p.loaded.Config.API.SocketPath(); a.target() == "" && socket != "" && socket != defaultSocket {
		return client.Dial(ctx, socket)
	}
	return a.connect(ctx)
}

// live asks the agent. Without an agent that may be asked it says so, and
// returns false.
func (a *app) live(ctx context.Context, p *plugins) (list pluginListJSON, ok bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	c, err := a.agentOf(ctx, p)
	if errors.Is(err, client.ErrNoAgent) || errors.Is(err, client.ErrDenied) {
		fmt.Fprintf(a.env.Stderr, "fairlead: %v\nfairlead: this is what is installed, and what an agent chose at its last start\n", err)
		return list, false, nil
	}
	if err != nil {
		return list, false, err
	}
	defer c.Close()
	all, err := c.Plugins(ctx)
	if err != nil {
		return list, false, err
	}
	list = pluginListJSON{
		Plugins: []pluginJSON{}, Problems: append([]string{}, all.Problems...), Agent: c.Target(),
		Decision: &pluginhost.Decision{Chosen: []pluginhost.Choice{}, Rejected: []pluginhost.Rejected{}, Warnings: append([]string{}, all.Warnings...)},
	}
	for _, q := range all.Plugins {
		list.Plugins = append(list.Plugins, livePlugin(q))
		switch {
		case q.Chosen:
			list.Decision.Chosen = append(list.Decision.Chosen, pluginhost.Choice{Name: q.Name, Auto: q.ByAuto, Verdict: q.Verdict, Version: q.Version})
		case q.How == "" && q.Reason != "" && q.State != "shadowed":
			list.Decision.Rejected = append(list.Decision.Rejected, pluginhost.Rejected{Name: q.Name, Refusal: pluginhost.Refusal{Reason: q.Reason, Remedy: q.Remedy}})
		}
	}
	return list, true, nil
}

func livePlugin(q client.Plugin) pluginJSON {
	out := pluginJSON{
		Name: q.Name, State: q.State, Version: q.Version, Layers: append([]string{}, q.Layers...), Path: q.Path,
		Manifest: q.Manifest, Capabilities: append([]string{}, q.Capabilities...), Reason: q.Reason, Remedy: q.Remedy,
	}
	if q.How == "" && !q.Chosen {
		return out
	}
	live := &pluginLiveJSON{
		How: q.How, PID: q.PID, Socket: q.Socket, Since: rfc3339(q.Since), Until: rfc3339(q.Until), Losses: q.Losses,
		LastWords: append([]string{}, q.LastWords...), Verdict: q.Verdict, Health: q.Health, HealthReasons: append([]string{}, q.HealthWhy...),
		NotProgrammed: []pluginTroubleJS{},
	}
	if q.Starts > 0 {
		live.Restarts = q.Starts - 1
	}
	if t := q.Told; t != nil {
		live.Session = &pluginSession{t.AgentID, t.BootEpoch}
		live.Generation, live.Complete, live.Services, live.Endpoints, live.Error = t.Generation, t.Complete, t.Services, t.Endpoints, t.Error
		for _, s := range t.Troubles {
			live.NotProgrammed = append(live.NotProgrammed, pluginTroubleJS(s))
		}
	}
	out.Live = live
	return out
}

func rfc3339(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// printLive prints what an agent told.
func (a *app) printLive(list pluginListJSON) error {
	if a.output == "json" {
		return printJSON(a.env.Stdout, list)
	}
	rows := [][]cell{cells("NAME", "STATE", "SINCE", "VERSION", "LAYERS", "HOW", "PID", "RESTARTS", "GENERATION", "HEALTH", "PATH", "REASON")}
	troubles := [][]cell{cells("SERVICE", "PLUGIN", "STATUS", "REASON")}
	for _, p := range list.Plugins {
		row := append(cells(p.Name, p.State, "", p.Version, strings.Join(p.Layers, ",")), cells("", "", "", "", "", p.Path, reasonOf(p))...)
		row[1].sgr = pluginColour(p.State)
		if l := p.Live; l != nil {
			row[2].text, row[5].text = a.localTime(l.Since), l.How
			if l.PID != 0 {
				row[6].text = strconv.Itoa(l.PID)
			}
			row[7].text, row[9].text = strconv.FormatUint(l.Restarts, 10), l.Health
			if l.Session != nil {
				row[8].text = strconv.FormatUint(l.Generation, 10)
			}
			for _, t := range l.NotProgrammed {
				troubles = append(troubles, cells(t.Service, p.Name, t.Status, strings.Trim(t.Reason+": "+t.Message, ": ")))
			}
		}
		rows = append(rows, row)
	}
	if err := a.printWithProblems(dashed(printableRows(rows)), list.Problems); err != nil || len(troubles) == 1 {
		return err
	}
	fmt.Fprintln(a.env.Stdout)
	return table(a.env.Stdout, a.env.colour(), printableRows(troubles))
}

// reasonOf is in one line what is to be said against a plugin.
func reasonOf(p pluginJSON) string {
	var said []string
	switch reason := strings.TrimSuffix(p.Reason+": "+p.Remedy, ": "); {
	case reason == "":
	case p.State == string(pluginhost.StateReady):
		said = append(said, "lost before: "+reason)
	default:
		said = append(said, reason)
	}
	if l := p.Live; l != nil {
		if l.Error != "" {
			said = append(said, "reconcile: "+l.Error)
		}
		if n := len(l.NotProgrammed); n > 0 {
			said = append(said, fmt.Sprintf("services not programmed: %d", n))
		}
		said = append(said, l.HealthReasons...)
	}
	return strings.Join(said, "; ")
}

// localTime shows a time of JSON to people.
func (a *app) localTime(text string) string {
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return ""
	}
	return clock(a.env, t, time.DateTime)
}

func printableRows(rows [][]cell) [][]cell {
	for _, row := range rows {
		for i := range row {
			row[i].text = printable(row[i].text)
		}
	}
	return rows
}

func (a *app) pluginRestartCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "restart NAME",
		Short: "Restart one data plane of the agent",
		Long: `Restart one data plane of the agent, and wait until it is ready once more.

What it programmed stays meanwhile. It comes back from the file and with the
settings of now, so this is also how to go on after one was refused or rejected
and what was wrong is corrected. One that runs by itself is not ended; the agent
connects to it anew.

Exit codes: 0 it is ready, 1 it is not, or the agent does not host it.`,
		Args:              exactlyOne("NAME"),
		ValidArgsFunction: first(a.completePlugin),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := a.signalled(cmd.Context())
			defer stop()
			ctx, cancel := context.WithTimeout(ctx, restartTimeout)
			defer cancel()
			c, err := a.connect(ctx)
			if err != nil {
				return err
			}
			defer c.Close()
			q, err := c.RestartPlugin(ctx, args[0])
			if err != nil {
				return err
			}
			return a.printRestarted(q)
		},
	}
}

func (a *app) printRestarted(q client.Plugin) error {
	if a.output == "json" {
		if err := printJSON(a.env.Stdout, livePlugin(q)); err != nil {
			return err
		}
	}
	switch {
	case q.State != string(pluginhost.StateReady):
		return fmt.Errorf("plugin %s is %s: %s", q.Name, q.State, printable(q.Reason))
	case a.output != "json":
		fmt.Fprintf(a.env.Stdout, "%s is ready", printable(q.Name))
		if q.PID != 0 {
			fmt.Fprintf(a.env.Stdout, ", pid %d", q.PID)
		}
		fmt.Fprintln(a.env.Stdout)
	}
	return nil
}

// liveColour are the colours of states that an agent tells.
func liveColour(state string) string {
	switch {
	case state == "ready" || state == "following":
		return "32" // green
	case slices.Contains([]string{"discovered", "starting", "configured", "backoff"}, state):
		return "33" // yellow
	case slices.Contains([]string{"crash-loop", "rejected"}, state):
		return "31" // red
	}
	return ""
}

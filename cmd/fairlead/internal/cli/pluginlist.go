package cli

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/core/pluginhost"
)

// pluginJSON is one entry of `plugin list -o json`. Scripts rely on it: keys are
// added at the end and never renamed.
type pluginJSON struct {
	Name    string   `json:"name"`
	State   string   `json:"state"` // see the help of the command
	Version string   `json:"version"`
	Layers  []string `json:"layers"`
	Path    string   `json:"path"`
	// Manifest says whether one pins the bytes and the capabilities; without
	// one the plugin gets all capabilities of the agent.
	Manifest     bool     `json:"manifest"`
	Capabilities []string `json:"capabilities"`
	Reason       string   `json:"reason"`
	Remedy       string   `json:"remedy"`
	// Live is what a running agent tells of one that it hosts, null otherwise.
	Live *pluginLiveJSON `json:"live"`
}

// pluginListJSON is the whole answer.
type pluginListJSON struct {
	Plugins  []pluginJSON         `json:"plugins"`
	Problems []string             `json:"problems"`
	Decision *pluginhost.Decision `json:"decision"` // null: no agent has decided
	Agent    string               `json:"agent"`    // that answered; empty: none did
}

func (a *app) pluginListCommand() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the data planes of this host, how they fare, and why others do not run",
		Long: `List the data planes of the agent that answers, and how each fares. If none does,
list those that an agent with this configuration and environment finds.

STATE of one that the agent hosts is
  ready       it runs and is kept up to date
  starting, configured, discovered
              it is on its way
  backoff     it was lost or did not start, and is tried again soon
  crash-loop  so for the fifth time in a minute; tried again each 30 s
  refused     its file may not be run, or is gone; tried again when that changes
  rejected    its settings are wrong; tried again when they change
of one that runs by itself and follows the agent, following, and of others
  available   it could run
  shadowed    another file of that name comes first
  refused     it would not be run: its owner, its mode, its manifest, …
  missing     the agent asks for it and it is not there
and, without an agent that answers,
  chosen      the agent runs it, as it decided at its last start
  failed      it starts and does not say what it is
GENERATION is the last that it applied, RESTARTS counts starts after the first,
also those that failed.
CAPABILITIES are those that its manifest gives it; "all" means that it has no
manifest and gets those of the agent.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withPlugins(file, func(p *plugins) error {
				ctx, stop := a.signalled(cmd.Context())
				defer stop()
				list, answered, err := a.live(ctx, p)
				switch {
				case err != nil:
					return err
				case answered:
					return a.printLive(list)
				}
				out := p.list(ctx)
				if len(out.Plugins) == 0 {
					out.Problems = append(out.Problems, noneInstalled)
				}
				return a.printPlugins(out)
			})
		},
	}
	configFlag(cmd, &file)
	return cmd
}

// list asks each usable plugin what it is, all at the same time.
func (p *plugins) list(ctx context.Context) pluginListJSON {
	d := p.Discovery()
	out := pluginListJSON{Plugins: make([]pluginJSON, len(d.Candidates)), Problems: append([]string{}, d.Problems...)}
	kept, decided := p.choice()
	if decided {
		out.Decision = &kept.Decision
	}
	var asking sync.WaitGroup
	for i, c := range d.Candidates {
		asking.Go(func() { out.Plugins[i] = p.describe(ctx, c, kept.Decision) })
	}
	asking.Wait()
	for _, r := range kept.Decision.Rejected {
		known := slices.ContainsFunc(out.Plugins, func(q pluginJSON) bool { return q.Name == r.Name })
		if !known {
			out.Plugins = append(out.Plugins, pluginJSON{Name: r.Name, State: "missing", Layers: []string{}, Capabilities: []string{}, Reason: r.Reason, Remedy: r.Remedy})
		}
	}
	return out
}

func (p *plugins) describe(ctx context.Context, c pluginhost.Candidate, d pluginhost.Decision) pluginJSON {
	q := pluginJSON{Name: c.Name, State: "available", Path: c.Path, Manifest: c.Manifest != nil, Layers: []string{}, Capabilities: []string{}}
	if c.Manifest != nil {
		q.Capabilities = c.Manifest.Capabilities
	}
	switch {
	case c.ShadowedBy != "":
		q.State, q.Reason = "shadowed", c.ShadowedBy+" comes first"
		return q
	case c.Refused != nil:
		q.State, q.Reason, q.Remedy = "refused", c.Refused.Reason, c.Refused.Remedy
		return q
	}
	f := p.Identify(ctx, c.Name)
	if f.Err != nil {
		q.State, q.Reason = "failed", f.Err.Error()
		return q
	}
	q.Version = f.Info.Version
	for _, l := range f.Info.Layers {
		q.Layers = append(q.Layers, l.String())
	}
	if slices.ContainsFunc(d.Chosen, func(c pluginhost.Choice) bool { return c.Name == q.Name }) {
		q.State = "chosen"
	}
	for _, r := range d.Rejected {
		if r.Name == q.Name {
			q.Reason, q.Remedy = r.Reason, r.Remedy
		}
	}
	return q
}

func (a *app) printPlugins(list pluginListJSON) error {
	if a.output == "json" {
		return printJSON(a.env.Stdout, list)
	}
	rows := [][]cell{cells("NAME", "STATE", "VERSION", "LAYERS", "CAPABILITIES", "PATH", "REASON")}
	for _, p := range list.Plugins {
		capabilities := strings.Join(p.Capabilities, ",")
		switch {
		case p.Path == "":
		case !p.Manifest:
			capabilities = "all"
		case capabilities == "":
			capabilities = "none"
		}
		reason := p.Reason
		if p.Remedy != "" {
			reason += ": " + p.Remedy
		}
		row := cells(p.Name, p.State, p.Version, strings.Join(p.Layers, ","), capabilities, p.Path, reason)
		row[1].sgr = pluginColour(p.State)
		rows = append(rows, row)
	}
	return a.printWithProblems(dashed(printableRows(rows)), list.Problems)
}

func (a *app) printWithProblems(rows [][]cell, problems []string) error {
	for _, p := range problems {
		if _, err := a.env.Stderr.Write([]byte("warning: " + p + "\n")); err != nil {
			return err
		}
	}
	return table(a.env.Stdout, a.env.colour(), rows)
}

func pluginColour(state string) string {
	switch state {
	case "chosen":
		return "32" // green
	case "refused", "failed":
		return "31" // red
	case "shadowed", "missing":
		return "2" // faint
	}
	return liveColour(state)
}

package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/core/api/client"
	"github.com/fairlead/fairlead/core/pluginhost"
)

// explainJSON is the answer of `plugin explain -o json`. Scripts rely on it: keys are
// added at the end and never renamed.
type explainJSON struct {
	Agent      string                  `json:"agent"` // that answered; empty: it is what one wrote down
	Wish       []string                `json:"wish"`
	Written    bool                    `json:"written"` // by somebody; else it is the default
	Decided    string                  `json:"decided"` // RFC 3339, UTC; empty: there was nothing to decide
	Chosen     []pluginhost.Choice     `json:"chosen"`
	Rejected   []pluginhost.Rejected   `json:"rejected"`
	Considered []pluginhost.Considered `json:"considered"`
	Warnings   []string                `json:"warnings"`
	Leaving    []pluginhost.Leave      `json:"leaving"`
	Error      string                  `json:"error"` // why the wish could not be granted; empty: it was
}

func (a *app) pluginExplainCommand() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "explain",
		Short: "Say why these data planes were chosen, and why no others",
		Long: `Say why the agent runs these data planes and no others: what the configuration
wishes, what was chosen, and for each one that came into question the verdict of
its probe, the checks that did not pass, and what to do about them. Also which
data planes are not chosen any more, and what their leave waits for.

It is told by the agent. If none answers, it is what the agent of this
configuration decided at its last start, also when it ended with an error.

What was chosen holds until the wish, the kernel, the boot, the rights of the
agent or a plugin changes. What could not be tested is tested again next time.

Exit codes: 0 explained, 1 no agent has decided yet.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withPlugins(file, func(p *plugins) error {
				ctx, stop := a.signalled(cmd.Context())
				defer stop()
				e, err := a.explain(ctx, p)
				if err != nil {
					return err
				}
				return a.printExplanation(e)
			})
		},
	}
	configFlag(cmd, &file)
	return cmd
}

// explain asks the agent, or reads what it wrote down.
func (a *app) explain(ctx context.Context, p *plugins) (explainJSON, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	c, err := a.agentOf(ctx, p)
	if err == nil {
		defer c.Close()
		e, err := c.ExplainPlugins(ctx)
		return explained(c.Target(), e), err
	}
	if !errors.Is(err, client.ErrNoAgent) && !errors.Is(err, client.ErrDenied) {
		return explainJSON{}, err
	}
	kept, ok := p.choice()
	if !ok {
		return explainJSON{}, fmt.Errorf("%w, and none of this configuration has chosen a data plane yet: start one, or see what would work here with fairlead plugin probe --all", err)
	}
	fmt.Fprintf(a.env.Stderr, "fairlead: %v\nfairlead: this is what an agent chose at its last start\n", err)
	d := kept.Decision
	return explainJSON{
		Wish: append([]string{}, kept.Wish.Names...), Written: kept.Wish.Written, Decided: rfc3339(kept.At),
		Chosen: append([]pluginhost.Choice{}, d.Chosen...), Rejected: append([]pluginhost.Rejected{}, d.Rejected...),
		Considered: append([]pluginhost.Considered{}, d.Considered...), Warnings: append([]string{}, d.Warnings...),
		Leaving: []pluginhost.Leave{}, Error: kept.Error,
	}, nil
}

func explained(agent string, e client.Explanation) explainJSON {
	out := explainJSON{
		Agent: agent, Wish: append([]string{}, e.Wish...), Written: e.Written, Decided: rfc3339(e.Decided),
		Chosen: []pluginhost.Choice{}, Rejected: []pluginhost.Rejected{}, Considered: []pluginhost.Considered{},
		Warnings: append([]string{}, e.Warnings...), Leaving: []pluginhost.Leave{},
	}
	for _, c := range e.Chosen {
		out.Chosen = append(out.Chosen, pluginhost.Choice{Name: c.Name, Auto: c.ByAuto, Verdict: c.Verdict, Version: c.Version, Fault: c.Fault})
	}
	for _, r := range e.Rejected {
		out.Rejected = append(out.Rejected, pluginhost.Rejected{Name: r.Name, Refusal: pluginhost.Refusal{Reason: r.Reason, Remedy: r.Remedy}})
	}
	for _, c := range e.Considered {
		considered := pluginhost.Considered{Name: c.Name, Verdict: c.Verdict, Version: c.Version, Scopes: append([]string{}, c.Scopes...), Fault: c.Fault, Checks: []pluginhost.FailedCheck{}}
		for _, f := range c.Checks {
			considered.Checks = append(considered.Checks, pluginhost.FailedCheck(f))
		}
		out.Considered = append(out.Considered, considered)
	}
	for _, l := range e.Leaving {
		out.Leaving = append(out.Leaving, pluginhost.Leave{Name: l.Name, Instance: l.InstanceID, Reason: l.Reason})
	}
	return out
}

func (a *app) printExplanation(e explainJSON) error {
	if a.output == "json" {
		return printJSON(a.env.Stdout, e)
	}
	wish := strings.Join(e.Wish, ",")
	switch {
	case wish == "":
		wish = "off"
	case !e.Written:
		wish += " (the default)"
	}
	fmt.Fprintf(a.env.Stdout, "dataplane  %s\n", printable(wish))
	if t, err := time.Parse(time.RFC3339Nano, e.Decided); err == nil {
		fmt.Fprintf(a.env.Stdout, "decided    %s; it holds until the wish, the kernel, the boot or a plugin changes\n", clock(a.env, t, time.DateTime))
	}
	if e.Error != "" {
		fmt.Fprintf(a.env.Stdout, "refused    %s\n", printable(strings.ReplaceAll(e.Error, "\n", "; ")))
	}
	rows := [][]cell{cells("NAME", "CHOSEN", "VERDICT", "SCOPES", "WHY")}
	checks := [][]cell{cells("NAME", "CHECK", "RESULT", "REASON")}
	for _, c := range e.Considered {
		rows = append(rows, e.row(c))
		for _, f := range c.Checks {
			id := f.ID
			if !f.Required {
				id += " (optional)"
			}
			row := cells(c.Name, id, f.Result, f.Reason)
			row[2].sgr = verdictColour(f.Result)
			checks = append(checks, withRemedy(row, f.Remedy)...)
		}
	}
	leaving := [][]cell{cells("LEAVING", "INSTANCE", "WAITS")}
	for _, l := range e.Leaving {
		leaving = append(leaving, cells(l.Name, l.Instance, l.Reason))
	}
	for _, rows := range [][][]cell{rows, checks, leaving} {
		if len(rows) == 1 {
			continue
		}
		fmt.Fprintln(a.env.Stdout)
		if err := table(a.env.Stdout, a.env.colour(), printableRows(rows)); err != nil {
			return err
		}
	}
	for i, w := range e.Warnings {
		if i == 0 {
			fmt.Fprintln(a.env.Stdout)
		}
		fmt.Fprintf(a.env.Stdout, "warning: %s\n", printable(w))
	}
	return nil
}

// row is that of one which came into question.
func (e explainJSON) row(c pluginhost.Considered) []cell {
	chosen, why := "no", ""
	for _, x := range e.Chosen {
		if x.Name != c.Name {
			continue
		}
		chosen, why = "yes", "named"
		if x.Auto {
			why = "the best that auto found"
		}
		if x.Fault != "" {
			why += "; it could not be asked: " + x.Fault
		}
	}
	for _, r := range e.Rejected {
		if r.Name == c.Name {
			why = r.Refusal.Error()
		}
	}
	row := cells(c.Name, chosen, dash(c.Verdict), dash(strings.Join(c.Scopes, ",")), why)
	if chosen == "yes" {
		row[1].sgr = "32" // green
	}
	row[2].sgr = verdictColour(c.Verdict)
	return row
}

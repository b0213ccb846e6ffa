package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/core/api/client"
	"github.com/fairlead/fairlead/core/model"
)

// endpointsJSON is what `endpoints -o json` prints. Scripts rely on it: keys are
// added at the end and never renamed.
type endpointsJSON struct {
	Service     serviceJSON      `json:"service"`
	Epoch       uint64           `json:"epoch"`
	Definitions []definitionJSON `json:"definitions"`
	Endpoints   []endpointJSON   `json:"endpoints"`
}

type definitionJSON struct {
	Node       string       `json:"node"`
	ID         model.NodeID `json:"id"`
	Counts     bool         `json:"counts"`
	Up         bool         `json:"up"`
	Registered time.Time    `json:"registered"`
	Says       string       `json:"says"`
	Differs    []string     `json:"differs"`
}

type endpointJSON struct {
	Instance    string       `json:"instance"`
	Node        string       `json:"node"`
	NodeID      model.NodeID `json:"node_id"`
	In          bool         `json:"in"`
	Reason      string       `json:"reason"`
	Detail      string       `json:"detail"`
	Addr        string       `json:"addr"`
	AddrForeign string       `json:"addr_foreign"`
	State       string       `json:"state"`
	Since       time.Time    `json:"since"`
	Weight      uint16       `json:"weight"`
	Checks      []resultJSON `json:"checks"`
}

type resultJSON struct {
	Kind      string     `json:"kind"`
	Target    string     `json:"target"`
	Passing   bool       `json:"passing"`
	Output    string     `json:"output"`
	At        *time.Time `json:"at,omitempty"`
	Successes int        `json:"successes"`
	Failures  int        `json:"failures"`
}

func (a *app) endpointsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "endpoints NAME",
		Short: "List the instances of a service, and why each is in or out",
		Long: `List every instance of a service, NAME or NAMESPACE/NAME, as one agent sees it.
NAME.NAMESPACE, as in DNS, is the same, here and in other commands.

IN says whether it is an endpoint, one that connections go to, and WHY: ready,
node-suspect or draining if it is; failing, drained, node-dead, node-left,
local-only or no-address if it is not. ADDRESS is the one that this agent's node
uses. Instances of the agent's own node come with what their checks last said.
Where nodes disagree about the service, what each says follows.`,
		Example:           "  fairlead endpoints web\n  fairlead endpoints ops/db -o json",
		ValidArgsFunction: first(a.completeService),
		Args:              oneArg("the name of a service"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.call(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				d, err := c.Endpoints(ctx, args[0])
				if err != nil {
					return err
				}
				a.warnUnready(ctx, c)
				a.warnIncomplete(d.Completeness)
				// The agent answers by node id, which means nothing to a reader.
				slices.SortStableFunc(d.Endpoints, func(a, b client.Endpoint) int {
					return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Instance, b.Instance))
				})
				if a.output == "json" {
					return printJSON(a.env.Stdout, toEndpointsJSON(d))
				}
				a.warnConflicts(d.Service)
				return printEndpoints(a.env.Stdout, a.env, d)
			})
		},
	}
}

// oneArg wants exactly one argument.
func oneArg(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) == 0:
			return usagef(cmd, "%s wants %s", cmd.CommandPath(), what)
		case len(args) > 1:
			return usagef(cmd, "%s takes one argument, got %q", cmd.CommandPath(), args[1])
		}
		return nil
	}
}

func toEndpointsJSON(d client.ServiceDetail) endpointsJSON {
	out := endpointsJSON{Service: toServiceJSON(d.Service), Epoch: d.Epoch, Definitions: []definitionJSON{}, Endpoints: []endpointJSON{}}
	for _, def := range d.Definitions {
		out.Definitions = append(out.Definitions, definitionJSON{
			Node: def.Node, ID: def.NodeID, Counts: def.Counts, Up: def.Up, Registered: def.Registered, Says: def.Says,
			Differs: append([]string{}, def.Differs...),
		})
	}
	for _, e := range d.Endpoints {
		j := endpointJSON{
			Instance: e.Instance, Node: e.Node, NodeID: e.NodeID, In: e.In, Reason: e.Reason, Detail: e.Detail, Addr: e.Addr,
			AddrForeign: e.AddrForeign, State: e.State, Since: e.Since, Weight: e.Weight, Checks: []resultJSON{},
		}
		for _, c := range e.Checks {
			r := resultJSON{Kind: c.Kind, Target: c.Target, Passing: c.Passing, Output: c.Output, Successes: c.Successes, Failures: c.Failures}
			if !c.At.IsZero() {
				r.At = &c.At
			}
			j.Checks = append(j.Checks, r)
		}
		out.Endpoints = append(out.Endpoints, j)
	}
	return out
}

func printEndpoints(w io.Writer, env Env, d client.ServiceDetail) error {
	rows := [][]cell{cells("INSTANCE", "NODE", "IN", "WHY", "ADDRESS", "WEIGHT", "SINCE", "DETAIL")}
	for _, e := range d.Endpoints {
		in, colour := "out", "31" // red
		switch {
		case e.In && e.Reason == "ready":
			in, colour = "in", "32" // green
		case e.In:
			in, colour = "in", "33" // yellow
		}
		row := cells(printable(e.Instance), printable(e.Node), in, printable(e.Reason), dash(e.Addr), strconv.Itoa(int(e.Weight)),
			clock(env, e.Since, time.DateTime), dash(detail(e)))
		row[2].sgr = colour
		rows = append(rows, row)
	}
	if len(d.Service.Disagreeing) > 0 {
		rows = append(rows, nil, cells("DEFINITION OF", "COUNTS", "REGISTERED", "DIFFERS IN", "SAYS"))
		for _, def := range d.Definitions {
			counts := "no"
			if def.Counts {
				counts = "yes"
			}
			rows = append(rows, cells(printable(def.Node), counts, clock(env, def.Registered, time.DateTime),
				dash(strings.Join(def.Differs, ",")), dash(def.Says)))
		}
	}
	if err := tables(w, env.colour(), rows); err != nil {
		return fmt.Errorf("write the list: %w", err)
	}
	return nil
}

// tables prints several tables, with an empty line where a row is nil.
func tables(w io.Writer, colour bool, rows [][]cell) error {
	var part [][]cell
	for _, row := range rows {
		if row != nil {
			part = append(part, row)
			continue
		}
		if err := table(w, colour, part); err != nil {
			return err
		}
		if _, err := io.WriteString(w, "\n"); err != nil {
			return err
		}
		part = nil
	}
	return table(w, colour, part)
}

// maxDetail is how much of a check's output a line shows, in characters.
const maxDetail = 120

// detail is what the line of an instance says beside the reason.
func detail(e client.Endpoint) string {
	text := e.Detail
	if text == "" && len(e.Checks) > 0 {
		var words []string
		for _, c := range e.Checks {
			words = append(words, c.Kind+": "+c.Output)
		}
		text = strings.Join(words, "; ")
	}
	text = strings.Join(strings.Fields(text), " ")
	if utf8.RuneCountInString(text) > maxDetail {
		text = string([]rune(text)[:maxDetail]) + "…"
	}
	return text
}

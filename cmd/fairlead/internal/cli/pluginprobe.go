package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/core/pluginhost"
	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/sdk/handshake"
)

func (a *app) pluginInfoCommand() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "info NAME",
		Short: "Show what one data plane is and takes",
		Args:  exactlyOne("NAME"),

		ValidArgsFunction: first(a.completePlugin),

		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withPlugins(file, func(p *plugins) error {
				ctx, stop := a.signalled(cmd.Context())
				defer stop()
				f := p.Identify(ctx, args[0])
				if f.Err != nil {
					return fmt.Errorf("plugin %s: %w", args[0], f.Err)
				}
				return a.printInfo(f)
			})
		},
	}
	configFlag(cmd, &file)
	return cmd
}

func (a *app) printInfo(f pluginhost.Finding) error {
	info := handshake.Describe(f.Info)
	if a.output == "json" {
		return printJSON(a.env.Stdout, info)
	}
	rows := [][]cell{
		cells("name", info.Name), cells("version", info.Version), cells("vendor", info.Vendor),
		cells("layers", strings.Join(info.Layers, ", ")), cells("scopes", strings.Join(info.Scopes, ", ")),
	}
	if l := info.Limits; l != nil {
		rows = append(rows, cells("services", limit(l.Services)), cells("endpoints", limit(l.Endpoints)), cells("endpoints of one", limit(l.EndpointsPerService)))
	}
	if err := table(a.env.Stdout, a.env.colour(), printableRows(rows)); err != nil {
		return err
	}
	settings := [][]cell{cells("SETTING", "TYPE", "MEANING")}
	for _, s := range settingsOf(info.ConfigSchema) {
		settings = append(settings, cells("plugins."+info.Name+"."+s[0], s[1], s[2]))
	}
	if len(settings) == 1 {
		return nil
	}
	a.say("\n")
	return table(a.env.Stdout, a.env.colour(), dashed(printableRows(settings)))
}

func limit(n int) string {
	if n == 0 {
		return "no limit"
	}
	return "at most " + strconv.Itoa(n)
}

// settingsOf lists the keys at the top of a schema with their types and what it says
// of them.
func settingsOf(schema []byte) [][3]string {
	var top struct {
		Properties map[string]settingSchema `json:"properties"`
	}
	if json.Unmarshal(schema, &top) != nil {
		return nil
	}
	var out [][3]string
	for key, p := range top.Properties {
		out = append(out, [3]string{key, p.kind(), p.Description})
	}
	slices.SortFunc(out, func(a, b [3]string) int { return strings.Compare(a[0], b[0]) })
	return out
}

// settingSchema is what a schema says of one key.
type settingSchema struct {
	Type        any             `json:"type"` // one name, or a list of them
	AnyOf       []settingSchema `json:"anyOf"`
	OneOf       []settingSchema `json:"oneOf"`
	Description string          `json:"description"`
}

// kind is the type of its values in words, empty if the schema does not say it.
func (s settingSchema) kind() string {
	var names []string
	switch t := s.Type.(type) {
	case string:
		names = append(names, t)
	case []any:
		for _, name := range t {
			if name, ok := name.(string); ok {
				names = append(names, name)
			}
		}
	}
	for _, other := range slices.Concat(s.AnyOf, s.OneOf) {
		if name := other.kind(); name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return strings.Join(names, " or ")
}

// probeJSON is one entry of `plugin probe -o json`.
type probeJSON struct {
	Name    string           `json:"name"`
	Verdict string           `json:"verdict"` // empty: it could not be asked
	Error   string           `json:"error"`
	Checks  []probeCheckJSON `json:"checks"`
}

type probeCheckJSON struct {
	ID       string `json:"id"`
	Required bool   `json:"required"`
	Result   string `json:"result"`
	Reason   string `json:"reason"`
	Remedy   string `json:"remedy"`
}

func (a *app) pluginProbeCommand() *cobra.Command {
	var file string
	var all bool
	cmd := &cobra.Command{
		Use:   "probe (NAME… | --all)",
		Short: "Test whether data planes can work on this host",
		Long: `Test whether data planes can work on this host, with the rights of this user: run
it as the agent runs. A probe leaves nothing behind and alters no traffic.

Exit codes: 0 supported, 3 degraded, 4 unsupported, 5 inconclusive; of several
the worst. 1: one could not be asked.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if all == (len(args) > 0) {
				return usagef(cmd, "give names of data planes, or --all")
			}
			return nil
		},
		ValidArgsFunction: a.completePlugin,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withPlugins(file, func(p *plugins) error {
				ctx, stop := a.signalled(cmd.Context())
				defer stop()
				if all {
					if args = p.usable(); len(args) == 0 {
						return errors.New(noneInstalled)
					}
				}
				return a.printProbes(p.probe(ctx, args))
			})
		},
	}
	configFlag(cmd, &file)
	cmd.Flags().BoolVar(&all, "all", false, "probe all that are installed")
	return cmd
}

func (p *plugins) usable() []string {
	var names []string
	for _, c := range p.Discovery().Candidates {
		if c.Usable() {
			names = append(names, c.Name)
		}
	}
	return names
}

// probe asks one after the other: two probes of one kernel could disturb each
// other.
func (p *plugins) probe(ctx context.Context, names []string) []pluginhost.Finding {
	out := make([]pluginhost.Finding, len(names))
	for i, name := range names {
		if _, there := p.Discovery().Find(name); there && ctx.Err() != nil {
			out[i] = pluginhost.Finding{Name: name, Installed: true, Err: errNotAsked}
			continue
		}
		out[i] = p.Find(ctx, name)
	}
	return out
}

// errNotAsked: the time was over before it was this one's turn.
var errNotAsked = errors.New("was not asked: the time was over before")

func (a *app) printProbes(found []pluginhost.Finding) error {
	out := make([]probeJSON, len(found))
	code := ExitOK
	for i, f := range found {
		code = worse(code, verdictCode(f))
		out[i] = probeJSON{Name: f.Name, Checks: []probeCheckJSON{}}
		if f.Err != nil {
			out[i].Error = f.Err.Error()
			continue
		}
		out[i].Verdict = f.Report.Verdict.String()
		for _, c := range f.Report.Checks {
			out[i].Checks = append(out[i].Checks, probeCheckJSON{ID: c.ID, Required: c.Required, Result: c.Result.String(), Reason: c.Reason, Remedy: c.Remedy})
		}
	}
	if err := a.writeProbes(out); err != nil {
		return err
	}
	if code != ExitOK {
		return &exitError{code: code}
	}
	return nil
}

func (a *app) writeProbes(out []probeJSON) error {
	if a.output == "json" {
		return printJSON(a.env.Stdout, out)
	}
	rows := [][]cell{cells("PLUGIN", "CHECK", "RESULT", "REASON")}
	for _, p := range out {
		head := cells(p.Name, "-", p.Verdict, p.Error)
		if p.Error != "" {
			head[2].text = "failed"
		}
		rows = append(rows, head)
		for _, c := range p.Checks {
			id := c.ID
			if !c.Required {
				id += " (optional)"
			}
			rows = append(rows, withRemedy(cells(p.Name, id, c.Result, c.Reason), c.Remedy)...)
		}
	}
	for _, row := range rows {
		row[2].sgr = verdictColour(row[2].text)
	}
	return table(a.env.Stdout, a.env.colour(), printableRows(rows))
}

func verdictCode(f pluginhost.Finding) int {
	switch {
	case f.Err != nil:
		return ExitFailed
	case f.Report.Verdict == dataplane.Supported:
		return ExitOK
	case f.Report.Verdict == dataplane.Degraded:
		return ExitDegraded
	case f.Report.Verdict == dataplane.Unsupported:
		return ExitUnsupported
	}
	return ExitInconclusive
}

// worse returns the worse of two exit codes.
func worse(a, b int) int {
	order := []int{ExitOK, ExitDegraded, ExitInconclusive, ExitUnsupported, ExitFailed}
	if slices.Index(order, b) > slices.Index(order, a) {
		return b
	}
	return a
}

func verdictColour(verdict string) string {
	switch verdict {
	case dataplane.Supported.String():
		return "32" // green
	case dataplane.Degraded.String(), dataplane.Inconclusive.String():
		return "33" // yellow
	case dataplane.Unsupported.String(), "failed":
		return "31" // red
	}
	return ""
}

// exactlyOne wants one argument, which it calls by its name.
func exactlyOne(name string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return usagef(cmd, "%s takes exactly one %s, got %d", cmd.CommandPath(), name, len(args))
		}
		return nil
	}
}

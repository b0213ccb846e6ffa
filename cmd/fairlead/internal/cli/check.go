package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/hostcheck"
	"github.com/fairlead/fairlead/core/api/client"
	"github.com/fairlead/fairlead/core/config"
	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/pluginhost"
	"github.com/fairlead/fairlead/core/swim"
	"github.com/fairlead/fairlead/dataplane"
)

// checkTime bounds all of the check; what did not answer by then says so.
const checkTime = 2500 * time.Millisecond

// findingJSON is one entry of `check -o json`. Scripts rely on it: keys are added
// at the end and never renamed.
type findingJSON struct {
	Group string `json:"group"`
	Check string `json:"check"`
	State string `json:"state"` // ok, skipped, warning, failed
	Seen  string `json:"seen"`
	Fix   string `json:"fix"`
}

// hostCheckJSON is the whole answer.
type hostCheckJSON struct {
	State    string        `json:"state"` // ok, warning, failed
	Findings []findingJSON `json:"findings"`
}

func (a *app) checkCommand() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Look at this host: what an agent would miss, and what to do about it",
		Long: `Look at this host with the eyes of an agent of this configuration: the kernel,
iptables, ports, addresses, clock, data directory and data planes, and what earlier
runs left. It changes nothing that stays and takes 3 s at most. Run it as the user
of the agent, mostly root: what this user may not see is skipped, and says so.

Data planes are asked by their own probes, as by "fairlead plugin probe".

Exit codes: 0 ok, 1 something failed, 3 there are warnings.`,
		Example: `  fairlead check
  fairlead check --config /etc/fairlead/fairlead.yaml -o json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withPlugins(file, func(p *plugins) error {
				ctx, stop := a.signalled(cmd.Context())
				defer stop()
				ctx, cancel := context.WithTimeout(ctx, checkTime)
				defer cancel()
				return a.printCheck(hostcheck.Evaluate(a.look(ctx, p)))
			})
		},
	}
	configFlag(cmd, &file)
	return cmd
}

// look gathers the facts, and asks the data planes meanwhile.
func (a *app) look(ctx context.Context, p *plugins) hostcheck.Facts {
	probed := make(chan []hostcheck.Plane, 1)
	go func() { probed <- p.planes(ctx) }()
	running := a.running(ctx, p.loaded.Config)
	facts := hostcheck.Gather(ctx, hostConfig(p), running)
	facts.Planes = <-probed
	return facts
}

// hostConfig is what the host matters to.
func hostConfig(p *plugins) hostcheck.Config {
	c := p.loaded.Config
	h := hostcheck.Config{
		Cluster: c.Cluster.Name, Bind: c.Gossip.Bind, Advertise: c.AdvertiseAddr(), Join: c.JoinAddresses(), Pools: c.VIPPools,
		Planes: c.Dataplane, Written: p.loaded.Origins.Of("dataplane") != config.Origin{},
		Listen: make(map[string]netip.AddrPort), PacketSize: swim.DefaultLAN().MTU,
	}
	if !c.Node.InMemory {
		h.DataDir = c.Node.DataDir
	}
	for key, l := range map[string]config.Listen{"api.listen": c.API.Listen, "http.listen": c.HTTP.Listen} {
		if !l.Off() {
			h.Listen[key] = l.AddrPort()
		}
	}
	return h
}

// running asks the agent of the configuration what it listens at.
func (a *app) running(ctx context.Context, c *config.Config) hostcheck.Agent {
	target := cmp.Or(a.target(), c.API.SocketPath())
	if target == "" {
		return hostcheck.Agent{}
	}
	conn, err := a.dial(ctx, target)
	if err != nil {
		return hostcheck.Agent{Denied: errors.Is(err, client.ErrDenied)}
	}
	defer conn.Close()
	status, err := conn.Status(ctx)
	if err != nil {
		return hostcheck.Agent{Denied: errors.Is(err, client.ErrDenied)}
	}
	out := hostcheck.Agent{Answers: true, Holds: slices.Sorted(maps.Values(status.Listeners))}
	members, err := conn.Members(ctx)
	if err != nil {
		return out // an agent that stops just now
	}
	for _, m := range members {
		if m.State == model.StateAlive || m.State == model.StateSuspect {
			out.Members = append(out.Members, hostcheck.Member{ID: m.ID.String(), Name: m.Name, Addr: m.Addr})
		}
	}
	return out
}

// planes asks the installed data planes, and those that the configuration names
// and that run by themselves.
func (p *plugins) planes(ctx context.Context) []hostcheck.Plane {
	var all []hostcheck.Plane
	names := slices.DeleteFunc(slices.Clone([]string(p.loaded.Config.Dataplane)), func(name string) bool { return name == "auto" })
	for _, c := range p.Discovery().Candidates {
		switch {
		case c.ShadowedBy != "":
		case c.Refused != nil:
			all = append(all, hostcheck.Plane{Name: c.Name, Reason: c.Refused.Reason, Remedy: c.Refused.Remedy})
			names = slices.DeleteFunc(names, func(name string) bool { return name == c.Name })
		case !slices.Contains(names, c.Name):
			names = append(names, c.Name)
		}
	}
	for _, f := range p.probe(ctx, names) {
		if f.Err == nil || f.Installed {
			all = append(all, planeOf(ctx, f))
		}
	}
	return all
}

// planeOf puts what a probe did not find together.
func planeOf(ctx context.Context, f pluginhost.Finding) hostcheck.Plane {
	p := hostcheck.Plane{Name: f.Name}
	switch {
	case errors.Is(f.Err, errNotAsked):
		p.Reason = fmt.Sprintf("was not asked: those before it took the %v that there are", checkTime)
		return p
	case f.Err != nil && ctx.Err() != nil:
		p.Reason = fmt.Sprintf("did not answer within %v", checkTime)
		return p
	case f.Err != nil:
		p.Reason = f.Err.Error()
		return p
	}
	p.Verdict = f.Report.Verdict.String()
	var reasons []string
	for _, c := range f.Report.Checks {
		if c.Result == dataplane.Supported || f.Report.Verdict != dataplane.Degraded && !c.Required {
			continue
		}
		reasons = append(reasons, c.ID+": "+c.Reason)
		p.Remedy = cmp.Or(p.Remedy, c.Remedy)
	}
	p.Reason = strings.Join(reasons, "; ")
	return p
}

func (a *app) printCheck(findings []hostcheck.Finding) error {
	worst := hostcheck.Worst(findings)
	if worst == hostcheck.Skipped {
		worst = hostcheck.OK
	}
	out := hostCheckJSON{State: string(worst), Findings: make([]findingJSON, len(findings))}
	for i, f := range findings {
		out.Findings[i] = findingJSON{f.Group, f.Check, string(f.State), f.Seen, f.Fix}
	}
	err := a.writeCheck(out)
	switch {
	case err != nil:
		return err
	case worst == hostcheck.Failed:
		return &exitError{code: ExitFailed}
	case worst == hostcheck.Warning:
		return &exitError{code: ExitDegraded}
	}
	return nil
}

// writeCheck prints a block for each group; a fix stands below what it is for.
func (a *app) writeCheck(out hostCheckJSON) error {
	if a.output == "json" {
		return printJSON(a.env.Stdout, out)
	}
	var rows [][]cell
	group := ""
	for _, f := range out.Findings {
		if f.Group != group {
			group = f.Group
			rows = append(rows, cells(group))
		}
		row := cells("", f.State, printable(f.Check), printable(f.Seen))
		row[1].sgr = findingColour(f.State)
		rows = append(rows, row)
		if f.Fix != "" {
			rows = append(rows, cells("", "", "", "→ "+printable(f.Fix)))
		}
	}
	return table(a.env.Stdout, a.env.colour(), rows)
}

func findingColour(state string) string {
	switch hostcheck.State(state) {
	case hostcheck.OK:
		return "32" // green
	case hostcheck.Warning:
		return "33" // yellow
	case hostcheck.Failed:
		return "31" // red
	}
	return "2" // faint
}

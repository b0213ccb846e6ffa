package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/core/api/client"
	"github.com/fairlead/fairlead/core/model"
)

// flowJSON is one line of `observe -o json`. Scripts rely on it: keys are added
// at the end and never renamed. A line with lost has that alone.
type flowJSON struct {
	Time        *time.Time `json:"time,omitempty"`
	Provider    string     `json:"provider,omitempty"`
	PID         uint32     `json:"pid,omitempty"`
	Process     string     `json:"process,omitempty"`
	Cgroup      string     `json:"cgroup,omitempty"`
	CgroupID    uint64     `json:"cgroup_id,omitempty"`
	Service     string     `json:"service,omitempty"`
	Protocol    string     `json:"protocol,omitempty"`
	Source      string     `json:"source,omitempty"`
	Frontend    string     `json:"frontend,omitempty"`
	Destination string     `json:"destination,omitempty"`
	Instance    string     `json:"instance,omitempty"`
	Node        string     `json:"node,omitempty"`
	EndpointID  string     `json:"endpoint_id,omitempty"` // 16 hexadecimal digits
	Verdict     string     `json:"verdict,omitempty"`
	Reason      string     `json:"reason,omitempty"`
	Lost        *lostJSON  `json:"lost,omitempty"`
}

type lostJSON struct {
	Slow     uint64 `json:"slow"`
	OverRate uint64 `json:"over_rate"`
	Provider uint64 `json:"provider"`
}

// observing is what the flags of observe say.
type observing struct {
	filter client.FlowFilter
	sample string
	count  uint
}

// verdicts are those that --verdict takes.
func verdicts() []string { return []string{"forwarded", "refused", "denied", "passed"} }

func (a *app) observeCommand() *cobra.Command {
	var o observing
	cmd := &cobra.Command{
		Use:   "observe",
		Short: "Show connections as the data planes decide on them",
		Long: `Show what the data planes of the agent's node decide on connections and
datagrams from now on: when, which process in which cgroup, the frontend it asked
for, the endpoint it was led to, and the verdict: forwarded, refused (with the
reason), denied by policy, or passed (left as it was).

Nothing is asked of data planes before, so observing costs nothing while nobody
does it. What is shown is sampled and bounded: one in --sample flows, and at most
--max-rate a second. What is left out is told on standard error, as far as it was
counted; with -o json as a line with "lost". Counters that leave out nothing are
those of "fairlead stats". It ends with Ctrl-C, or after --count flows.`,
		Example: `  fairlead observe --service web
  fairlead observe --verdict refused -n 10 -o json
  fairlead observe --sample 1/100 --max-rate 1000`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.parse(cmd); err != nil {
				return err
			}
			ctx, cancel := a.signalled(cmd.Context())
			defer cancel()
			c, err := a.connect(ctx)
			if err != nil {
				return err
			}
			defer c.Close()
			err = a.printFlows(ctx, c, o)
			if ctx.Err() != nil && errors.Is(err, context.Canceled) {
				return nil // Ctrl-C is how one ends it
			}
			return err
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.filter.Service, "service", "", "only connections to this service, `NAME` or NAMESPACE/NAME")
	flags.StringVar(&o.filter.Verdict, "verdict", "", "only this `VERDICT`: "+strings.Join(verdicts(), ", "))
	flags.StringVar(&o.sample, "sample", "1/1", "show one in N connections, `1/N`")
	flags.Uint32Var(&o.filter.Rate, "max-rate", 100, "show at most `N` connections a second, 1 to 10000")
	flags.UintVarP(&o.count, "count", "n", 0, "end after `N` connections; 0: do not end")
	complete(cmd, "verdict", verdicts()...)
	completeBy(cmd, "service", a.completeService)
	return cmd
}

const (
	maxRate   = 10_000
	maxSample = 1 << 20
)

// parse checks the flags.
func (o *observing) parse(cmd *cobra.Command) error {
	n, err := strconv.ParseUint(strings.TrimPrefix(o.sample, "1/"), 10, 32)
	switch {
	case err != nil || n < 1 || n > maxSample:
		return usagef(cmd, "--sample is %q: want 1/N, with N from 1 to %d", o.sample, maxSample)
	case o.filter.Rate < 1 || o.filter.Rate > maxRate:
		return usagef(cmd, "--max-rate is %d: want 1 to %d", o.filter.Rate, maxRate)
	}
	o.filter.OneIn = uint32(n)
	if v := o.filter.Verdict; v != "" && !slices.Contains(verdicts(), v) {
		return usagef(cmd, "--verdict is %q: want %s", v, strings.Join(verdicts(), ", "))
	}
	if o.filter.Service != "" {
		if _, err := model.ParseServiceKey(o.filter.Service); err != nil {
			return usagef(cmd, "--service: %w", err)
		}
	}
	return nil
}

// printFlows prints flows as they come, until the wanted number is reached.
func (a *app) printFlows(ctx context.Context, c *client.Client, o observing) error {
	shown := uint(0)
	for item, err := range c.Observe(ctx, o.filter) {
		if err != nil {
			return err
		}
		switch {
		case item.Began != nil:
			err = a.printBegan(*item.Began)
		case item.Lost != nil:
			err = a.printLost(*item.Lost)
		case item.Flow != nil:
			err = a.printFlow(*item.Flow)
			shown++
		}
		if err != nil {
			return fmt.Errorf("write a flow: %w", err)
		}
		if o.count > 0 && shown >= o.count {
			return nil
		}
	}
	return nil
}

// printBegan prints the headings, once it is known that there will be flows.
func (a *app) printBegan(b client.Began) error {
	if len(b.Providers) == 0 {
		fmt.Fprintln(a.env.Stderr, "fairlead: no data plane runs on this node now: see `fairlead plugin list`")
	}
	if a.output == "json" {
		return nil
	}
	return a.flowLine("TIME", "PROCESS", "CGROUP", "SERVICE", "FRONTEND → ENDPOINT", "VERDICT")
}

// flowLine prints fields at fixed widths: a stream cannot measure what comes.
func (a *app) flowLine(at, process, cgroup, service, way, verdict string) error {
	_, err := fmt.Fprintf(a.env.Stdout, "%-12s  %-22s  %-28s  %-16s  %-52s  %s\n", at, process, cgroup, service, way, verdict)
	return err
}

func (a *app) printFlow(f client.Flow) error {
	if a.output == "json" {
		return printJSON(a.env.Stdout, toFlowJSON(f))
	}
	process := "-"
	switch {
	case f.PID != 0:
		process = fmt.Sprintf("%s[%d]", printable(f.Process), f.PID)
	case f.Source != "":
		process = f.Source
	}
	cgroup := f.Cgroup
	if cgroup == "" && f.CgroupID != 0 {
		cgroup = fmt.Sprintf("#%d", f.CgroupID)
	}
	service := "-"
	if key, err := model.ParseServiceKey(f.Service); err == nil {
		service = serviceName(key)
	}
	verdict := paint(a.env.colour(), flowColour(f.Verdict), printable(f.Verdict))
	if f.Reason != "" {
		verdict += " (" + printable(f.Reason) + ")"
	}
	return a.flowLine(clock(a.env, f.At, flowTime), process, dash(cgroup), service, flowWay(f), verdict)
}

// flowTime is the time of day: flows are of now.
const flowTime = "15:04:05.000"

// flowWay says from where to where.
func flowWay(f client.Flow) string {
	way := cmp.Or(f.Frontend, "-")
	if f.Protocol == "udp" {
		way += "/udp"
	}
	if f.Destination == "" && f.Instance == "" {
		return way
	}
	way += " → " + cmp.Or(f.Destination, "?")
	if f.Instance != "" {
		way += " " + printable(f.Instance) + "@" + printable(f.Node)
	}
	return way
}

func flowColour(v string) string {
	switch v {
	case "forwarded":
		return "32" // green
	case "refused", "denied":
		return "31" // red
	}
	return "33" // yellow
}

// printLost says what is missing, beside the flows.
func (a *app) printLost(l client.LostFlows) error {
	if a.output == "json" {
		return printJSON(a.env.Stdout, flowJSON{Lost: &lostJSON{l.Slow, l.OverRate, l.Provider}})
	}
	for _, part := range []struct {
		n   uint64
		why string
	}{
		{l.OverRate, "at least %d connections are not shown: beyond --max-rate; see --sample"},
		{l.Slow, "%d connections are not shown: they came faster than they were printed"},
		{l.Provider, "%d connections are not shown: they came faster than the agent took them"},
	} {
		if part.n > 0 {
			fmt.Fprintf(a.env.Stderr, "fairlead: "+part.why+"\n", part.n)
		}
	}
	return nil
}

func toFlowJSON(f client.Flow) flowJSON {
	out := flowJSON{
		Time: &f.At, Provider: f.Provider, PID: f.PID, Process: f.Process, Cgroup: f.Cgroup, CgroupID: f.CgroupID, Service: f.Service,
		Protocol: f.Protocol, Source: f.Source, Frontend: f.Frontend, Destination: f.Destination, Instance: f.Instance, Node: f.Node,
		Verdict: f.Verdict, Reason: f.Reason,
	}
	if f.EndpointID != 0 {
		out.EndpointID = fmt.Sprintf("%016x", f.EndpointID)
	}
	return out
}

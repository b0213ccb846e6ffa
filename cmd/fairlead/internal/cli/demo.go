package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/traffic"
	"github.com/fairlead/fairlead/dataplane/sdk/handshake"
)

const (
	// detectTimeout is far above the detection time of the local profile, so that
	// a busy host does not fail the demo.
	detectTimeout = 30 * time.Second
	// demoLimit is what a request may take.
	demoLimit = time.Second
	// demoPace is by how much faster than asked for requests are begun, so that
	// their rate is reached and not just missed.
	demoPace = 1.05
	// demoVIPRate is how many connects a second go to a VIP, at most.
	demoVIPRate = 100
	// demoService gets the requests, from its instance on the last node too.
	demoService = "web"
	modeRefuse  = "refuse"
	modeCut     = "cut"
)

// demoOptions are the flags.
type demoOptions struct {
	rate     float64
	duration time.Duration
	mode     string
	isolated bool
	cgroup   string // that this process has for itself; empty: none
}

func (a *app) demoCommand() *cobra.Command {
	var o demoOptions
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Kill a node under load, and count what its clients notice",
		Long: `Run the cluster of "fairlead dev" in a temporary directory, send GET requests
through the proxy of one node at a steady rate, each once and for a second at
most, and in the middle fail another node that serves them. Print what happened
when, and every error. The exit code is 0 if there was none and the rate was
reached.

The node fails in one of two ways. With --mode refuse its agent, proxy and
instances are killed with SIGKILL, so that connects are refused at once. With
--mode cut the node is in a network namespace of its own and its cable is cut, so
that packets vanish; that needs root, or the right to make user namespaces.

With FAIRLEAD_DATAPLANE naming a data plane below HTTP, such as ebpf,l7, or auto,l7,
all of it is isolated as in "fairlead dev", and the VIP of the service gets connects as
well. Those to the failed node fail until the data plane knows; the exit code is 0
only if none was begun later than that by a second.

All times are measured. What the proxy counts is read every 10 ms, on a busy host
more seldom; its times are late by that, and the report says by how much at most.`,
		Example: "  fairlead demo\n  fairlead demo --mode cut --rate 500 --duration 1m\n  sudo FAIRLEAD_DATAPLANE=auto,l7 fairlead demo",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case o.mode != modeRefuse && o.mode != modeCut:
				return usagef(cmd, "--mode is %q: want %s or %s", o.mode, modeRefuse, modeCut)
			case !(o.rate >= 1 && o.rate <= 10_000):
				return usagef(cmd, "--rate is %g: want 1 to 10000 requests a second", o.rate)
			case o.duration < time.Second || o.duration > time.Hour:
				return usagef(cmd, "--duration is %v: want 1s to 1h", o.duration)
			case !dataplaneHasL7(a.env):
				return usagef(cmd, "%s is %s: the demo needs l7", dataplaneVariable, a.env.getenv(dataplaneVariable))
			}
			ctx, cancel := a.signalled(cmd.Context(), syscall.SIGHUP)
			defer cancel()
			if o.cgroup == "" && wantsKernel(a.env) {
				return a.runInKernel(ctx, "demo", o.args()...)
			}
			if o.cgroup == "" && o.mode == modeCut && !o.isolated {
				return a.demoIsolated(ctx, o)
			}
			err := a.runDemo(ctx, o)
			if err != nil && ctx.Err() != nil {
				return errors.New("demo: interrupted") // whatever was under way
			}
			return err
		},
	}
	cmd.Flags().Float64Var(&o.rate, "rate", 200, "least number of requests a second")
	cmd.Flags().DurationVar(&o.duration, "duration", 30*time.Second, "how long to send requests")
	cmd.Flags().StringVar(&o.mode, "mode", modeRefuse, "how the node fails: refuse or cut")
	complete(cmd, "mode", modeRefuse, modeCut)
	cmd.Flags().BoolVar(&o.isolated, isolatedFlag, false, "this process is alone in its network namespace")
	cmd.Flags().StringVar(&o.cgroup, cgroupFlag, "", "this process is alone in its namespaces and in this cgroup")
	for _, flag := range []string{isolatedFlag, cgroupFlag} {
		_ = cmd.Flags().MarkHidden(flag) // the flag is there
	}
	return cmd
}

// args are the flags that say the same to a copy of this program.
func (o demoOptions) args() []string {
	return []string{"--mode", o.mode, "--rate", strconv.FormatFloat(o.rate, 'g', -1, 64), "--duration", o.duration.String()}
}

// demoIsolated runs the demo in a copy of this program that has a network
// namespace for itself.
func (a *app) demoIsolated(ctx context.Context, o demoOptions) error {
	code, err := runIsolated(ctx, a.env, syscall.SysProcAttr{}, append([]string{"demo", "--" + isolatedFlag, "--output", a.output}, o.args()...)...)
	if err != nil {
		return fmt.Errorf("demo: --mode %s: %w", o.mode, err)
	}
	if code != 0 {
		return &exitError{code: code} // it said why
	}
	return nil
}

func (a *app) runDemo(ctx context.Context, o demoOptions) error {
	if o.cgroup != "" {
		if err := settle(); err != nil {
			return fmt.Errorf("demo: %w", err)
		}
	}
	dir, err := handshake.TempDir("fairlead-demo-")
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	defer os.RemoveAll(dir)
	local := localOptions{dir: dir, metrics: true, balance: "default", cgroup: o.cgroup}
	if o.mode == modeCut {
		if local.cable, err = layCable(); err != nil {
			return fmt.Errorf("demo: %w", err)
		}
		defer local.cable.close()
	}
	cluster, err := startLocalCluster(ctx, a.env, local)
	defer cluster.stop()
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	result := demoJSON{Mode: o.mode}
	if result.Cluster, err = cluster.json(ctx); err != nil {
		return err
	}
	if a.output == "text" {
		if err := a.printLocal(ctx, cluster); err != nil {
			return err
		}
	}
	d := &demo{app: a, options: o, cluster: cluster, cable: local.cable, result: &result}
	if err := d.run(ctx); err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	if err := a.printDemo(&result); err != nil {
		return err
	}
	if wrong := result.wrong(o.rate); wrong != "" {
		return fmt.Errorf("demo: %s", wrong)
	}
	return nil
}

// demo is one run on a cluster that is ready.
type demo struct {
	app     *app
	options demoOptions
	cluster *localCluster
	cable   *cable
	result  *demoJSON
	failed  time.Time // when the node failed
}

// through is the node whose proxy is used, victim the one that fails.
func (d *demo) through() *localNode { return d.cluster.nodes[0] }
func (d *demo) victim() *localNode  { return d.cluster.nodes[localNodes-1] }

// vip is where the data plane of a node leads connections of the service.
func (d *demo) vip() string { return net.JoinHostPort(localVIPs()[demoService], "80") }

// run sends, lets the node fail in the middle, and gathers what all saw.
func (d *demo) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	before, err := d.counts(ctx)
	if err != nil {
		return err
	}
	d.app.say("\nat least %g GET/s for %v at %s with Host: %s, each sent once, for %v at most:\n\n",
		d.options.rate, d.options.duration, d.through().url(), demoService, demoLimit)
	load := traffic.Config{
		Addr: d.through().proxy, Host: demoService, Rate: d.options.rate * demoPace, For: d.options.duration, Limit: demoLimit,
		Name: instanceHeader, FailHeader: "X-Fairlead-Reason", Now: d.app.env.Now,
	}
	sent, led := make(chan traffic.Result, 1), make(chan traffic.Result, 1)
	go func() { sent <- traffic.Run(ctx, load) }()
	if d.cluster.plane == "" {
		led <- traffic.Result{}
	} else {
		by := load
		by.Addr, by.Rate, by.Fresh = d.vip(), min(d.options.rate, demoVIPRate), true
		d.app.say("and %g connects/s with one GET each to %s, which the data plane %s leads.\n\n", by.Rate, by.Addr, d.cluster.plane)
		go func() { led <- traffic.Run(ctx, by) }()
	}
	middle := time.NewTimer(d.options.duration / 2)
	defer middle.Stop()
	select {
	case <-middle.C:
	case <-ctx.Done():
	}
	watched, err := d.fail(ctx)
	if err != nil {
		cancel()
		<-sent
		<-led
		return err
	}
	result, byVIP := <-sent, <-led
	watched.close()
	if err := watched.await(ctx); err != nil {
		return err
	}
	after, err := d.counts(ctx)
	if err != nil {
		return err
	}
	if d.cluster.plane != "" {
		d.result.VIP = d.takeVIP(byVIP)
		for id, n := range byVIP.Answers { // the instances counted those, too
			if _, ok := after[id]; ok {
				after[id] -= n
			}
		}
	}
	d.result.take(result, d, before, after)
	return ctx.Err()
}

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/core/api/client"
	"github.com/fairlead/fairlead/core/model"
)

// demoTimeout is far above the detection time of the local profile, so that a
// busy host does not fail the demo.
const demoTimeout = 30 * time.Second

// demoStep is one line of the time line.
type demoStep struct {
	Seconds    float64 `json:"t"` // since the kill
	Observer   string  `json:"observer,omitempty"`
	Node       string  `json:"node"`
	Transition string  `json:"transition"`
	From       string  `json:"from,omitempty"` // who told the observer
}

func (a *app) demoCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "demo",
		Short: "Watch three agents notice a failure (10 seconds)",
		Long: `Run three agents on loopback in a temporary directory, kill one with SIGKILL,
and print how and when the others noticed. All times are measured.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := a.signalled(cmd.Context())
			defer cancel()
			err := a.runDemo(ctx)
			if err != nil && ctx.Err() != nil {
				return errors.New("demo: interrupted") // whatever was under way
			}
			return err
		},
	}
}

func (a *app) runDemo(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "fairlead-demo-")
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	defer os.RemoveAll(dir)

	begin := a.env.Now()
	cluster, err := startLocalCluster(ctx, a.env, dir)
	defer cluster.stop()
	if err != nil {
		return err
	}
	a.say("%d agents know each other %.2f s after the first was started:\n\n", localNodes, a.env.Now().Sub(begin).Seconds())
	members, err := cluster.members(ctx)
	if err != nil {
		return err
	}
	if a.output == "text" {
		if err := printMembers(a.env.Stdout, a.env, members); err != nil {
			return err
		}
	}
	return a.demoFailure(ctx, cluster, members)
}

// demoFailure kills the last agent and follows what the others see.
func (a *app) demoFailure(ctx context.Context, cluster *localCluster, members []client.Member) error {
	ctx, cancel := context.WithTimeout(ctx, demoTimeout)
	defer cancel()
	last := len(cluster.nodes) - 1
	victim, observers := cluster.nodes[last], cluster.nodes[:last]

	steps := make(chan demoStep)
	errs := make(chan error, len(observers))
	killed := a.env.Now()
	for _, o := range observers {
		go func() { errs <- observe(ctx, o, victim.name, killed, members, steps) }()
	}
	if err := victim.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		return fmt.Errorf("demo: kill %s: %w", victim.name, err)
	}
	<-victim.done
	a.say("\n")
	if err := a.printStep(demoStep{Node: victim.name, Transition: "killed"}, victim.cmd.Process.Pid); err != nil {
		return err
	}
	var slowest float64
	for finished := 0; finished < len(observers); {
		select {
		case step := <-steps:
			slowest = max(slowest, step.Seconds)
			if err := a.printStep(step, 0); err != nil {
				return err
			}
		case err := <-errs:
			if err != nil {
				return err
			}
			finished++
		}
	}
	a.say("\n%s was killed, and %.2f s later all others knew that it is dead.\n", victim.name, slowest)
	return nil
}

// observe sends what one agent sees of the victim after the kill, and ends
// when it sees it dead.
func observe(ctx context.Context, o *localNode, victim string, killed time.Time, members []client.Member, steps chan<- demoStep) error {
	api, err := client.Dial(ctx, o.socket)
	if err != nil {
		return err
	}
	defer api.Close()
	names := make(map[string]string)
	for _, m := range members {
		names[m.Addr] = m.Name
	}
	for e, err := range api.Events(ctx, 0, true) {
		if err != nil {
			if errors.Is(err, context.DeadlineExceeded) {
				return fmt.Errorf("demo: %s did not see %s dead within %v", o.name, victim, demoTimeout)
			}
			return err
		}
		if e.Member.Name != victim || e.At.Before(killed) {
			continue
		}
		step := demoStep{Seconds: e.At.Sub(killed).Seconds(), Observer: o.name, Node: victim, Transition: e.Kind, From: names[e.From]}
		select {
		case steps <- step:
		case <-ctx.Done():
			return ctx.Err()
		}
		if e.Member.State == model.StateDead {
			return nil
		}
	}
	return fmt.Errorf("demo: %s stopped before it saw %s dead", o.name, victim)
}

func (a *app) printStep(s demoStep, pid int) error {
	if a.output == "json" {
		return printJSON(a.env.Stdout, s)
	}
	var what, colour string
	switch s.Transition {
	case "killed":
		what = fmt.Sprintf("killed %s (kill -9 %d)", s.Node, pid)
	case "suspected":
		what, colour = fmt.Sprintf("%s suspects %s", s.Observer, s.Node), stateColour(model.StateSuspect)
	case "died":
		what, colour = fmt.Sprintf("%s holds %s for dead", s.Observer, s.Node), stateColour(model.StateDead)
	default:
		what = fmt.Sprintf("%s sees %s %s", s.Observer, s.Node, s.Transition)
	}
	if s.From != "" {
		what += ", told by " + s.From
	}
	_, err := fmt.Fprintf(a.env.Stdout, "t+%.2fs  %s\n", s.Seconds, paint(a.env.colour(), colour, what))
	return err
}

// say prints prose, which has no place in JSON.
func (a *app) say(format string, args ...any) {
	if a.output == "text" {
		fmt.Fprintf(a.env.Stdout, format, args...)
	}
}

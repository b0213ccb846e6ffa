package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/fairlead/fairlead/core/api/client"
	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
)

// connections is how many the fake provider at a socket played. It plays them
// only while somebody watches its flows.
func connections(socket string) (n uint64, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	stream, err := pb.NewDataPlaneProviderClient(conn).Stats(ctx, &pb.StatsRequest{})
	if err != nil {
		return 0, err
	}
	m, err := stream.Recv()
	for _, c := range m.GetCounters() {
		if c.GetName() == "connections" {
			n += c.GetValue()
		}
	}
	return n, err
}

// still is nil if the provider played nothing in between.
func still(socket string) error {
	before, err := connections(socket)
	timer := time.NewTimer(100 * time.Millisecond)
	defer timer.Stop()
	<-timer.C
	after, again := connections(socket)
	if err = errors.Join(err, again); err == nil && after != before {
		err = fmt.Errorf("%d connections were played meanwhile", after-before)
	}
	return err
}

// TestObserve: flows go from a real provider through the agent to the command
// line by their names, only while somebody asks for them.
func TestObserve(t *testing.T) {
	t.Parallel()
	a := newHost(t, "fake")
	a.env = append(a.env, "FAIRLEAD_PLUGIN_FAKE_TRAFFIC=2ms")
	a.install("fake", "fake")
	a.start()
	socket := a.socketOf(a.ready("fake", 1))
	a.served(socket)
	if err := still(socket); err != nil {
		t.Fatalf("nobody observes: %v", err)
	}

	output, err := a.run("observe", "-n", "5", "-o", "json", "--service", "web")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(output)), "\n")
	for _, line := range lines {
		var f struct {
			Time                                                     time.Time
			Provider, Service, Frontend, Destination, Instance, Node string
			Verdict, Process, Cgroup                                 string
			PID                                                      int
		}
		if err := json.Unmarshal([]byte(line), &f); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if f.Provider != "fake" || f.Service != "default/web" || f.Frontend != "10.200.0.10:80" || f.Process != "player" || f.PID != 4711 || f.Cgroup != "/fake" ||
			time.Since(f.Time).Abs() > time.Minute {
			t.Errorf("flow %s", line)
		}
		if f.Verdict == "forwarded" && (f.Instance != "web-1" || f.Node != a.name || f.Destination != "127.0.0.1:9001") {
			t.Errorf("flow %s", line)
		}
	}
	if len(lines) != 5 {
		t.Errorf("%d lines: %s", len(lines), output)
	}
	a.eventually(10*time.Second, "the flows end with the observer", func() error { return still(socket) })

	// An observer that is gone without a word is no observer, either.
	follower := a.node.Start(fairlead, []string{"observe", "--api", a.socket()})
	a.eventually(10*time.Second, "the follower shows flows", func() error {
		if !strings.Contains(follower.Output(), "10.200.0.10:80") {
			return fmt.Errorf("it shows %q", follower.Output())
		}
		return nil
	})
	follower.Kill()
	a.eventually(10*time.Second, "the flows end with the killed observer", func() error { return still(socket) })

	// It sees the next life of a provider, too, and one observer does not need another.
	follower = a.node.Start(fairlead, []string{"observe", "-o", "json", "--api", a.socket()})
	a.eventually(10*time.Second, "flows again", func() error { _, err := firstLine(follower.Output()); return err })
	if _, err := a.restart("fake"); err != nil {
		t.Fatal(err)
	}
	shown := len(follower.Output())
	a.eventually(10*time.Second, "flows of the next life", func() error { _, err := firstLine(follower.Output()[shown:]); return err })

	// What the life before showed may have come late: this one may have nothing yet.
	a.eventually(10*time.Second, "the next life is counted", func() error {
		counted, err := a.run("stats", "web")
		if err != nil || !strings.Contains(string(counted), "connections") || !strings.Contains(string(counted), "programmed_endpoints") {
			return fmt.Errorf("stats: %v: %s", err, counted)
		}
		return nil
	})
	if _, err := a.run("stats", "wbe"); err == nil || !strings.Contains(err.Error(), "no node has a service default/wbe") || !strings.Contains(err.Error(), "web") {
		t.Errorf("stats of a service that is not there: %v", err)
	}
	follower.Signal(syscall.SIGINT)
	stopping, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := follower.Wait(stopping); err != nil || follower.ExitCode() != 0 {
		t.Errorf("the follower ended with %v, exit code %d", err, follower.ExitCode())
	}

	// An observer does not keep an agent from stopping.
	err = a.ask(func(_ context.Context, c *client.Client) error {
		for item, err := range c.Observe(t.Context(), client.FlowFilter{}) {
			if item.Began != nil {
				a.proc.Signal(syscall.SIGTERM)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if !errors.Is(err, client.ErrStopped) {
		t.Errorf("the agent stopped, and its observer ended with %v", err)
	}
}

// firstLine is the first whole line of text.
func firstLine(text string) (string, error) {
	line, _, ok := strings.Cut(text, "\n")
	if !ok {
		return "", fmt.Errorf("no whole line in %q", text)
	}
	return line, nil
}

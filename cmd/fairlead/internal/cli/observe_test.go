package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"log/slog"
	"net/netip"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/fairlead/fairlead/core/api"
	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/test/short"
)

// fakeTraffic tells of the same flows each time, and then waits.
type fakeTraffic struct {
	asked     *[]string
	providers []string
	lost      bool
}

func (f fakeTraffic) Observe(ctx context.Context, filter api.FlowFilter) iter.Seq2[api.Observed, error] {
	return func(yield func(api.Observed, error) bool) {
		*f.asked = append(*f.asked, fmt.Sprintf("%v %q 1/%d %d", filter.Service, filter.Verdict, filter.OneIn, filter.Rate))
		if filter.Service.Name == "nope" {
			yield(api.Observed{}, &api.Refusal{Kind: api.ErrNotFound, Err: fmt.Errorf("no node has a service %s", filter.Service)})
			return
		}
		items := []api.Observed{{Began: &f.providers}}
		if f.lost {
			items = append(items, api.Observed{Lost: &api.LostFlows{Slow: 3, OverRate: 4, Provider: 5}})
		}
		for _, flow := range fakeFlows() {
			items = append(items, api.Observed{Flow: &flow})
		}
		for _, item := range items {
			if !yield(item, nil) {
				return
			}
		}
		<-ctx.Done()
		yield(api.Observed{}, ctx.Err())
	}
}

func fakeFlows() []api.Flow {
	at := netip.MustParseAddrPort
	web := model.ServiceKey{Namespace: "default", Name: "web"}
	return []api.Flow{
		{
			At: now(), Provider: "ebpf", Service: web, EndpointID: 0xe1, Instance: "web-1", Node: "n1", Protocol: "tcp",
			Frontend: at("10.200.0.10:80"), Destination: at("10.9.0.1:9001"), Verdict: "forwarded",
			PID: 4711, Process: "curl", Cgroup: "/system.slice/shop.service", CgroupID: 77,
		},
		{
			At: now(), Provider: "ebpf", Service: web, Protocol: "udp", Frontend: at("[fd00::1]:53"), Verdict: "refused", Reason: "empty_refused",
			PID: 1, Process: "a\x1b[2J", CgroupID: 78,
		},
		{
			At: now(), Provider: "l7", Service: model.ServiceKey{Namespace: "ops", Name: "db"}, EndpointID: 0xe2, Protocol: "tcp",
			Source: at("10.0.0.9:5000"), Frontend: at("127.0.0.1:8080"), Destination: at("10.9.0.2:9001"), Verdict: "forwarded",
		},
	}
}

func (f fakeTraffic) Counters(_ context.Context, key model.ServiceKey) (api.Counters, error) {
	*f.asked = append(*f.asked, fmt.Sprintf("counters %v", key))
	web := model.ServiceKey{Namespace: "default", Name: "web"}
	out := api.Counters{Counters: []api.Counter{
		{Provider: "ebpf", Name: "programmed_services", Value: 1},
		{Provider: "ebpf", Service: web, Name: "forwarded", Value: 12},
		{Provider: "ebpf", Service: web, EndpointID: 0xe3, Name: "forwarded", Value: 1},
		{Provider: "ebpf", Service: web, EndpointID: 0xe1, Instance: "web-1", Node: "n1", Name: "forwarded", Value: 11},
		{Provider: "ebpf", Name: "verdict_denied"},
		{Provider: "ebpf", Name: "verdict_empty_refused", Value: 2},
	}}
	if f.lost {
		out.Problems = []api.CounterProblem{{Provider: "l7", Error: "gone"}}
	}
	return out, nil
}

func serveTraffic(t *testing.T, f fakeTraffic) (socket string) {
	t.Helper()
	socket = filepath.Join(short.Dir(t), "api.sock")
	l, err := api.ListenUnix(socket)
	if err != nil {
		t.Fatal(err)
	}
	a := fakeAgent{}
	server := api.NewServer(api.Backend{Identity: a, Members: a, Events: a, Settings: a, Traffic: f}, slog.New(slog.DiscardHandler))
	server.Serve(l, api.AccessAll)
	t.Cleanup(func() { server.Stop(t.Context()) })
	return socket
}

func TestObserveAndStats(t *testing.T) {
	var asked []string
	socket := serveTraffic(t, fakeTraffic{asked: &asked, providers: []string{"ebpf", "l7"}})
	for file, c := range map[string]struct{ args, asked string }{
		"observe.txt":  {"observe -n 3", `/ "" 1/1 100`},
		"observe.json": {"observe -n 3 -o json --service web --verdict refused --sample 1/50 --max-rate 7", `default/web "refused" 1/50 7`},
		"stats.txt":    {"stats", "counters /"},
		"stats.json":   {"stats ops/db -o json", "counters ops/db"},
	} {
		t.Run(c.args, func(t *testing.T) {
			asked = nil
			cmd := newCommand(t)
			if code := cmd.run(append(strings.Fields(c.args), "--api", socket)...); code != 0 || cmd.err.String() != "" {
				t.Fatalf("exit code %d: %s", code, cmd.err.String())
			}
			golden(t, file, cmd.out.String())
			if len(asked) != 1 || asked[0] != c.asked {
				t.Errorf("asked %q, want %q", asked, c.asked)
			}
		})
	}
	lines := 0
	cmd := newCommand(t)
	cmd.run("observe", "-n", "3", "-o", "json", "--api", socket)
	for line := range strings.Lines(cmd.out.String()) {
		var one struct{ Time, Verdict string }
		if err := json.Unmarshal([]byte(line), &one); err != nil || one.Verdict == "" || one.Time == "" {
			t.Errorf("%q: %v", line, err)
		}
		lines++
	}
	if lines != 3 {
		t.Errorf("%d lines", lines)
	}
	cmd = newCommand(t)
	if code := cmd.run("observe", "--service", "nope", "--api", socket); code != ExitFailed || cmd.err.String() != "fairlead: observe: no node has a service default/nope\n" {
		t.Errorf("exit code %d: %s", code, cmd.err.String())
	}
}

func TestObserveSaysWhatIsMissing(t *testing.T) {
	socket := serveTraffic(t, fakeTraffic{asked: new([]string), lost: true})
	cmd := newCommand(t)
	if code := cmd.run("observe", "-n", "1", "--api", socket); code != 0 {
		t.Errorf("exit code %d", code)
	}
	for _, want := range []string{"no data plane runs", "at least 4 connections are not shown: beyond --max-rate", "3 connections are not shown", "5 connections are not shown"} {
		if !strings.Contains(cmd.err.String(), want) {
			t.Errorf("no %q in %q", want, cmd.err.String())
		}
	}
	cmd = newCommand(t)
	if code := cmd.run("observe", "-n", "1", "-o", "json", "--api", socket); code != 0 || !strings.HasPrefix(cmd.out.String(), `{"lost":{"slow":3,"over_rate":4,"provider":5}}`+"\n") {
		t.Errorf("exit code %d: %s", code, cmd.out.String())
	}
	cmd = newCommand(t)
	if code := cmd.run("stats", "--api", socket); code != ExitDegraded || !strings.Contains(cmd.err.String(), "not all counters of l7 are there: gone") {
		t.Errorf("exit code %d: %s", code, cmd.err.String())
	}
}

func TestObserveEndsWithASignal(t *testing.T) {
	socket := serveTraffic(t, fakeTraffic{asked: new([]string), providers: []string{"ebpf"}})
	cmd := newCommand(t)
	cmd.start("observe", "--api", socket)
	cmd.waitOutput(t, "10.9.0.2:9001")
	cmd.signals <- syscall.SIGINT
	if code := cmd.wait(t); code != 0 || cmd.err.String() != "" {
		t.Errorf("exit code %d: %s", code, cmd.err.String())
	}
}

func TestObserveRefusesBadFlags(t *testing.T) {
	for args, want := range map[string]string{
		"observe --sample 0":       `--sample is "0": want 1/N`,
		"observe --sample 1/0":     `--sample is "1/0"`,
		"observe --sample 2/3":     `--sample is "2/3"`,
		"observe --sample 9999999": "1048576",
		"observe --max-rate 0":     "--max-rate is 0: want 1 to 10000",
		"observe --max-rate 10001": "--max-rate is 10001",
		"observe --verdict no":     `--verdict is "no": want forwarded, refused, denied, passed`,
		"observe --service a/b/c":  "--service: ",
		"observe web":              "takes no arguments",
		"stats a b":                "at most 1 argument",
		"stats a/b/c":              "a/b/c",
	} {
		cmd := newCommand(t)
		if code := cmd.run(strings.Fields(args)...); code != ExitUsage || !strings.Contains(cmd.err.String(), want) {
			t.Errorf("%s: exit code %d: %s", args, code, cmd.err.String())
		}
	}
	cmd := newCommand(t)
	if code := cmd.run("__complete", "observe", "--verdict", ""); code != 0 || !strings.HasPrefix(cmd.out.String(), "forwarded\nrefused\n") {
		t.Errorf("completion, exit code %d: %q", code, cmd.out.String())
	}
}

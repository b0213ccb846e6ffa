package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestEBPFObserve: what an application asks the kernel for is shown by the command
// line: when, which process in which cgroup, from which frontend to which endpoint,
// and the verdict with its reason.
func TestEBPFObserve(t *testing.T) {
	f := newFleet(t, 1)
	a := f.agents[0]
	l := newLed(a,
		webAt(instanceOfWeb("a", a.url(9001))),
		object{"name": "idle", "port": 80, "vip": "10.200.0.11", "instances": []object{{"id": "i", "address": a.url(9009), "weight": 0}}},
	)
	a.runs(9001, "a")
	a.start()
	e := l.ready("ebpf", 1)
	a.eventually(10*time.Second, "the plane has both services", func() error {
		if p, err := planeAt(l.socketOf(e)); err != nil || p.services != 2 {
			return fmt.Errorf("%d services, %v", p.services, err)
		}
		return nil
	})
	load, refused := l.dials("--to", vipOfWeb, "--rate", "20"), l.dials("--to", "10.200.0.11:80", "--rate", "20")
	load.answers(a, "a")

	cgroup := filepath.Base(filepath.Dir(l.cgroup)) + "/" + filepath.Base(l.cgroup)
	for _, test := range []struct {
		service, frontend, verdict, reason string
		by                                 *dialer
	}{
		{"web", vipOfWeb, "forwarded", "", load},
		{"idle", "10.200.0.11:80", "refused", "empty_refused", refused},
	} {
		output, err := a.run("observe", "-n", "5", "-o", "json", "--service", test.service)
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSpace(string(output)), "\n")
		if len(lines) != 5 {
			t.Errorf("%d lines: %s", len(lines), output)
		}
		for _, line := range lines {
			var f struct {
				Time                                                     time.Time
				Provider, Service, Frontend, Destination, Instance, Node string
				Protocol, Verdict, Reason, Process, Cgroup               string
				PID                                                      int
			}
			if err := json.Unmarshal([]byte(line), &f); err != nil {
				t.Fatalf("%v: %s", err, line)
			}
			if f.Provider != "ebpf" || f.Service != "default/"+test.service || f.Frontend != test.frontend || f.Verdict != test.verdict || f.Reason != test.reason ||
				f.Protocol != "tcp" || time.Since(f.Time).Abs() > time.Minute {
				t.Errorf("flow %s", line)
			}
			if f.Process != "dialer" || f.PID != test.by.Pid() || !strings.HasSuffix(f.Cgroup, cgroup) {
				t.Errorf("flow of process %d in %s: %s", test.by.Pid(), cgroup, line)
			}
			if test.verdict == "forwarded" && (f.Destination != a.url(9001) || f.Instance != "a" || f.Node != a.name) {
				t.Errorf("flow %s", line)
			}
		}
	}

	// And as people read it, while it comes.
	watching := a.node.Start(fairlead, []string{"observe", "--api", a.socket()})
	shown := func(frontend, pattern string, by *dialer) func() error {
		p := regexp.MustCompile(fmt.Sprintf(`(?m)^\d\d:\d\d:\d\d\.\d{3} +dialer\[%d\] +\S*%s +\S+ +%s%s$`, by.Pid(), regexp.QuoteMeta(cgroup), regexp.QuoteMeta(frontend), pattern))
		return func() error {
			if out := watching.Output(); !p.MatchString(out) {
				return errors.New(out)
			}
			return nil
		}
	}
	a.eventually(10*time.Second, "the one that is led", shown(vipOfWeb, ` → .*`+regexp.QuoteMeta(a.url(9001))+`.* forwarded`, load))
	a.eventually(10*time.Second, "the one that is refused", shown("10.200.0.11:80", `.* refused \(empty_refused\)`, refused))
	watching.Signal(syscall.SIGINT)
	load.stopped(t, "a")
}

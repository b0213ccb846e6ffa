package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/dataplane/conformance"
	"github.com/fairlead/fairlead/test/netns"
	"github.com/fairlead/fairlead/test/scale"
)

// pythonPlane is the path of the data plane in Python. A test that needs it skips
// where its packages cannot be had; root on Debian installs them with make setup.
func pythonPlane(t *testing.T) string {
	t.Helper()
	netns.Require(t)
	const needs = "import sys, grpc, google.protobuf; assert sys.version_info >= (3, 11), sys.version"
	if out, err := exec.Command("/usr/bin/python3", "-c", needs).CombinedOutput(); err != nil {
		what := fmt.Sprintf("the data plane in Python needs python3 of 3.11 or newer, grpcio and protobuf: %v\n%s", err, out)
		if _, err := exec.LookPath("apt-get"); err != nil {
			t.Skip(what)
		}
		t.Fatalf("%srun `make setup` (Debian packages python3-grpcio, python3-protobuf)", what)
	}
	path, err := filepath.Abs("../../contrib/plugins/python-example/fairlead-dataplane-python")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// startPython starts it by itself, at a socket, and waits until it serves.
func startPython(t *testing.T, node *netns.Node, socket string) *netns.Process {
	t.Helper()
	p := node.Start(pythonPlane(t), []string{"--listen", "unix:" + socket}, "PYTHONDONTWRITEBYTECODE=1")
	eventually(t, 10*time.Second, func() error { _, err := planeAt(socket); return err }, "the data plane in Python serves")
	return p
}

// conforms runs the suite in a node where the addresses of the suite can be
// listened at, and returns the outcome of each check.
func conforms(t *testing.T, node *netns.Node, args ...string) map[string]conformance.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute) // a busy machine; 20 s on an idle one
	defer cancel()
	for _, line := range []string{"-4 route add local 198.18.0.0/15 dev lo", "-6 addr add 2001:db8::2/128 dev lo nodad"} {
		if _, err := node.Run(ctx, "ip", strings.Fields(line)...); err != nil {
			t.Fatal(err)
		}
	}
	services := fmt.Sprint(max(200, scale.N(10_000)))
	out, err := node.Run(ctx, fairlead, append([]string{"plugin", "conform", "-o", "json", "--services", services, "--patience", "2m"}, args...)...)
	var report conformance.Report
	if bad := json.Unmarshal([]byte(out), &report); bad != nil {
		t.Fatalf("the suite printed %q: %v, %v", out, bad, err)
	}
	if report.Name != "python" || report.Error != "" {
		t.Errorf("the suite met %q: %s", report.Name, report.Error)
	}
	results := make(map[string]conformance.Result)
	for _, r := range report.Results {
		results[r.ID] = r
		if r.Outcome == conformance.Failed {
			t.Errorf("%s failed: %s", r.ID, r.Evidence)
		}
	}
	return results
}

// TestPythonConformance: the example in Python keeps the contract, as a process of
// the suite's and as one that was there before.
func TestPythonConformance(t *testing.T) {
	t.Parallel()
	path := pythonPlane(t)
	t.Run("exec", func(t *testing.T) {
		t.Parallel()
		node := netns.New(t, netns.Options{Nodes: 1}).Node(0)
		results := conforms(t, node, "--exec", "/usr/bin/env", "--", "PYTHONDONTWRITEBYTECODE=1", path)
		for id, r := range results {
			if r.Outcome == conformance.Skipped && id != "large.limits" { // it has none
				t.Errorf("%s was skipped: %s", id, r.Evidence)
			}
		}
		if len(results) != len(conformance.Checks()) {
			t.Errorf("%d checks ran, want %d", len(results), len(conformance.Checks()))
		}
	})
	t.Run("endpoint", func(t *testing.T) {
		t.Parallel()
		node := netns.New(t, netns.Options{Nodes: 1}).Node(0)
		socket := filepath.Join(shortDir(t), "s")
		startPython(t, node, socket)
		results := conforms(t, node, "--endpoint", "unix:"+socket)
		for _, c := range conformance.Checks() {
			r := results[c.ID]
			excused := strings.Contains(r.Evidence, "a process of its own") || c.ID == "large.limits"
			if r.Outcome != conformance.Passed && (r.Outcome != conformance.Skipped || !excused) {
				t.Errorf("%s is %q: %s", c.ID, r.Outcome, r.Evidence)
			}
		}
	})
}

func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "fl-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// namesItself answers each line at an address with a name and the line.
func namesItself(t *testing.T, node *netns.Node, address, name string) {
	t.Helper()
	l, err := node.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				lines := bufio.NewScanner(conn)
				for lines.Scan() {
					fmt.Fprintf(conn, "%s %s\n", name, lines.Text())
				}
			}()
		}
	}()
}

// talk sends a line on a connection and returns the name in the answer.
func talk(conn net.Conn, line string) (string, error) {
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return "", err
	}
	if _, err := fmt.Fprintln(conn, line); err != nil {
		return "", err
	}
	answer, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return "", err
	}
	name, rest, _ := strings.Cut(strings.TrimSpace(answer), " ")
	if rest != line {
		return "", fmt.Errorf("%q was answered with %q", line, answer)
	}
	return name, nil
}

// TestPythonForwards: under an agent that adopted it, the example in Python leads real
// connections to a VIP to live instances, follows what becomes of them, and
// goes on without the agent.
func TestPythonForwards(t *testing.T) {
	t.Parallel()
	const vip, stray = "10.200.0.10", "10.200.0.11" // the host has one of them
	a := newHost(t, "python")
	socket := a.dir + ".python.sock"
	if _, err := a.node.Run(t.Context(), "ip", "addr", "add", vip+"/32", "dev", "lo"); err != nil {
		t.Fatal(err)
	}
	plane := startPython(t, a.node, socket)
	for name, at := range map[string]string{"web-1": "127.0.0.1:9001", "web-2": "127.0.0.1:9002"} {
		namesItself(t, a.node, at, name)
	}
	a.args = []string{
		"--log.format", "json", "--gossip.profile", "local", "--api.listen", "off", "--dataplane", "python",
		"--plugins", fmt.Sprintf(`{"python":{"socket":%q}}`, socket),
		"--services", `[{"name":"web","port":80,"vip":"` + vip + `","instances":[{"id":"web-1","address":"127.0.0.1:9001"},{"id":"web-2","address":"127.0.0.1:9002"}]},{"name":"db","port":81,"vip":"` + stray + `","instances":[{"id":"db-1","address":"127.0.0.1:9001"}]}]`,
	}
	a.start()
	if life := a.ready("python", 1); life.Kind != "alone" {
		t.Errorf("it is a %s", life.Kind)
	}

	dial := func() (net.Conn, error) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		return a.node.DialContext(ctx, "tcp", vip+":80")
	}
	who := func() (string, error) {
		conn, err := dial()
		if err != nil {
			return "", err
		}
		defer conn.Close()
		return talk(conn, "hello")
	}
	leads := func(only ...string) func() error {
		return func() error {
			seen := make(map[string]bool)
			for range 40 {
				name, err := who()
				if err != nil {
					return err
				}
				seen[name] = true
			}
			for _, name := range only {
				if !seen[name] {
					return fmt.Errorf("nobody reached %s of %v", name, only)
				}
			}
			if len(seen) != len(only) {
				return fmt.Errorf("connections reached %v, want %v", seen, only)
			}
			return nil
		}
	}
	a.eventually(10*time.Second, "connections reach both instances", leads("web-1", "web-2"))

	// A service whose VIP the host does not have is named, and blocks no other.
	trouble := func(want ...string) func() error {
		return func() error {
			p, err := a.plugin("python")
			if err != nil || p.Told == nil {
				return fmt.Errorf("told %v, %v", p.Told, err)
			}
			var got []string
			for _, s := range p.Told.Troubles {
				got = append(got, s.Service+" "+s.Reason)
			}
			if !slices.Equal(got, want) {
				return fmt.Errorf("troubles are %q, want %q", got, want)
			}
			return nil
		}
	}
	a.eventually(10*time.Second, "the service without an address is named", trouble("default/db apply-failed"))

	// A connection stays with its instance while that drains.
	var kept net.Conn
	for kept == nil {
		conn, err := dial()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if name, err := talk(conn, "stay"); err != nil {
			t.Fatal(err)
		} else if name == "web-1" {
			kept = conn
		}
	}
	a.must("maintenance", "on", "--service", "web", "--instance", "web-1")
	a.eventually(10*time.Second, "new connections reach web-2 only", leads("web-2"))
	if _, err := a.node.Run(t.Context(), "ip", "addr", "add", stray+"/32", "dev", "lo"); err != nil {
		t.Fatal(err)
	}
	if name, err := talk(kept, "still"); err != nil || name != "web-1" {
		t.Errorf("the connection to web-1, which drains, is answered by %q, %v", name, err)
	}

	// Without a usable instance a connection is refused, at once.
	a.must("maintenance", "on", "--service", "web", "--instance", "web-2")
	a.eventually(10*time.Second, "connections are refused", func() error {
		if name, err := who(); !errors.Is(err, syscall.ECONNREFUSED) {
			return fmt.Errorf("answered by %q, %v", name, err)
		}
		return nil
	})
	a.must("maintenance", "off", "--service", "web", "--instance", "web-1")
	a.eventually(10*time.Second, "connections reach web-1", leads("web-1"))
	a.eventually(10*time.Second, "the service that has its address now is programmed", trouble())

	// The agent ends; the data plane does not.
	a.kill()
	if err := leads("web-1")(); err != nil {
		t.Errorf("without an agent: %v", err)
	}
	select {
	case <-plane.Done():
		t.Errorf("it ended with the agent:\n%s", plane.Output())
	default:
	}
	if strings.Contains(plane.Output(), "Traceback") {
		t.Errorf("it failed:\n%s", plane.Output())
	}
}

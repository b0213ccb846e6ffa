package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/api/client"
)

// instancePort is where every instance of these tests listens on its node.
const instancePort = 9001

// instance answers GET with 200 on the agent's node until stop.
func (a *agent) instance(port int) (stop func()) {
	a.t.Helper()
	l, err := a.node.Listen("tcp", netip.AddrPortFrom(a.node.Addr(), uint16(port)).String())
	if err != nil {
		a.t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})}
	go server.Serve(l)
	stop = func() { server.Close() }
	a.t.Cleanup(stop)
	return stop
}

// cli runs one command against the agent and returns what it printed.
func (a *agent) cli(args ...string) (stdout string, err error) {
	var out, errs strings.Builder
	cmd := exec.Command(fairlead, append(args, "--api", a.socket())...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err = cmd.Run(); err != nil {
		err = fmt.Errorf("%s: fairlead %s: %w: %s", a.name, strings.Join(args, " "), err, errs.String())
	}
	return out.String(), err
}

func (a *agent) must(args ...string) string {
	a.t.Helper()
	out, err := a.cli(args...)
	if err != nil {
		a.t.Fatal(err)
	}
	return out
}

// endpoints is what `fairlead endpoints` prints, by INSTANCE@NODE.
func (a *agent) endpoints(service string) (map[string]endpoint, error) {
	out, err := a.cli("endpoints", service, "-o", "json")
	if err != nil {
		return nil, err
	}
	var list struct{ Endpoints []endpoint }
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		return nil, err
	}
	by := make(map[string]endpoint)
	for _, e := range list.Endpoints {
		by[e.Instance+"@"+e.Node] = e
	}
	return by, nil
}

type endpoint struct {
	Instance, Node, Reason, Detail, Addr string
	In                                   bool
}

// places is nil when the instances of a service are these, INSTANCE@NODE=REASON.
func (a *agent) places(service string, want ...string) func() error {
	return func() error {
		by, err := a.endpoints(service)
		if err != nil {
			return err
		}
		for _, w := range want {
			name, reason, _ := strings.Cut(w, "=")
			if e, ok := by[name]; !ok || e.Reason != reason || e.In != (reason == "ready" || reason == "draining") {
				return fmt.Errorf("%s shows %s of %s as %+v, want %s", a.name, name, service, e, reason)
			}
		}
		if len(by) != len(want) {
			return fmt.Errorf("%s shows %d instances of %s, want %d", a.name, len(by), service, len(want))
		}
		return nil
	}
}

func (a *agent) writeConfig(name, text string) (path string) {
	a.t.Helper()
	path = filepath.Join(filepath.Dir(a.dir), a.name+".etc", name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		a.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		a.t.Fatal(err)
	}
	return path
}

// An instance that is registered on one node, in whichever way, is an endpoint
// on the others while its check passes, and they say why when it is not.
func TestServicesRegisteredInAllWays(t *testing.T) {
	f := newFleet(t, 3)
	n1, n2, n3 := f.agents[0], f.agents[1], f.agents[2]
	listens := n1.node.Addr().String() + ":" + strconv.Itoa(instancePort)
	check := "checks: [{http: /, interval: 200ms, failures_before_critical: 2}]"
	entry := func(name string, port int) string {
		return fmt.Sprintf("name: %s\nport: %d\ninstances:\n- {id: %s-1, address: %q, %s}\n", name, port, name, listens, check)
	}
	configured := n1.writeConfig("fairlead.yaml", "services:\n- "+strings.ReplaceAll(strings.TrimSpace(entry("web", 80)), "\n", "\n  ")+"\n")
	n1.writeConfig("services.d/api.yaml", entry("api", 81))
	// A drain that nobody misses who stands still for a moment.
	n1.args = []string{"--config", configured, "--shutdown_drain", "5s", "--shutdown_timeout", "15s"}
	stop := n1.instance(instancePort)
	f.start()
	n1.must("register", "mail", "--port", "25", "--instance", "mail-1", "--address", listens, "--check", "http=/,interval=200ms,failures_before_critical=2")

	for _, a := range []*agent{n1, n2, n3} {
		for _, service := range []string{"web", "api", "mail"} {
			f.eventually(10*time.Second, a.name+" has an endpoint of "+service, a.places(service, service+"-1@n1=ready"))
		}
	}
	by, err := n2.endpoints("web")
	if err != nil || by["web-1@n1"].Addr != listens {
		t.Errorf("n2 reaches web at %+v, %v, want %s", by["web-1@n1"], err, listens)
	}
	f.eventually(10*time.Second, "n2 lists them", func() error {
		if out := n2.must("services"); strings.Count(out, "1/1") != 3 {
			return fmt.Errorf("services of n2:\n%s", out)
		}
		return nil
	})

	// The same definition again is no news for anybody.
	recordOf := func(a *agent) (epoch uint64) {
		t.Helper()
		err := a.ask(func(ctx context.Context, c *client.Client) error {
			list, err := c.Services(ctx)
			epoch = list.Epoch
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return epoch
	}
	before := recordOf(n2)
	const times = 20
	for range times {
		again := n1.must("register", "mail", "--port", "25", "--instance", "mail-1", "--address", listens, "--check", "http=/,interval=200ms,failures_before_critical=2")
		if !strings.Contains(again, "nothing changed") {
			t.Errorf("the same again: %s", again)
		}
	}
	// A change that comes after it shows that n2 is up to date.
	n1.must("register", "news", "--port", "119", "--instance", "a", "--address", listens)
	f.eventually(5*time.Second, "n2 knows what came after", n2.places("news", "a@n1=ready"))
	// The definition, and perhaps its states; a busy machine may have missed a check too.
	if after := recordOf(n2); after > before+times/2 {
		t.Errorf("n2's view went from %d to %d", before, after)
	}
	n1.must("deregister", "news")

	// The instance dies: all nodes take it out, and say why.
	stop()
	for _, a := range []*agent{n1, n2, n3} {
		for _, service := range []string{"web", "api", "mail"} {
			f.eventually(10*time.Second, a.name+" has no endpoint of "+service, a.places(service, service+"-1@n1=failing"))
		}
	}
	f.eventually(10*time.Second, "n1 has the check's words", func() error {
		by, err := n1.endpoints("web")
		if err == nil && !strings.Contains(by["web-1@n1"].Detail, "refused") {
			err = fmt.Errorf("n1 says %+v", by["web-1@n1"])
		}
		return err
	})
	n1.instance(instancePort)
	f.eventually(10*time.Second, "n3 has the endpoint again", n3.places("web", "web-1@n1=ready"))

	// kill -9 of the agent, and again: what was registered is kept, also that it passes.
	n1.kill()
	f.eventually(20*time.Second, "n2 takes n1 for dead", n2.places("mail", "mail-1@n1=node-dead"))
	n1.start()
	for _, service := range []string{"web", "api", "mail"} {
		f.eventually(10*time.Second, "n2 has "+service+" of n1 again", n2.places(service, service+"-1@n1=ready"))
	}

	// The file goes, and what a client registered; the configuration stays.
	if err := os.Remove(filepath.Join(filepath.Dir(configured), "services.d", "api.yaml")); err != nil {
		t.Fatal(err)
	}
	n1.must("deregister", "mail", "--instance", "mail-1")
	for _, service := range []string{"api", "mail"} {
		f.eventually(10*time.Second, "n2 has no "+service, func() error {
			if _, err := n2.endpoints(service); err == nil || !strings.Contains(err.Error(), "no node has a service default/"+service) {
				return fmt.Errorf("n2: %v", err)
			}
			return nil
		})
	}
	if _, err := n1.cli("deregister", "web"); err == nil || !strings.Contains(err.Error(), configured+":2 has it") {
		t.Errorf("deregister of a configured service: %v, want the file and line", err)
	}

	// A stop drains before it leaves.
	n1.proc.Signal(syscall.SIGINT)
	f.eventually(5*time.Second, "n2 sees the instance drain", n2.places("web", "web-1@n1=draining"))
	f.eventually(10*time.Second, "n2 sees it gone", n2.places("web", "web-1@n1=node-left"))
}

// Nodes that define a service in two ways are named, and the older word counts,
// everywhere the same.
func TestServicesDisagreement(t *testing.T) {
	f := newFleet(t, 3)
	f.start()
	for i, a := range f.agents[:2] {
		a.must("register", "web", "--port", strconv.Itoa(80+i), "--instance", "a", "--address", a.node.Addr().String()+":9001")
		f.eventually(5*time.Second, "n3 knows of it", func() error {
			by, err := f.agents[2].endpoints("web")
			if err == nil && len(by) != i+1 {
				err = fmt.Errorf("%d instances", len(by))
			}
			return err
		})
	}
	for _, a := range f.agents {
		f.eventually(5*time.Second, a.name+" names who disagrees", func() error {
			var list []struct {
				Ports       []string
				DefinedBy   string `json:"defined_by"`
				Disagreeing []string
			}
			out, err := a.cli("services", "-o", "json")
			if err == nil {
				err = json.Unmarshal([]byte(out), &list)
			}
			if err != nil {
				return err
			}
			if len(list) != 1 || list[0].DefinedBy != "n1" || len(list[0].Ports) != 1 || list[0].Ports[0] != "80/tcp" || len(list[0].Disagreeing) != 1 || list[0].Disagreeing[0] != "n2" {
				return fmt.Errorf("%s: %s", a.name, out)
			}
			return nil
		})
		if out := a.must("endpoints", "web"); !strings.Contains(out, "DIFFERS IN") || !strings.Contains(out, "port 81/tcp") {
			t.Errorf("%s:\n%s", a.name, out)
		}
	}
}

// Whatever is wrong with a registration, it is one error that names the thing,
// and nothing else is harmed.
func TestServicesBadInput(t *testing.T) {
	f := newFleet(t, 1)
	n1 := f.agents[0]
	good := n1.writeConfig("services.d/good.yaml", "name: good\nport: 80\ninstances:\n- {id: a, address: 127.0.0.1:1}\n")
	n1.args = []string{"--services_dir", filepath.Dir(good)}
	f.start()
	f.eventually(5*time.Second, "the good one is there", n1.places("good", "a@n1=ready"))
	for name, c := range map[string]struct {
		text, want string
	}{
		"bad address":   {"name: bad\nport: 80\ninstances:\n- {id: a, address: nowhere}\n", `:4:20: instances[0].address: is "nowhere"; expected ip:port`},
		"unknown check": {"name: bad\nport: 80\ninstances:\n- {id: a, address: 127.0.0.1:1, checks: [{icmp: x, interval: 1s}]}\n", ":4:43: instances[0].checks[0].icmp: unknown key"},
		"duplicate id":  {"name: bad\nport: 80\ninstances:\n- {id: a, address: 127.0.0.1:1}\n- {id: a, address: 127.0.0.1:2}\n", `:5:8: instances[1].id: is "a", like that of instances[0]`},
		"two kinds":     {"name: bad\nport: 80\ninstances:\n- {id: a, address: 127.0.0.1:1, checks: [{http: /, tcp: true, interval: 1s}]}\n", ":4:42: instances[0].checks[0]: is http and tcp at once"},
		"cut off":       {"name: bad\nport: 80\ninstances:\n- {id: a, addr", ":3: not valid YAML"},
		"taken":         {"name: good\nport: 80\n", good + " has it: change it there"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "bad.yaml")
			if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := n1.cli("register", "-f", path)
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(err.Error(), c.want) || strings.Count(err.Error(), "\n") != 1 {
				t.Errorf("register: %v, want exit code 1 and one line with %s", err, c.want)
			}
			if name == "taken" {
				return
			}
			in := n1.writeConfig("services.d/bad.yaml", c.text)
			f.eventually(10*time.Second, "the log names file and line", func() error {
				if out := n1.proc.Output(); !strings.Contains(strings.ReplaceAll(out, `\"`, `"`), in+c.want) {
					return fmt.Errorf("the log lacks %s%s", in, c.want)
				}
				return nil
			})
			if err := n1.places("good", "a@n1=ready")(); err != nil {
				t.Error(err)
			}
		})
	}
}

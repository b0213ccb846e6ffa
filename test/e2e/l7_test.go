package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/api/client"
	"github.com/fairlead/fairlead/test/netns"
	"github.com/fairlead/fairlead/test/scale"
)

const (
	// proxyPort is where the L7 data plane of a node listens.
	proxyPort = 8080
	// webRate is the load of the tests that restart and kill, in GET a second.
	webRate = 200
)

// object is JSON that is written by hand.
type object map[string]any

// web is a host with an agent, the L7 data plane that it hosts, and an instance
// of the service web.
type web struct {
	*agent
	run      *netns.Process // of the instance
	settings object         // of the data plane; nil: the host has none
	services []object       // beyond the one instance of web
}

// webs are all hosts of a topology.
type webs struct {
	*fleet
	hosts []*web
}

// newWebs lays out n hosts whose data plane outlives the agent. Nothing is
// started.
func newWebs(t *testing.T, n int) *webs {
	t.Helper()
	cluster := &webs{fleet: newFleet(t, n)}
	for _, a := range cluster.agents {
		cluster.hosts = append(cluster.hosts, &web{agent: a, settings: object{"listen": a.url(proxyPort), "on_host_loss": "serve"}})
	}
	return cluster
}

// url is where an agent's node listens.
func (a *agent) url(port int) string { return fmt.Sprintf("%v:%d", a.node.Addr(), port) }

// defines is the instance of web in the agents' terms. Its check is slow to say
// that it is gone: so the proxies have to find out.
func (w *web) defines() object {
	return object{
		"id": "web-" + w.name, "address": w.url(instancePort),
		"checks": []object{{"http": "/healthz", "interval": "1s", "failures_before_critical": 3}},
	}
}

// start starts the agent, and with it the data plane, unless that is there.
func (w *web) start() {
	w.t.Helper()
	services := w.services
	if w.run != nil {
		services = append([]object{{"name": "web", "port": 80, "instances": []object{w.defines()}}}, services...)
	}
	plane, plugins := "l7", object{"l7": w.settings}
	if w.settings == nil {
		plane, plugins = "off", nil
	}
	w.args = []string{
		"--dataplane", plane, "--plugins", text(w.t, plugins), "--services", text(w.t, services),
		"--log.format", "json", "--api.listen", "off", "--dns.listen", "off",
	}
	w.env = []string{"FAIRLEAD_PLUGIN_DIRS=" + w.pluginDir()}
	if _, err := os.Stat(w.pluginDir()); err != nil {
		w.install("l7", "l7")
	}
	w.agent.start()
}

// serve starts the instance.
func (w *web) serve(args ...string) {
	w.t.Helper()
	w.run = w.runs(instancePort, w.name, args...)
}

// runs starts an instance that says its name at a port of the node.
func (a *agent) runs(port int, name string, args ...string) *netns.Process {
	a.t.Helper()
	return a.node.Start(filepath.Join(plugins, "instance"), append([]string{"--name", name, "--listen", a.url(port)}, args...))
}

// start starts all, and waits until all proxies send to all instances.
func (cluster *webs) start() {
	cluster.t.Helper()
	for _, w := range cluster.hosts {
		w.serve()
		w.start()
	}
	cluster.eventually(30*time.Second, "all see all alive", cluster.agreed(cluster.agents...))
	for _, w := range cluster.hosts {
		cluster.eventually(30*time.Second, "the proxy of "+w.name+" sends to all", w.reaches(cluster.names()...))
	}
}

func (cluster *webs) names() []string {
	var names []string
	for _, w := range cluster.hosts {
		names = append(names, w.name)
	}
	return names
}

// proxies are the addresses of the data planes.
func (cluster *webs) proxies() []string {
	var at []string
	for _, w := range cluster.hosts {
		at = append(at, w.url(proxyPort))
	}
	return at
}

// reaches is nil when exactly these instances of web answer through the host's
// proxy.
func (w *web) reaches(names ...string) func() error {
	return func() error {
		c := newHTTPConn(w.node, w.url(proxyPort))
		defer c.close()
		seen := map[string]bool{}
		for range 12 * len(names) {
			code, body, err := c.do("GET / HTTP/1.1\r\nHost: web\r\n\r\n", patience)
			if err == nil && code != http.StatusOK {
				err = fmt.Errorf("status %d: %s", code, body)
			}
			if err != nil {
				return fmt.Errorf("proxy of %s: %w", w.name, err)
			}
			seen[body] = true
		}
		if got := slices.Sorted(maps.Keys(seen)); !slices.Equal(got, slices.Sorted(slices.Values(names))) {
			return fmt.Errorf("proxy of %s: answers of %v, want %v", w.name, got, names)
		}
		return nil
	}
}

// standalone makes the host's data plane one that runs by itself and that the
// agent adopts.
func (w *web) standalone(args ...string) *netns.Process {
	w.t.Helper()
	socket := filepath.Join(w.dir+".l7", "provider.sock")
	w.settings = object{"socket": socket}
	return w.alone(append(args, "--provider-socket", socket)...)
}

// text is v as JSON.
func text(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// witness looks at the endpoints of web as agents have them, until it is asked
// for what was not as it should be.
func (cluster *webs) witness(of *web, by ...*web) (done func()) {
	ctx, cancel := context.WithCancel(context.Background())
	type seen struct {
		looks int
		bad   []string
	}
	found := make(chan seen, len(by))
	for _, w := range by {
		go func() {
			var s seen
			defer func() { found <- s }()
			c, err := client.Dial(ctx, w.socket())
			if err != nil {
				s.bad = append(s.bad, err.Error())
				return
			}
			defer c.Close()
			every := time.NewTicker(20 * time.Millisecond)
			defer every.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-every.C:
				}
				detail, err := c.Endpoints(ctx, "web")
				if err != nil {
					if !errors.Is(err, context.Canceled) && ctx.Err() == nil {
						s.bad = append(s.bad, fmt.Sprintf("%s: %v", w.name, err))
						return
					}
					continue
				}
				s.looks++
				there := false
				for _, e := range detail.Endpoints {
					if e.Node == of.name {
						there = true
						// Whether somebody was suspected wrongly is for never to say.
						if e.Reason != "ready" && (e.Reason != "node-suspect" || scale.Factor() >= 1) {
							s.bad = append(s.bad, fmt.Sprintf("%s: %s is %s (%s)", w.name, e.Instance, e.Reason, e.Detail))
						}
					}
				}
				if !there {
					s.bad = append(s.bad, fmt.Sprintf("%s: no instance of %s", w.name, of.name))
				}
			}
		}()
	}
	return func() {
		cluster.t.Helper()
		cancel()
		for range by {
			s := <-found
			if s.looks == 0 {
				cluster.t.Error("nobody looked at the endpoints")
			}
			if len(s.bad) > 0 {
				cluster.t.Errorf("in %d of %d looks the instance of %s was not there or not ready; at first %s", len(s.bad), s.looks, of.name, s.bad[0])
			}
		}
	}
}

// alone starts an L7 data plane that runs by itself, and waits until it serves.
func (a *agent) alone(args ...string) *netns.Process {
	a.t.Helper()
	p := a.node.Start(filepath.Join(plugins, "l7"), append([]string{"serve", "--listen", a.url(proxyPort)}, args...))
	a.eventually(20*time.Second, "the proxy serves", func() error {
		if out := p.Output(); !strings.Contains(out, "msg=serving") {
			return errors.New(out)
		}
		return nil
	})
	return p
}

// lives fails the test if a process has ended.
func lives(t *testing.T, p *netns.Process) {
	t.Helper()
	select {
	case <-p.Done():
		t.Fatalf("%s has ended:\n%s", p, p.Output())
	default:
	}
}

func readAll(r io.ReadCloser) (string, error) {
	b, err := io.ReadAll(r)
	return string(b), errors.Join(err, r.Close())
}

package l7

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/fairlead/fairlead/test/await"
	"github.com/fairlead/fairlead/test/scale"
	"github.com/fairlead/fairlead/test/short"
)

// node is a directory for one agent, which may be started again and again.
type node struct {
	t   *testing.T
	dir string
}

func newNode(t *testing.T) *node { return &node{t: t, dir: short.Dir(t)} }

func (n *node) socket() string { return filepath.Join(n.dir, "api.sock") }

// agent starts the agent with one service, web, and waits until it is up.
func (n *node) agent(dataplane, plugins string, instances ...string) *process {
	n.t.Helper()
	var list strings.Builder
	for i, a := range instances {
		fmt.Fprintf(&list, "      - {id: web-%d, address: %q}\n", i, a)
	}
	file := filepath.Join(n.dir, "fairlead.yaml")
	write(n.t, file, fmt.Sprintf(`node: {name: n1, data_dir: %s/data}
gossip: {bind: "127.0.0.1:0"}
api: {socket: %s, listen: off}
http: {listen: off}
dns: {listen: off}
dataplane: %q
plugins: %s
services:
  - name: web
    port: 80
    instances:
%s`, n.dir, n.socket(), dataplane, plugins, list.String()))
	bin := programs.path(n.t, "fairlead")
	programs.path(n.t, "fairlead-dataplane-l7") // is found beside it
	a := run(n.t, bin, nil, "agent", "--config", file)
	await.For(n.t, "the agent's socket is there", func() bool {
		_, err := os.Stat(n.socket())
		return err == nil
	})
	return a
}

// kill ends an agent as a crash does.
func (n *node) kill(a *process) {
	n.t.Helper()
	a.signal(syscall.SIGKILL)
	a.code()
	_ = os.Remove(n.socket()) // so that agent sees the next one's
}

// answers waits until a proxy answers for web with one of these bodies only.
func answers(t *testing.T, listen string, want ...string) {
	t.Helper()
	c := clientOf(t, listen)
	await.For(t, fmt.Sprintf("the proxy at %s answers with %v", listen, want), func() bool {
		seen := map[string]bool{}
		for range 20 {
			code, body, err := ask(c, "http://web.default.mesh.internal/")
			if err != nil || code != http.StatusOK {
				return false
			}
			seen[body] = true
		}
		for _, w := range want {
			if !seen[w] {
				return false
			}
		}
		return len(seen) == len(want)
	})
}

// A proxy that follows gets what the agent knows, keeps it while the agent is
// gone, and sees what is new when it comes back.
func TestFollow(t *testing.T) {
	a, b := backend(t, "a"), backend(t, "b")
	n := newNode(t)
	// The proxy is there first: it is not ready, and waits.
	p := serve(t, nil, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--follow", "unix:"+n.socket())
	if code, body, err := ask(clientOf(t, p.admin), "http://admin/readyz"); err != nil || code != http.StatusServiceUnavailable {
		t.Errorf("before the first snapshot /readyz says %d %q, %v", code, body, err)
	}
	first := n.agent("off", "{}", address(a))
	answers(t, p.listen, "a")
	if code, body, err := ask(clientOf(t, p.admin), "http://admin/readyz"); err != nil || code != http.StatusOK {
		t.Errorf("after the first snapshot /readyz says %d %q, %v", code, body, err)
	}
	stop := load(t, 2, p.listen, "http://web/", func(body string) bool { return body == "a" || body == "b" })
	n.kill(first)
	p.says(`msg="following the agent was interrupted"`)
	answers(t, p.listen, "a")
	n.agent("off", "{}", address(a), address(b))
	answers(t, p.listen, "a", "b")
	p.signal(syscall.SIGHUP)
	p.says(`msg="the configuration was reloaded"`)
	answers(t, p.listen, "a", "b")
	if stop() == 0 {
		t.Error("there was no load")
	}
	p.signal(syscall.SIGTERM)
	if code := p.code(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// A proxy that runs by itself is adopted, and outlives its agents.
func TestAdopted(t *testing.T) {
	a, b := backend(t, "a"), backend(t, "b")
	n := newNode(t)
	socket := filepath.Join(n.dir, "l7", "provider.sock")
	p := serve(t, nil, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--provider-socket", socket)
	plugins := fmt.Sprintf("{l7: {socket: %q}}", socket)
	agent := n.agent("l7", plugins, address(a))
	answers(t, p.listen, "a")
	stop := load(t, 2, p.listen, "http://web/", func(body string) bool { return body == "a" || body == "b" })
	for i := range scale.N(10) {
		if i%2 == 0 {
			n.kill(agent)
		} else {
			agent.signal(syscall.SIGTERM)
			if code := agent.code(); code != 0 {
				t.Errorf("exit code %d of the agent", code)
			}
		}
		answers(t, p.listen, map[bool]string{true: "a", false: "b"}[i%2 == 0])
		agent = n.agent("l7", plugins, map[bool]string{true: address(b), false: address(a)}[i%2 == 0])
		answers(t, p.listen, map[bool]string{true: "b", false: "a"}[i%2 == 0])
	}
	if stop() == 0 {
		t.Error("there was no load")
	}
	p.signal(syscall.SIGTERM)
	if code := p.code(); code != 0 {
		t.Errorf("exit code %d of the proxy", code)
	}
}

// An agent cannot set what the proxy's own file sets.
func TestAdoptedWithSettings(t *testing.T) {
	n := newNode(t)
	socket := filepath.Join(n.dir, "l7", "provider.sock")
	serve(t, nil, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--provider-socket", socket)
	agent := n.agent("l7", fmt.Sprintf("{l7: {socket: %q, grace: 1s}}", socket), "127.0.0.1:1")
	agent.says(`runs by itself.*take all but socket out of plugins\.l7`)
}

// Under an agent it is a child, and ends with it; with on_host_loss: serve it
// serves on until the next agent adopts it.
func TestChild(t *testing.T) {
	a, b := backend(t, "a"), backend(t, "b")
	for _, loss := range []string{"exit", "serve"} {
		t.Run(loss, func(t *testing.T) {
			n := newNode(t)
			listen := "127.0.0.1:" + freePort(t)
			plugins := fmt.Sprintf("{l7: {listen: %q, on_host_loss: %s, announce_time: 0s}}", listen, loss)
			agent := n.agent("l7", plugins, address(a))
			answers(t, listen, "a")
			if loss == "exit" {
				n.kill(agent)
				await.For(t, "the proxy ends with its agent", func() bool {
					_, _, err := ask(clientOf(t, listen), "http://web/")
					return err != nil
				})
				agent = n.agent("l7", plugins, address(b))
				answers(t, listen, "b")
				agent.signal(syscall.SIGTERM)
				agent.code()
				return
			}
			stop := load(t, 2, listen, "http://web/", func(body string) bool { return body == "a" || body == "b" })
			n.kill(agent)
			answers(t, listen, "a")
			agent = n.agent("l7", plugins, address(b))
			answers(t, listen, "b")
			if stop() == 0 {
				t.Error("there was no load")
			}
			// An agent that does not want it any more ends it.
			agent.signal(syscall.SIGTERM)
			agent.code()
			_ = os.Remove(n.socket())
			agent = n.agent("off", "{}", address(b))
			await.For(t, "the proxy was ended", func() bool {
				_, _, err := ask(clientOf(t, listen), "http://web/")
				return err != nil
			})
			agent.signal(syscall.SIGTERM)
			agent.code()
		})
	}
}

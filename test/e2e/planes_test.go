package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/api/client"
	"github.com/fairlead/fairlead/test/runnable"
)

// made are the programs that only some tests need, by name.
var made struct {
	mu   sync.Mutex
	errs map[string]error
}

// program builds one of them, once.
func program(t *testing.T, name string) string {
	t.Helper()
	made.mu.Lock()
	defer made.mu.Unlock()
	path := filepath.Join(plugins, name)
	err, done := made.errs[name]
	if !done {
		switch name {
		case "deprive":
			err = build(path, "../deprive")
		case "iptables":
			if installed == "" {
				err = build(path, "../../cmd/fairlead-dataplane-iptables")
			} else { // it is beside it
				err = runnable.Copy(filepath.Join(filepath.Dir(installed), "fairlead-dataplane-iptables"), path)
			}
		case "nftables": // a module of its own, as a stranger's would be
			cmd := exec.Command("go", "build", "-o", path, ".")
			cmd.Dir = "../../contrib/plugins/nftables"
			var out []byte
			if out, err = cmd.CombinedOutput(); err != nil {
				err = fmt.Errorf("%w\n%s", err, out)
			}
		}
		if made.errs == nil {
			made.errs = map[string]error{}
		}
		made.errs[name] = err
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// planeHost is a host whose agent runs L4 planes, with two instances of the service
// web.
type planeHost struct {
	*led
}

// newPlaneHost gives an agent of a fleet the wish, these settings of plugins, and all
// plugins of Fairlead's own but ebpf, which it has already. Nothing is started.
func newPlaneHost(a *agent, wish string, settings object, services ...object) *planeHost {
	a.t.Helper()
	h := &planeHost{newLed(a)}
	program(a.t, "iptables")
	a.install("iptables", "iptables")
	if strings.Contains(wish, "nftables") {
		program(a.t, "nftables")
		a.install("nftables", "nftables")
	}
	// Whatever is chosen, ebpf never leads more than this cgroup.
	all := object{"ebpf": object{"cgroup": h.cgroup}}
	for name, s := range settings {
		all[name] = s
	}
	web := webAt(instanceOfWeb("a", a.url(9001)), instanceOfWeb("b", a.url(9002)))
	empty := object{"name": "empty", "port": 80, "vip": "10.200.0.9", "instances": []object{{"id": "none", "address": a.url(9009), "weight": 0}}}
	a.args = []string{
		"--plugins", text(a.t, all), "--services", text(a.t, append([]object{web, empty}, services...)),
		"--log.format", "json", "--gossip.profile", "local", "--api.listen", "off", "--dns.listen", "off", "--http.listen", "127.0.0.1:7403",
	}
	if wish != "" {
		a.args = append(a.args, "--dataplane", wish)
	}
	return h
}

// vipOfEmpty is that of a service whose only instance has no weight.
const vipOfEmpty = "10.200.0.9:80"

// serves starts the instances of web, and the agent, and waits until a plane has all
// services.
func (h *planeHost) serves(plane string, services uint64) client.Plugin {
	h.t.Helper()
	h.runs(9001, "a")
	h.runs(9002, "b")
	h.start()
	return h.programmed(plane, services)
}

// programmed waits until a plane has all services.
func (h *planeHost) programmed(plane string, services uint64) (found client.Plugin) {
	h.t.Helper()
	h.eventually(30*time.Second, plane+" has the services", func() error {
		p, err := h.plugin(plane)
		if err == nil && (p.State != "ready" || p.Told == nil || p.Told.Services != services || p.Told.Error != "") {
			err = fmt.Errorf("%+v, told %+v", p, p.Told)
		}
		found = p
		return err
	})
	return found
}

// plugin is one that the agent runs.
func (h *planeHost) plugin(name string) (found client.Plugin, err error) {
	err = h.ask(func(ctx context.Context, c *client.Client) error {
		list, err := c.Plugins(ctx)
		for _, p := range list.Plugins {
			if p.Name == name {
				found = p
				return err
			}
		}
		return errors.Join(err, fmt.Errorf("%s is not hosted", name))
	})
	return found, err
}

// in runs a command where the agent is, to its end, and returns what it printed.
func (h *planeHost) in(args ...string) (string, error) {
	under := append(h.inside(), args...)
	return h.node.Run(h.t.Context(), under[0], under[1:]...)
}

// does is in for a command that has to work.
func (h *planeHost) does(args ...string) string {
	h.t.Helper()
	out, err := h.in(args...)
	if err != nil {
		h.t.Fatalf("%v: %s", err, out)
	}
	return out
}

// cleanup is the command that cleans up after the agent.
func (h *planeHost) cleanup(args ...string) (string, error) {
	return h.in(append([]string{
		"env", "FAIRLEAD_PLUGIN_DIRS=" + h.pluginDir(), "FAIRLEAD_API_SOCKET=" + h.socket(), "FAIRLEAD_NODE_DATA_DIR=" + h.dir,
		fairlead, "cleanup", "-o", "json",
	}, args...)...)
}

// cleanedUp reads what cleanup says.
func cleanedUp(t *testing.T, out string) (items []struct{ Plugin, Object, Result, Message string }) {
	t.Helper()
	var said struct {
		Items []struct{ Plugin, Object, Result, Message string }
	}
	if err := json.Unmarshal([]byte(out), &said); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return said.Items
}

// refuses fails the test unless each connect of an application to an address is
// refused, the fastest of some within 5 ms: this machine may be busy.
func (h *planeHost) refuses(addr string) {
	h.t.Helper()
	d := h.dials("--to", addr, "--rate", "50")
	defer d.Kill()
	h.eventually(10*time.Second, addr+" refuses", func() error {
		best := time.Hour
		all := d.dials()
		for _, one := range all {
			if !strings.HasSuffix(one.fault, "connect: connection refused") {
				h.t.Fatalf("%s: %+v", addr, one)
			}
			best = min(best, one.ended.Sub(one.began))
		}
		if len(all) < 5 || best > 5*time.Millisecond {
			return fmt.Errorf("the fastest of %d connects took %v, want 5 ms", len(all), best)
		}
		return nil
	})
}

// rewrite puts the same program in place again, as an upgrade does.
func rewrite(t *testing.T, path string) {
	t.Helper()
	err := runnable.Copy(path, path+".new")
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		t.Fatal(err)
	}
}

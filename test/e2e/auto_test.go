package e2e

import (
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

	"github.com/fairlead/fairlead/core/pluginhost"
)

// explained is what `plugin explain -o json` says, as far as these tests read it.
type explained struct {
	Agent    string
	Chosen   []pluginhost.Choice
	Rejected []pluginhost.Rejected
	Warnings []string
	Error    string
}

func (e explained) rejection(name string) string {
	for _, r := range e.Rejected {
		if r.Name == name {
			return r.Refusal.Error()
		}
	}
	return ""
}

func (h *planeHost) explain() explained {
	h.t.Helper()
	out, err := h.run("plugin", "explain", "-o", "json")
	var e explained
	if err == nil {
		err = json.Unmarshal(out, &e)
	}
	if err != nil {
		h.t.Fatalf("%v: %s", err, out)
	}
	return e
}

// metrics are those of the agent.
func (a *agent) metrics() string {
	a.t.Helper()
	transport := &http.Transport{DialContext: a.node.DialContext, DisableKeepAlives: true}
	answer, err := (&http.Client{Transport: transport, Timeout: 30 * time.Second}).Get("http://127.0.0.1:7403/metrics")
	if err != nil {
		a.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		a.t.Fatal(err)
	}
	return string(text)
}

// fails waits for the end of an agent that is to fail at its start.
func (a *agent) fails() string {
	a.t.Helper()
	a.start()
	if err := a.proc.Wait(a.t.Context()); err == nil || a.proc.ExitCode() != 1 {
		a.t.Errorf("it ended with %v, code %d", err, a.proc.ExitCode())
	}
	return a.proc.Output()
}

// TestAuto: where ebpf cannot work, auto takes iptables, tells everywhere why not the
// others, and applications are led; who asks for ebpf by name is told what is missing.
func TestAuto(t *testing.T) {
	for name, test := range map[string]struct {
		without        []string // flags of deprive
		reason, remedy string
	}{
		"no rights":    {[]string{"-drop", "CAP_BPF,CAP_PERFMON,CAP_SYS_ADMIN"}, "CAP_BPF", "CAP_BPF"},
		"no bpf":       {[]string{"-bpf", "ENOSYS"}, "bpf", "CONFIG_BPF_SYSCALL"},
		"no links":     {[]string{"-bpf", "LINK_CREATE=EINVAL"}, "link", "5.7"},
		"no cgroup v2": {[]string{"-no-cgroup2"}, "cgroup", "mount -t cgroup2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newPlaneHost(newFleet(t, 1).agents[0], "auto", nil)
			h.under = append(append(h.inside(), program(t, "deprive")), append(test.without, "--")...)
			h.serves("iptables", 2)

			e := h.explain()
			if len(e.Chosen) != 1 || e.Chosen[0].Name != "iptables" || !e.Chosen[0].Auto || e.Agent == "" {
				t.Errorf("chosen %+v", e.Chosen)
			}
			why := e.rejection("ebpf")
			if !strings.Contains(why, test.reason) || !strings.Contains(why, test.remedy) {
				t.Errorf("ebpf is rejected as %q; want %q and %q in it", why, test.reason, test.remedy)
			}
			if none := e.rejection("nftables"); !strings.Contains(none, "not installed") {
				t.Errorf("nftables is rejected as %q", none)
			}
			for _, command := range []string{"explain", "list"} {
				out, err := h.run("plugin", command)
				if err != nil || !strings.Contains(string(out), test.reason) || !strings.Contains(string(out), test.remedy) {
					t.Errorf("plugin %s: %v\n%s", command, err, out)
				}
			}
			metrics := h.metrics()
			for _, want := range []string{
				`fairlead_dataplane_chosen{how="auto",provider="iptables"} 1`,
				`fairlead_dataplane_rejected{provider="ebpf",verdict="UNSUPPORTED"} 1`,
				`fairlead_dataplane_rejected{provider="nftables",verdict="none"} 1`,
			} {
				if !strings.Contains(metrics, want) {
					t.Errorf("no metric %s", want)
				}
			}
			if said := h.entries("data plane chosen"); len(said) != 1 || !strings.Contains(said[0].Text, test.reason) {
				t.Errorf("the log says %v", said)
			}

			load := h.dials("--to", vipOfWeb, "--rate", "100")
			load.answers(h.agent, "a", "b")
			h.refuses(vipOfEmpty)

			// By name nothing takes its place.
			h.terminate()
			args := h.args
			h.args = append(slices.Clone(args), "--dataplane", "ebpf")
			if out := h.fails(); !strings.Contains(out, test.reason) || !strings.Contains(out, test.remedy) {
				t.Errorf("ebpf by name: %s", out)
			}
			h.args = args
			load.stopped(t, "a", "b")
		})
	}
}

// TestAutoHolds: what was chosen holds over starts of the agent without another probe,
// until a plugin changes; a plane that is installed later and is better is taken then.
func TestAutoHolds(t *testing.T) {
	t.Parallel()
	h := newPlaneHost(newFleet(t, 1).agents[0], "auto", nil)
	h.under = append(append(h.inside(), program(t, "deprive")), "-bpf", "ENOSYS", "--")
	h.serves("iptables", 2)
	again := func(plane, message, other string) {
		t.Helper()
		h.terminate()
		h.start()
		h.programmed(plane, 2)
		if is, not := h.entries(message), h.entries(other); len(is) != 1 || len(not) != 0 {
			t.Errorf("the log says %v, %v; want %q", is, not, message)
		}
	}
	const chosen, before = "data plane chosen", "data plane as before: neither kernel, boot nor plugins changed"
	again("iptables", before, chosen)
	if why := h.explain().rejection("ebpf"); !strings.Contains(why, "bpf") {
		t.Errorf("ebpf is rejected as %q", why)
	}
	rewrite(t, filepath.Join(h.pluginDir(), "fairlead-dataplane-ebpf"))
	again("iptables", chosen, before)
	again("iptables", before, chosen)

	program(t, "nftables")
	h.install("nftables", "nftables")
	again("nftables", chosen, before)
	e := h.explain()
	if len(e.Chosen) != 1 || !e.Chosen[0].Auto || !strings.Contains(e.rejection("iptables"), "nftables") {
		t.Errorf("chosen %+v, rejected %+v", e.Chosen, e.Rejected)
	}
	load := h.dials("--to", vipOfWeb, "--rate", "100")
	load.answers(h.agent, "a", "b")
	load.stopped(t, "a", "b")
}

// TestAutoOfOrdinaryUser: who may alter nothing gets no L4 plane, is told so, and the
// agent goes on with the HTTP proxy.
func TestAutoOfOrdinaryUser(t *testing.T) {
	t.Parallel()
	const nobody = 65534
	h := newPlaneHost(newFleet(t, 1).agents[0], "", object{"l7": object{"listen": "127.0.0.1:8080"}})
	h.install("l7", "l7")
	root := filepath.Dir(h.dir)
	if err := errors.Join(os.Chmod(plugins, 0o755), os.Chmod(root, 0o755), os.Chown(root, nobody, nobody)); err != nil {
		t.Fatal(err)
	}
	h.under = append(h.inside(), "setpriv", "--reuid", fmt.Sprint(nobody), "--regid", fmt.Sprint(nobody), "--clear-groups", "--")
	h.runs(9001, "a")
	h.runs(9002, "b")
	h.start()
	h.eventually(20*time.Second, "the proxy answers", func() error {
		names := map[string]bool{}
		for range 10 {
			name, err := h.asks("127.0.0.1:8080", "web")
			if err != nil {
				return err
			}
			names[name] = true
		}
		if got := slices.Sorted(maps.Keys(names)); !slices.Equal(got, []string{"a", "b"}) {
			return fmt.Errorf("answers of %v", got)
		}
		return nil
	})
	e := h.explain()
	if len(e.Chosen) != 1 || e.Chosen[0].Name != "l7" || len(e.Warnings) != 1 || !strings.Contains(e.Warnings[0], "L4") {
		t.Errorf("chosen %+v, warnings %v", e.Chosen, e.Warnings)
	}
	for _, name := range []string{"ebpf", "iptables"} {
		if why := e.rejection(name); !strings.Contains(why, "CAP_") {
			t.Errorf("%s is rejected as %q", name, why)
		}
	}
	if said := h.entries("data plane"); len(said) != 1 || !strings.Contains(said[0].Text, `"level":"WARN"`) {
		t.Errorf("the log warns %v", said)
	}
	if list, err := h.run("plugin", "list"); err != nil || !strings.Contains(string(list), e.Warnings[0]) && !strings.Contains(string(list), "ebpf") {
		t.Errorf("plugin list: %v\n%s", err, list)
	}
}

// asks sends one request to a proxy of the host and returns who answers.
func (h *planeHost) asks(proxy, service string) (string, error) {
	transport := &http.Transport{DialContext: h.node.DialContext, DisableKeepAlives: true}
	r, err := http.NewRequestWithContext(h.t.Context(), http.MethodGet, "http://"+proxy+"/", nil)
	if err != nil {
		return "", err
	}
	r.Host = service
	answer, err := (&http.Client{Transport: transport, Timeout: 30 * time.Second}).Do(r)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	name, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", answer.Status, name)
	}
	return string(name), err
}

package pluginhost

import (
	"context"
	"errors"
	"net/http/httptest"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fairlead/fairlead/dataplane"
	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
	"github.com/fairlead/fairlead/test/runnable"
)

// found makes a finding; verdict 0 is not installed.
func found(name string, layer dataplane.Layer, v dataplane.Verdict, scopes ...dataplane.Scope) Finding {
	f := Finding{Name: name, Installed: v != 0, Info: dataplane.Info{Name: name, Layers: []dataplane.Layer{layer}, Scopes: scopes}}
	f.Report.Verdict = v
	if v != dataplane.Supported {
		f.Report.Checks = []dataplane.Check{
			{ID: "minor", Result: v, Reason: "a small thing", Remedy: "live with it"},
			{ID: "fine", Required: true, Result: dataplane.Supported, Reason: "good", Remedy: "none"},
			{ID: "kernel", Required: true, Result: v, Reason: "too old", Remedy: "upgrade it"},
		}
	}
	return f
}

func TestDecide(t *testing.T) {
	const (
		yes     = dataplane.Supported
		so      = dataplane.Degraded
		no      = dataplane.Unsupported
		unknown = dataplane.Inconclusive
		missing = dataplane.Verdict(0)
	)
	for _, test := range []struct {
		name                         string
		wish                         string // + written, - default
		ebpf, nftables, iptables, l7 dataplane.Verdict
		chosen                       string
		warning, err                 string
	}{
		{"the first supported wins", "-auto,l7", yes, yes, yes, yes, "ebpf,l7", "", ""},
		{"the next supported", "+auto,l7", no, yes, yes, yes, "nftables,l7", "", ""},
		{"nftables only if installed", "+auto", no, missing, yes, yes, "iptables", "", ""},
		{"supported before degraded", "+auto", so, no, yes, yes, "iptables", "", ""},
		{"degraded if nothing else", "+auto", no, so, so, yes, "nftables", "nftables runs as DEGRADED: kernel: too old; minor: a small thing", ""},
		{"inconclusive never by itself", "+auto", unknown, unknown, no, yes, "", "no L4 provider can run here", ""},
		{"no candidate is a warning", "+auto", no, missing, missing, yes, "", "lead nowhere on this node", ""},
		{"a default that is missing is a warning", "-auto,l7", yes, yes, yes, missing, "ebpf", "l7 does not run: it is not installed: install fairlead-dataplane-l7", ""},
		{"a name that is missing is an error", "+auto,l7", yes, yes, yes, missing, "ebpf", "", "dataplane names l7, which cannot run here: it is not installed"},
		{"a name never falls back", "+ebpf", no, yes, yes, yes, "", "", "dataplane names ebpf, which cannot run here: UNSUPPORTED: kernel: too old; minor: a small thing: upgrade it; live with it"},
		{"a name that is degraded runs", "+ebpf", so, yes, yes, yes, "ebpf", "ebpf runs as DEGRADED", ""},
		{"a name that could not be tested is an error", "+ebpf", unknown, yes, yes, yes, "", "", "dataplane names ebpf, which cannot run here: INCONCLUSIVE: kernel: too old"},
		{"two of one scope", "+ebpf,iptables", yes, yes, yes, yes, "ebpf,iptables", "", "two L4 providers for local traffic, ebpf and iptables"},
		{"auto beside a name of one scope", "+auto,iptables", yes, yes, yes, yes, "ebpf,iptables", "", "two L4 providers for local traffic, ebpf and iptables"},
		{"no wish", "+", yes, yes, yes, yes, "", "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := Wish{Written: test.wish[0] == '+'}
			if list := test.wish[1:]; list != "" {
				w.Names = strings.Split(list, ",")
			}
			all := map[string]Finding{
				"ebpf":     found("ebpf", dataplane.L4, test.ebpf, dataplane.ScopeLocal),
				"nftables": found("nftables", dataplane.L4, test.nftables, dataplane.ScopeLocal, dataplane.ScopeForwarded),
				"iptables": found("iptables", dataplane.L4, test.iptables, dataplane.ScopeLocal, dataplane.ScopeForwarded),
				"l7":       found("l7", dataplane.L7, test.l7, dataplane.ScopeLocal),
			}
			d, err := Decide(w, all)
			if got := names(d); got != test.chosen {
				t.Errorf("chosen %s, want %s", got, test.chosen)
			}
			if got := strings.Join(d.Warnings, "\n"); !strings.Contains(got, test.warning) || test.warning == "" && got != "" {
				t.Errorf("warnings are %q, want %q", got, test.warning)
			}
			if test.err == "" && err != nil || test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)) {
				t.Errorf("error is %v, want %q", err, test.err)
			}
			// Each that was asked about is chosen, or rejected with a reason.
			for _, name := range w.toProbe() {
				rejected := slices.ContainsFunc(d.Rejected, func(r Rejected) bool { return r.Name == name && r.Reason != "" })
				if d.runs(name) == rejected {
					t.Errorf("%s: chosen %v, rejected %v", name, d.runs(name), rejected)
				}
			}
		})
	}
}

func TestDifferentScopesGoTogether(t *testing.T) {
	d, err := Decide(Wish{Names: []string{"a", "b", "a"}, Written: true}, map[string]Finding{
		"a": found("a", dataplane.L4, dataplane.Supported, dataplane.ScopeLocal),
		"b": found("b", dataplane.L4, dataplane.Supported, dataplane.ScopeForwarded),
	})
	if err != nil || names(d) != "a,b" {
		t.Errorf("chosen %s, %v", names(d), err)
	}
}

// A plugin that is there and misbehaves may be mended: it is to run, and another
// is not chosen in its place.
func TestNameThatMisbehavesIsChosenWithItsFault(t *testing.T) {
	for _, written := range []bool{true, false} {
		d, err := Decide(Wish{Names: []string{Auto, "l7"}, Written: written}, map[string]Finding{
			"ebpf":     {Name: "ebpf", Installed: true, Err: errors.New("it does not start")},
			"nftables": found("nftables", dataplane.L4, dataplane.Supported, dataplane.ScopeLocal),
			"iptables": found("iptables", dataplane.L4, dataplane.Supported, dataplane.ScopeLocal),
			"l7":       {Name: "l7", Installed: true, Err: errors.New("it prints garbage")},
		})
		if err != nil || names(d) != "nftables,l7" || d.Chosen[1].Fault != "it prints garbage" || d.Chosen[0].Fault != "" {
			t.Errorf("written %v: chosen %+v, %v", written, d.Chosen, err)
		}
	}
}

// What captures the same connections is refused also if it tells so only later.
func TestClaims(t *testing.T) {
	var c claims
	info := func(layer dataplane.Layer, scopes ...dataplane.Scope) dataplane.Info {
		return dataplane.Info{Layers: []dataplane.Layer{layer}, Scopes: scopes}
	}
	for i, step := range []struct {
		name string
		info dataplane.Info
		err  string
	}{
		{"a", info(dataplane.L4, dataplane.ScopeLocal), ""},
		{"b", info(dataplane.L4, dataplane.ScopeForwarded), ""},
		{"c", info(dataplane.L7, dataplane.ScopeLocal), ""},
		{"d", info(dataplane.L4, dataplane.ScopeForwarded, dataplane.ScopeLocal), "as b does"},
		{"a", info(dataplane.L4, dataplane.ScopeLocal), ""},
		{"b", info(dataplane.L4), ""},
		{"d", info(dataplane.L4, dataplane.ScopeForwarded), ""},
		{"a", info(dataplane.L4, dataplane.ScopeForwarded), "as d does"},
	} {
		err := c.take(step.name, Finding{Info: step.info}.captured())
		if (err == nil) != (step.err == "") || err != nil && !strings.Contains(err.Error(), step.err) {
			t.Errorf("step %d, %s: %v, want %q", i, step.name, err, step.err)
		}
	}
}

func TestAutoWantsL4AndTellsFailures(t *testing.T) {
	d, err := Decide(Wish{Names: []string{Auto}}, map[string]Finding{
		"ebpf":     found("ebpf", dataplane.L7, dataplane.Supported),
		"nftables": {Name: "nftables", Installed: true, Err: errors.New("it does not start")},
		"iptables": {Name: "iptables", Installed: true, Err: refuse("others may write it", "chmod go-w")},
	})
	if err != nil || names(d) != "" {
		t.Errorf("chosen %s, %v", names(d), err)
	}
	for i, want := range []string{"no L4 provider", "it does not start", "others may write it: chmod go-w"} {
		if got := d.Rejected[i].Refusal.Error(); !strings.Contains(got, want) {
			t.Errorf("rejected with %q, want %q", got, want)
		}
	}
}

// The choice is kept until something that it rests on changes, and logged once.
func TestChoiceIsKept(t *testing.T) {
	r := newRig(t, Auto)
	r.cfg.Wish.Written = false
	r.install("ebpf", behaviour{Verdict: dataplane.Unsupported})
	r.install("iptables", behaviour{Verdict: dataplane.Degraded})
	h := r.start()
	if p := r.nextReady(); p.Name != "iptables" {
		t.Errorf("%s runs", p.Name)
	}
	h.Stop()
	log := r.log.String()
	for _, want := range []string{"chosen=iptables", "not_ebpf=\"UNSUPPORTED: kernel-moon: no moon: wait for the night\"", "not_nftables=", "iptables runs as DEGRADED"} {
		if strings.Count(log, want) != 1 {
			t.Errorf("%q is in the log %d times: %s", want, strings.Count(log, want), log)
		}
	}
	kept, ok := ReadChoice(r.cfg.StateDir)
	if !ok || names(kept.Decision) != "iptables" {
		t.Fatalf("kept: %+v", kept)
	}

	// A probe would say something else now, but nobody asks.
	if err := os.WriteFile(behaviourPath(r.dir+"/fairlead-dataplane-ebpf"), []byte(`{}`), 0o644); err != nil {
		t.Fatal(err)
	}
	h = r.start()
	if p := r.nextReady(); p.Name != "iptables" {
		t.Errorf("%s runs after a restart", p.Name)
	}
	h.Stop()
	r.waitLog("data plane as before")

	// A plugin that changes is probed.
	path := r.install("ebpf", behaviour{})
	if err := errorsOf(os.Remove(path), runnable.Copy(executable(t), path)); err != nil {
		t.Fatal(err)
	}
	r.start()
	if p := r.nextReady(); p.Name != "ebpf" {
		t.Errorf("%s runs after ebpf was installed anew", p.Name)
	}
}

// What may be over next time is not held against a plugin until the next boot.
func TestFailureOfAMomentIsNotKept(t *testing.T) {
	for _, passing := range []behaviour{{Mode: "dies"}, {Mode: "call-probe-error"}} {
		t.Run(passing.Mode, func(t *testing.T) {
			r := newRig(t, Auto)
			r.cfg.Wish.Written = false
			path := r.install("ebpf", passing)
			h := r.start()
			if d := h.Decision(); names(d) != "" {
				t.Errorf("%s runs", names(d))
			}
			h.Stop()
			if kept, ok := ReadChoice(r.cfg.StateDir); !ok || len(kept.Decision.Rejected) == 0 {
				t.Errorf("for people there is %+v", kept)
			}
			if err := os.WriteFile(behaviourPath(path), []byte(`{}`), 0o644); err != nil {
				t.Fatal(err)
			}
			r.start()
			if p := r.nextReady(); p.Name != "ebpf" {
				t.Errorf("%s runs", p.Name)
			}
		})
	}
}

func TestProbeThatBreaks(t *testing.T) {
	r := newRig(t)
	r.install("x", behaviour{Mode: "call-probe-error"})
	f := r.find("x")
	if f.Err != nil || f.Report.Verdict != dataplane.Inconclusive || !strings.Contains(reasons(f.Report), "the probe itself broke") {
		t.Errorf("found %+v", f)
	}
	r.install("y", behaviour{Mode: "call-probe-dies"})
	if f := r.find("y"); f.Err == nil {
		t.Errorf("found %+v", f)
	}
	if f := r.find("z"); f.Installed || f.Err == nil {
		t.Errorf("found %+v", f)
	}
}

// One that hangs is a fault, to be tried again, whichever side sees first that the
// time is over: no verdict that ends an agent.
func TestProbeThatIsLate(t *testing.T) {
	h := newRig(t).host()
	h.cfg.Timing.Probe = overdueTime / 2
	i := &instance{name: "x", client: cancelling{}}
	if report, err := h.probe(t.Context(), i); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("found %+v, %v", report, err)
	}
	h.cfg.Timing.Probe = time.Hour
	if report, err := h.probe(t.Context(), i); err != nil || report.Verdict != dataplane.Inconclusive {
		t.Errorf("with time left: found %+v, %v", report, err)
	}
}

// cancelling ends a probe as a server does that sees the deadline before its client.
type cancelling struct{ pb.DataPlaneProviderClient }

func (cancelling) Probe(context.Context, *pb.ProbeRequest, ...grpc.CallOption) (*pb.ProbeResponse, error) {
	return nil, status.Error(codes.Canceled, "stream terminated by RST_STREAM with error code: CANCEL")
}

func TestNoWishRunsNothing(t *testing.T) {
	r := newRig(t)
	r.install("good", behaviour{})
	h := r.start()
	if d := h.Decision(); len(d.Chosen)+len(d.Rejected)+len(d.Warnings) != 0 || len(h.Status()) != 0 {
		t.Errorf("decision is %+v", d)
	}
}

// Two providers of one scope go together where a setting leaves it to one of them,
// and the error says which.
func TestScopesThatDependOnSettings(t *testing.T) {
	both, far := []dataplane.Scope{dataplane.ScopeLocal, dataplane.ScopeForwarded}, []dataplane.Scope{dataplane.ScopeForwarded}
	ebpf := found("ebpf", dataplane.L4, dataplane.Supported, dataplane.ScopeLocal)
	iptables := found("iptables", dataplane.L4, dataplane.Supported, both...)
	iptables.Info.ScopeRules = []dataplane.ScopeRule{{Setting: "mode", Value: "forwarded", Scopes: far}}
	wish := Wish{Names: []string{"ebpf", "iptables"}, Written: true}
	_, err := Decide(wish, map[string]Finding{"ebpf": ebpf, "iptables": iptables})
	if err == nil || !strings.Contains(err.Error(), "two L4 providers for local traffic, ebpf and iptables") || !strings.Contains(err.Error(), "set plugins.iptables.mode to forwarded") {
		t.Errorf("error is %v", err)
	}
	iptables.Config = []byte(`{"mode": "forwarded"}`)
	d, err := Decide(wish, map[string]Finding{"ebpf": ebpf, "iptables": iptables})
	if err != nil || names(d) != "ebpf,iptables" {
		t.Errorf("chosen %s, %v", names(d), err)
	}
	if c := d.Considered[1]; c.Name != "iptables" || len(c.Scopes) != 1 || c.Scopes[0] != "forwarded" {
		t.Errorf("considered %+v", d.Considered)
	}
}

// A choice that is kept holds for settings under which it is none of two providers
// that capture the same connections.
func TestKeptChoiceAndOtherSettings(t *testing.T) {
	r := newRig(t, "a", "b")
	rules := []dataplane.ScopeRule{{Setting: "mode", Value: "far", Scopes: []dataplane.Scope{dataplane.ScopeForwarded}}}
	r.install("a", behaviour{})
	r.install("b", behaviour{Rules: rules, Schema: `{"properties": {"mode": {"type": "string"}}}`})
	far := map[string]Settings{"b": {Values: map[string]any{"mode": "far"}}}
	for _, step := range []struct {
		settings map[string]Settings
		err      string
		log      string
	}{
		{nil, "capture the same connections", "data plane chosen"},
		{far, "", "data plane chosen"},
		{far, "", "data plane as before"},
		{nil, "capture the same connections", "data plane chosen"},
	} {
		r.cfg.Settings = step.settings
		before := len(r.log.String())
		h := r.host()
		_, err := h.Start(t.Context())
		if (err == nil) != (step.err == "") || err != nil && !strings.Contains(err.Error(), step.err) {
			t.Errorf("with %v: %v", step.settings, err)
		}
		if log := r.log.String()[before:]; !strings.Contains(log, step.log) {
			t.Errorf("with %v: %s", step.settings, log)
		}
		if err == nil {
			r.nextReady()
			r.nextReady()
		}
		h.Stop()
	}
	kept, ok := ReadChoice(r.cfg.StateDir)
	if !ok || kept.Key != "" || !strings.Contains(kept.Error, "capture the same connections") || len(kept.Decision.Considered) != 2 {
		t.Errorf("for people there is %+v", kept)
	}
}

// The decision says of each candidate what its probe found, and metrics show it.
func TestDecisionIsExplained(t *testing.T) {
	r := newRig(t, Auto)
	r.install("ebpf", behaviour{Verdict: dataplane.Unsupported})
	r.install("iptables", behaviour{Verdict: dataplane.Degraded})
	h := r.start()
	r.nextReady()
	kept, leaves := h.Explain()
	if len(leaves) != 0 || kept.At.IsZero() || strings.Join(kept.Wish.Names, ",") != Auto {
		t.Errorf("explained by %+v", kept)
	}
	byName := map[string]Considered{}
	for _, c := range kept.Decision.Considered {
		byName[c.Name] = c
	}
	want := FailedCheck{"kernel-moon", true, "UNSUPPORTED", "no moon", "wait for the night"}
	if c := byName["ebpf"]; c.Verdict != "UNSUPPORTED" || len(c.Checks) != 1 || c.Checks[0] != want {
		t.Errorf("ebpf: %+v", c)
	}
	if c := byName["nftables"]; c.Verdict != "" || c.Fault != "it is not installed" {
		t.Errorf("nftables: %+v", c)
	}
	for _, r := range kept.Decision.Rejected { // what nobody named cannot be taken out of dataplane
		if strings.Contains(r.Remedy, "take the name out") {
			t.Errorf("%s: %s", r.Name, r.Remedy)
		}
	}
	again, ok := ReadChoice(r.cfg.StateDir)
	if !ok || !reflect.DeepEqual(again, kept) {
		t.Errorf("kept is\n%+v, in force\n%+v", again, kept)
	}
	wantMetrics(t, r.registry, `fairlead_dataplane_chosen{how="auto",provider="iptables"} 1`,
		`fairlead_dataplane_rejected{provider="ebpf",verdict="UNSUPPORTED"} 1`, `fairlead_dataplane_rejected{provider="nftables",verdict="none"} 1`)
	if _, err := h.Rewish(t.Context(), Wish{Names: []string{"iptables"}, Written: true}); err != nil {
		t.Fatal(err)
	}
	wantMetrics(t, r.registry, `fairlead_dataplane_chosen{how="named",provider="iptables"} 1`)
}

// wantMetrics fails unless the metrics of the choice are these.
func wantMetrics(t *testing.T, registry *prometheus.Registry, want ...string) {
	t.Helper()
	w := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	var got []string
	for line := range strings.Lines(w.Body.String()) {
		if strings.HasPrefix(line, "fairlead_dataplane_") {
			got = append(got, strings.TrimSpace(line))
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("metrics say\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

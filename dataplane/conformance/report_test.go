package conformance_test

import (
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/conformance"
	"github.com/fairlead/fairlead/dataplane/fake"
)

// limited is the fake with limits, which the SDK enforces.
type limited struct{ *fake.Provider }

func (l limited) Info() dataplane.Info {
	info := l.Provider.Info()
	info.Limits = dataplane.Limits{Services: 40, Endpoints: 300, EndpointsPerService: 8}
	return info
}

// A provider with limits is tested up to them.
func TestLimits(t *testing.T) {
	report := conformance.Run(t.Context(), conformance.Target{Endpoint: serve(t, limited{fake.New()})}, conformance.Options{})
	if !report.OK() || report.Result("large.limits").Outcome != conformance.Passed {
		t.Errorf("failed %v %s; large.limits: %+v", report.Failed(), report.Error, report.Result("large.limits"))
	}
}

func TestReportText(t *testing.T) {
	r := conformance.Report{Target: "unix:/s", Name: "mine", Version: "1", Results: []conformance.Result{
		{ID: "a.good", Outcome: conformance.Passed, Elapsed: 2 * time.Millisecond},
		{ID: "a.bad", Outcome: conformance.Failed, Demand: "be good", Evidence: "was\x1b[31m\nbad", Remedy: "do better"},
		{ID: "b.none", Outcome: conformance.Skipped, Evidence: "not here"},
	}}
	var b strings.Builder
	if err := r.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	const want = `CHECK   RESULT  TIME  EVIDENCE
a.good  pass    2ms   
a.bad   fail    0s    was [31m bad
b.none  skip    0s    not here

a.bad
  demanded  be good
  seen      was [31m bad
  remedy    do better

mine 1: 1 passed, 1 failed, 1 skipped
`
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
	if r.OK() || r.Result("c").ID != "" || strings.Join(r.Failed(), ",") != "a.bad" {
		t.Errorf("OK %v, failed %v", r.OK(), r.Failed())
	}
	b.Reset()
	r = conformance.Report{Target: "unix:/s", Error: "gone"}
	if err := r.WriteText(&b); err != nil || r.OK() || !strings.Contains(b.String(), "unix:/s: 0 passed") || !strings.Contains(b.String(), "not run to its end: gone") {
		t.Errorf("%v: %s", err, b.String())
	}
}

func TestTargetsThatCannotBe(t *testing.T) {
	for want, c := range map[string]struct {
		target  conformance.Target
		options conformance.Options
	}{
		"either an executable or an endpoint": {},
		"want unix:PATH":                      {target: conformance.Target{Endpoint: "tcp:1"}},
		"below 0":                             {target: conformance.Target{Exec: "true"}, options: conformance.Options{Services: -1}},
		"neither a check nor a group":         {target: conformance.Target{Exec: "true"}, options: conformance.Options{Only: []string{"x"}}},
		"file not found":                      {target: conformance.Target{Exec: "no-such-program"}},
		"before it listened":                  {target: conformance.Target{Exec: "false"}},
		"first line of its standard output":   {target: conformance.Target{Exec: "echo", Args: []string{"1|2|tcp|x|grpc"}, Child: true}},
		"does not answer Info":                {target: conformance.Target{Endpoint: "unix:/no/such/socket"}},
	} {
		if r := conformance.Run(t.Context(), c.target, c.options); !strings.Contains(r.Error, want) || r.OK() || len(r.Results) > 0 {
			t.Errorf("%+v: error %q, want %q", c.target, r.Error, want)
		}
	}
}

// Each check says what it demands and what to do, and has a name of its own.
func TestChecksAreDescribed(t *testing.T) {
	seen := make(map[string]bool)
	for _, c := range conformance.Checks() {
		if group := c.Group(); group == "" || group == c.ID || seen[c.ID] || !strings.HasSuffix(c.Demand, ".") || c.Remedy == "" || strings.HasSuffix(c.Remedy, ".") {
			t.Errorf("check %q of group %q: demand %q, remedy %q", c.ID, group, c.Demand, c.Remedy)
		}
		seen[c.ID] = true
	}
}

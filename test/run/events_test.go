package main

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestReporterCountsWhatEnded(t *testing.T) {
	events := `
{"Action":"start","Package":"m/a"}
{"Action":"output","Package":"m/a","Test":"TestRoot","Output":"=== RUN   TestRoot\n"}
{"Action":"output","Package":"m/a","Test":"TestRoot","Output":"    a_test.go:9: needs root\n"}
{"Action":"output","Package":"m/a","Test":"TestRoot","Output":"--- SKIP: TestRoot (0.00s)\n"}
{"Action":"skip","Package":"m/a","Test":"TestRoot","Elapsed":0}
{"Action":"pass","Package":"m/a","Test":"TestOne/sub","Elapsed":0}
{"Action":"pass","Package":"m/a","Test":"TestOne","Elapsed":0}
{"Action":"pass","Package":"m/a","Elapsed":1}
{"Action":"skip","Package":"m/notests","Elapsed":0}
{"Action":"output","Package":"m/b","Test":"TestBad","Output":"    b_test.go:3: got 1, want 2\n"}
{"Action":"fail","Package":"m/b","Test":"TestBad","Elapsed":0}
{"Action":"fail","Package":"m/b","Elapsed":1}
{"Action":"start","Package":"m/killed"}
not json
`
	var out bytes.Buffer
	r := &Reporter{Out: &out, Module: "m", Budgets: Budgets{{Pattern: "...", Short: time.Minute, Long: time.Minute}}}
	if err := r.Read(strings.NewReader(strings.TrimSpace(events))); err != nil {
		t.Fatal(err)
	}
	if want := (Tally{Passed: 2, Failed: 1, Skipped: 1}); r.Tally != want {
		t.Errorf("tally %v, want %v", r.Tally, want)
	}
	for _, want := range []string{
		"ok   a ", "skipped TestRoot: a_test.go:9: needs root",
		"FAIL b ", "got 1, want 2", "not json",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("report lacks %q:\n%s", want, out.String())
		}
	}
	if want := []string{"b TestBad\n         b_test.go:3: got 1, want 2"}; !slices.Equal(r.Failures, want) {
		t.Errorf("failures %q, want %q", r.Failures, want)
	}
	if lost := r.Lost(); len(lost) != 1 || lost[0] != "m/killed" {
		t.Errorf("Lost() = %v, want [m/killed]", lost)
	}
	if r.Tally.Failed != 2 {
		t.Errorf("%d failed after Lost, want 2", r.Tally.Failed)
	}
}

func TestClosingLine(t *testing.T) {
	if got := (Tally{3, 0, 1}).String(); got != "3 passed, 0 failed, 1 skipped" {
		t.Errorf("closing line %q", got)
	}
}

// What is named at the end: the test that failed and not those around it, with
// no more than the beginning and the end of what it said itself, and what no test accounts
// for.
func TestReporterNamesFailures(t *testing.T) {
	var events strings.Builder
	for n := range 100 {
		fmt.Fprintf(&events, `{"Action":"output","Package":"m/a","Test":"TestA/deep/er","Output":"line %d\n"}`+"\n", n)
		events.WriteString(`{"Action":"output","Package":"m/a","Test":"TestA/deep/er","Output":"   time=12:00 level=INFO msg=left\n"}` + "\n")
	}
	events.WriteString(`
{"Action":"fail","Package":"m/a","Test":"TestA/deep/er","Elapsed":0}
{"Action":"fail","Package":"m/a","Test":"TestA/deep","Elapsed":0}
{"Action":"fail","Package":"m/a","Test":"TestA","Elapsed":0}
{"Action":"fail","Package":"m/a","Test":"TestAB","Elapsed":0}
{"Action":"fail","Package":"m/a","Elapsed":1}
{"Action":"output","Package":"m/b","Output":"panic: in TestMain\n"}
{"Action":"fail","Package":"m/b","Elapsed":1}
{"Action":"pass","Package":"m/c","Test":"TestC","Elapsed":1}
{"Action":"pass","Package":"m/c","Elapsed":100}
`)
	r := &Reporter{Out: io.Discard, Module: "m", Budgets: Budgets{{Pattern: "...", Short: time.Minute, Long: time.Minute}}}
	if err := r.Read(strings.NewReader(events.String())); err != nil {
		t.Fatal(err)
	}
	if len(r.Failures) != 4 {
		t.Fatalf("failures %q", r.Failures)
	}
	if first := r.Failures[0]; strings.Count(first, "\n") != closingLines+1 || !strings.HasSuffix(first, "     ...\n"+ends(88, 100)) {
		t.Errorf("failure %q", first)
	}
	for i, want := range []string{"a TestA/deep/er\n     line 0\n", "a TestAB\n", "b\n     panic: in TestMain", "c\n     over budget: "} {
		if !strings.HasPrefix(r.Failures[i], want) {
			t.Errorf("failure %d is %q, want %q first", i, r.Failures[i], want)
		}
	}
}

// ends are the lines of a test from one to before another.
func ends(from, to int) string {
	var b strings.Builder
	for n := from; n < to; n++ {
		fmt.Fprintf(&b, "     line %d\n", n)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// A package that took long only because the machine was busy is within its
// budget; one that computed as long itself, or that nothing kept waiting, is not.
func TestBudgetOnABusyMachine(t *testing.T) {
	began := time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC)
	events := func(cpu string) string {
		return `{"Time":"2026-01-02T03:04:00Z","Action":"start","Package":"m/a"}
{"Time":"2026-01-02T03:04:10Z","Action":"pass","Package":"m/a","Test":"TestA","Elapsed":60}
{"Time":"2026-01-02T03:05:00Z","Action":"output","Package":"m/a","Output":"run: cpu seconds ` + cpu + `\n"}
{"Time":"2026-01-02T03:05:00Z","Action":"pass","Package":"m/a","Elapsed":60}
`
	}
	for name, c := range map[string]struct {
		runnable int
		cpu      string
		over     bool
	}{
		"busy, waits":    {20, "3", false},
		"busy, computes": {20, "90", true},
		"idle":           {1, "3", true},
	} {
		var out bytes.Buffer
		m := &Meter{Cores: 2}
		m.add(began.Add(time.Second), c.runnable)
		r := &Reporter{Out: &out, Module: "m", Budgets: Budgets{{Pattern: "...", Short: 20 * time.Second, Long: time.Minute}}, Load: m}
		if err := r.Read(strings.NewReader(events(c.cpu))); err != nil {
			t.Fatal(err)
		}
		if over := r.Tally.Failed > 0; over != c.over || strings.Contains(out.String(), "over budget") != c.over {
			t.Errorf("%s: over budget %v, want %v:\n%s", name, over, c.over, out.String())
		}
		if !strings.Contains(out.String(), c.cpu+".0 s of CPU") || strings.Contains(out.String(), cpuPrefix) {
			t.Errorf("%s: the CPU of the package is not reported:\n%s", name, out.String())
		}
	}
}

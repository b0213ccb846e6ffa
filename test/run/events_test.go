package main

import (
	"bytes"
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

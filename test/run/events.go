package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// Event is one line of `go test -json` (go doc test2json).
type Event struct {
	Time       time.Time
	Action     string
	Package    string
	ImportPath string // of build-output and build-fail, instead of Package
	Test       string
	Elapsed    float64 // seconds
	Output     string
}

// Tally counts what a run showed. Subtests count like tests.
type Tally struct{ Passed, Failed, Skipped int }

// String is the closing line of a run; CI reads it.
func (t Tally) String() string {
	return fmt.Sprintf("%d passed, %d failed, %d skipped", t.Passed, t.Failed, t.Skipped)
}

func (t *Tally) add(o Tally) {
	t.Passed += o.Passed
	t.Failed += o.Failed
	t.Skipped += o.Skipped
}

// Reporter turns the events of go test into one line per package, followed by
// the output of what failed and the reason of what was skipped.
type Reporter struct {
	Out     io.Writer
	Module  string  // import path of the module, left off in reports
	Budgets Budgets // nil: no budget is held
	Long    bool
	Load    *Meter // nil: the machine has nothing else to do

	Tally Tally
	// Failures names what failed, each with the end of what it said.
	Failures []string

	packages map[string]*packageLog
}

// packageLog holds what one package said until it ends.
type packageLog struct {
	began  time.Time
	cpu    time.Duration // of the test binary and its children, 0 if not measured
	tally  Tally
	output map[string][]string // by test; "" is the package's own
	failed []string
	skips  []string // "Test: reason", top level only
}

// Read consumes events until r ends. Lines that are no events (a build failure
// of an older go, a crash of go test) are printed as they are.
func (r *Reporter) Read(in io.Reader) error {
	if r.packages == nil {
		r.packages = map[string]*packageLog{}
	}
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			var e Event
			if json.Unmarshal([]byte(line), &e) != nil || e.Action == "" {
				fmt.Fprintln(r.Out, strings.TrimRight(line, "\n"))
			} else {
				r.event(e)
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("run: output of go test: %w", err)
		}
	}
}

func (r *Reporter) event(e Event) {
	if e.Action == "build-output" {
		fmt.Fprint(r.Out, e.Output)
		return
	}
	if e.Package == "" {
		return
	}
	log := r.packages[e.Package]
	if log == nil {
		log = &packageLog{began: e.Time, output: map[string][]string{}}
		r.packages[e.Package] = log
	}
	if e.Action == "output" {
		if cpu, ok := parseCPU(e.Output); ok {
			log.cpu = cpu
			return
		}
		log.output[e.Test] = append(log.output[e.Test], e.Output)
		return
	}
	if e.Test == "" {
		r.end(e, log)
		return
	}
	switch e.Action {
	case "pass":
		log.tally.Passed++
	case "fail":
		log.tally.Failed++
		log.failed = append(log.failed, e.Test)
		return // the output is shown at the end
	case "skip":
		log.tally.Skipped++
		log.skips = append(log.skips, e.Test+": "+skipReason(log.output[e.Test]))
	default:
		return
	}
	delete(log.output, e.Test)
}

// end reports a package whose last event has come.
func (r *Reporter) end(e Event, log *packageLog) {
	name := strings.TrimPrefix(e.Package, r.Module+"/")
	took := time.Duration(e.Elapsed * float64(time.Second))
	switch e.Action {
	case "skip": // no test files
		delete(r.packages, e.Package)
		return
	case "pass", "fail":
	default:
		return
	}
	over := ""
	if r.Budgets != nil {
		over = r.exceeded(name, took, e.Time, log)
	}
	verdict := "ok  "
	if e.Action == "fail" || over != "" {
		verdict = "FAIL"
	}
	// A failure that no test accounts for: a build error, an exit in TestMain,
	// a panic, a timeout. Count the package, so that it cannot get lost.
	if e.Action == "fail" && log.tally.Failed == 0 {
		log.tally.Failed++
		r.failed(name, log.output[""])
	}
	if over != "" {
		log.tally.Failed++
		r.failed(name, []string{"over budget: " + over})
	}
	for _, test := range log.failed {
		inside := func(other string) bool { return strings.HasPrefix(other, test+"/") }
		if !slices.ContainsFunc(log.failed, inside) { // else it fails for the one inside
			r.failed(name+" "+test, log.output[test])
		}
	}
	// Written at once, as other groups may report at the same time.
	var out strings.Builder
	fmt.Fprintf(&out, "%s %-38s %6.1f s, %6.1f s of CPU  %s\n", verdict, name, took.Seconds(), log.cpu.Seconds(), log.tally)
	for _, s := range log.skips {
		fmt.Fprintf(&out, "     skipped %s\n", s)
	}
	if over != "" {
		fmt.Fprintf(&out, "     over budget: %s\n", over)
	}
	if e.Action == "fail" {
		log.dump(&out)
	}
	fmt.Fprint(r.Out, out.String())
	r.Tally.add(log.tally)
	delete(r.packages, e.Package)
}

// closingLines is how much of the output of a failed test is repeated at the end,
// half from its beginning and half from its end: a log of which only the end is kept
// should still say what failed.
const closingLines = 24

func (r *Reporter) failed(what string, output []string) {
	// What processes under test logged is in the package's own report; here it would
	// push out the few lines in which the test says what it missed.
	output = slices.DeleteFunc(slices.Clone(output), isLog)
	if len(output) > closingLines {
		output = slices.Concat(output[:closingLines/2], []string{"...\n"}, output[len(output)-closingLines/2:])
	}
	r.Failures = append(r.Failures, what+"\n"+indent([]byte(strings.TrimRight(strings.Join(output, ""), "\n"))))
}

// isLog tells whether a line was written by slog's text handler, whatever stands before it.
func isLog(line string) bool {
	return strings.HasPrefix(strings.TrimSpace(line), "time=") && strings.Contains(line, " level=") && strings.Contains(line, " msg=")
}

// exceeded explains by how much a package overran its budget; "" if it did not.
func (r *Reporter) exceeded(name string, took time.Duration, ended time.Time, log *packageLog) string {
	share, cores := 1.0, 1
	if r.Load != nil {
		share, cores = r.Load.Share(log.began, ended), r.Load.Cores
	}
	over := r.Budgets.Exceeded(name, Charge(took, log.cpu, share, cores), r.Long)
	if over == "" || share == 1 {
		return over
	}
	return fmt.Sprintf("%s; by the clock it took %.1f s, in which the machine could give %.0f %% of the CPU that all asked for",
		over, took.Seconds(), 100*share)
}

// dump writes the output of failed tests, parents after their subtests, then
// what belongs to no test: it holds panics and build errors.
func (log *packageLog) dump(out io.Writer) {
	for _, test := range append(log.failed, "") {
		for _, line := range log.output[test] {
			if test == "" && line == "FAIL\n" {
				continue
			}
			fmt.Fprint(out, "     "+line)
		}
		delete(log.output, test)
	}
	// Tests that never ended, because the process did.
	for _, test := range slices.Sorted(maps.Keys(log.output)) {
		for _, line := range log.output[test] {
			fmt.Fprint(out, "     "+line)
		}
	}
}

// Lost names the packages that began and never reported an end: go test was
// killed. Each counts as a failure.
func (r *Reporter) Lost() []string {
	names := slices.Sorted(maps.Keys(r.packages))
	r.Tally.Failed += len(names)
	r.packages = nil
	return names
}

// skipReason finds what a test said when it skipped itself: the last line that
// is neither the runner's frame nor empty.
func skipReason(output []string) string {
	reason := "no reason given"
	for _, line := range output {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "=== ") || strings.HasPrefix(line, "--- ") {
			continue
		}
		reason = line
	}
	return reason
}

package conformance

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// Outcome is what came out of a check.
type Outcome string

// The outcomes.
const (
	Passed  Outcome = "pass"
	Failed  Outcome = "fail"
	Skipped Outcome = "skip"
)

// Result is what one check found.
type Result struct {
	ID       string        `json:"id"`
	Outcome  Outcome       `json:"outcome"`
	Demand   string        `json:"demand"`
	Evidence string        `json:"evidence,omitempty"` // what was seen, or why it was skipped
	Remedy   string        `json:"remedy,omitempty"`   // of a failed one
	Elapsed  time.Duration `json:"elapsed_ns"`
}

// Report is the result of Run.
type Report struct {
	Target  string   `json:"target"`
	Name    string   `json:"name,omitempty"`
	Version string   `json:"version,omitempty"`
	Results []Result `json:"results"`
	// Error says why the suite could not run, or not to its end.
	Error string `json:"error,omitempty"`
}

// OK reports whether the suite ran to its end and no check failed.
func (r Report) OK() bool { return r.Error == "" && r.Count(Failed) == 0 }

// Count is the number of checks with an outcome.
func (r Report) Count(o Outcome) int {
	n := 0
	for _, res := range r.Results {
		if res.Outcome == o {
			n++
		}
	}
	return n
}

// Failed lists the ids of the checks that failed.
func (r Report) Failed() []string {
	var ids []string
	for _, res := range r.Results {
		if res.Outcome == Failed {
			ids = append(ids, res.ID)
		}
	}
	return ids
}

// Result returns what a check found; the zero Result if it did not run.
func (r Report) Result(id string) Result {
	for _, res := range r.Results {
		if res.ID == id {
			return res
		}
	}
	return Result{}
}

// WriteText prints the report for people: a table, then each failure with what
// was demanded, what was seen and what to do.
func (r Report) WriteText(w io.Writer) error {
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "CHECK\tRESULT\tTIME\tEVIDENCE")
	for _, res := range r.Results {
		fmt.Fprintf(t, "%s\t%s\t%v\t%s\n", res.ID, res.Outcome, res.Elapsed.Round(time.Millisecond), oneLine(res.Evidence))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, res := range r.Results {
		if res.Outcome == Failed {
			fmt.Fprintf(&b, "\n%s\n  demanded  %s\n  seen      %s\n  remedy    %s\n", res.ID, res.Demand, oneLine(res.Evidence), res.Remedy)
		}
	}
	fmt.Fprintf(&b, "\n%s: %d passed, %d failed, %d skipped\n", r.title(), r.Count(Passed), r.Count(Failed), r.Count(Skipped))
	if r.Error != "" {
		fmt.Fprintf(&b, "The suite did not run to its end: %s\n", r.Error)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (r Report) title() string {
	if r.Name == "" {
		return r.Target
	}
	return r.Name + " " + r.Version
}

// oneLine keeps text of the provider from breaking the table.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, s)
}

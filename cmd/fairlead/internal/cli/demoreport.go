package cli

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/traffic"
	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/reconcile"
)

// demoJSON is what `demo -o json` prints. Scripts rely on it: keys are added at
// the end and never renamed. Times are seconds since the failure.
type demoJSON struct {
	Mode     string         `json:"mode"`
	Cluster  localJSON      `json:"cluster"`
	TimeLine []demoStep     `json:"time_line"`
	Requests int            `json:"requests"`
	Errors   int            `json:"errors"`
	Causes   map[string]int `json:"causes"` // of the errors
	// FirstError is when the first request that failed was begun; null: none.
	FirstError *float64 `json:"first_error"`
	Rate       float64  `json:"rate"` // requests a second that were begun
	P50        float64  `json:"p50_seconds"`
	P99        float64  `json:"p99_seconds"`
	Max        float64  `json:"max_seconds"`
	// LastSent is when the proxy last noticed that a request which it had sent to
	// the failed node, or begun to, brought no answer, and LastTry the same with
	// connects that were refused; null: never.
	LastSent *float64     `json:"last_sent"`
	LastTry  *float64     `json:"last_try"`
	Answers  []demoAnswer `json:"answers"`
	// Resolution is by how much these two may be late: the longest time, in
	// seconds, between two reads of what the proxy counts.
	Resolution float64 `json:"resolution_seconds"`
	// VIP is what became of the connects to it; it is not there without a data plane
	// that leads them.
	VIP *demoVIP `json:"vip,omitempty"`
}

// demoVIP is what clients of a VIP noticed. One connect has one request.
type demoVIP struct {
	Address  string            `json:"address"`
	Plane    string            `json:"plane"`
	Connects int               `json:"connects"`
	Errors   int               `json:"errors"`
	Causes   map[string]int    `json:"causes"`
	Answers  map[string]uint64 `json:"answers"` // by instance
	P50      float64           `json:"p50_seconds"`
	P99      float64           `json:"p99_seconds"`
	// FirstError and LastError are when the first and the last connect that failed
	// were begun, in seconds since the failure; null: none.
	FirstError *float64 `json:"first_error"`
	LastError  *float64 `json:"last_error"`
	// AfterGone is LastError in seconds since the agent took the instance out.
	AfterGone *float64 `json:"last_error_after_gone"`
}

// takeVIP holds the connects to the VIP against the time line.
func (d *demo) takeVIP(t traffic.Result) *demoVIP {
	v := &demoVIP{
		Address: d.vip(), Plane: d.cluster.plane, Connects: t.Requests, Errors: t.Errors, Causes: t.Causes, Answers: t.Answers,
		P50: t.P50.Seconds(), P99: t.P99.Seconds(),
	}
	if t.Errors == 0 {
		return v
	}
	first, last := t.FirstError.Sub(d.failed).Seconds(), t.LastError.Sub(d.failed).Seconds()
	v.FirstError, v.LastError = &first, &last
	for _, s := range d.result.TimeLine {
		if s.Transition == "endpoint gone" {
			after := last - s.Seconds
			v.AfterGone = &after
		}
	}
	return v
}

// wrong says why clients of the VIP noticed too much, "" if they did not.
func (v *demoVIP) wrong() string {
	switch {
	case v == nil || v.Errors == 0:
		return ""
	case *v.FirstError < -demoLimit.Seconds(): // one that was begun later may have been under way
		return fmt.Sprintf("a connect to %s failed before the node did", v.Address)
	case v.AfterGone == nil || *v.AfterGone > reconcile.DefaultTick.Seconds():
		return fmt.Sprintf("a connect to %s that was begun %.3f s after the failure went to the failed node: want %v at most after its instance was taken out", v.Address, *v.LastError, reconcile.DefaultTick)
	}
	return ""
}

// demoStep is one line of the time line.
type demoStep struct {
	Seconds    float64 `json:"t"`
	Observer   string  `json:"observer,omitempty"`
	Node       string  `json:"node"`
	Transition string  `json:"transition"`
	From       string  `json:"from,omitempty"` // who told the observer
	Detail     string  `json:"detail,omitempty"`
	PIDs       []int   `json:"pids,omitempty"`
}

// demoAnswer is how many answers of one instance the client got, and how many
// requests the instance counted; null for one that cannot be asked any more.
type demoAnswer struct {
	Instance string  `json:"instance"`
	Node     string  `json:"node"`
	Answers  uint64  `json:"answers"`
	Counted  *uint64 `json:"counted"`
}

// take fills in what the client and the instances counted.
func (r *demoJSON) take(t traffic.Result, d *demo, before, after map[string]uint64) {
	r.Requests, r.Errors, r.Causes = t.Requests, t.Errors, t.Causes
	r.Rate, r.P50, r.P99, r.Max = t.Rate, t.P50.Seconds(), t.P99.Seconds(), t.Max.Seconds()
	if !t.FirstError.IsZero() {
		at := t.FirstError.Sub(d.failed).Seconds()
		r.FirstError = &at
	}
	for _, i := range d.cluster.instances(demoService) {
		a := demoAnswer{Instance: i.ID, Node: i.Node, Answers: t.Answers[i.ID]}
		if n, ok := after[i.ID]; ok {
			n -= before[i.ID]
			a.Counted = &n
		}
		r.Answers = append(r.Answers, a)
	}
	slices.SortStableFunc(r.TimeLine, func(a, b demoStep) int { return int(math.Copysign(1, a.Seconds-b.Seconds)) })
}

// wrong says why the demo failed, "" if it did not.
func (r *demoJSON) wrong(rate float64) string {
	var all []string
	if r.Errors > 0 {
		all = append(all, fmt.Sprintf("%d of %d requests failed", r.Errors, r.Requests))
	}
	if r.Rate < rate {
		all = append(all, fmt.Sprintf("only %.1f requests a second of %g were sent: this host is too busy", r.Rate, rate))
	}
	for _, a := range r.Answers {
		if a.Counted != nil && *a.Counted < a.Answers {
			all = append(all, fmt.Sprintf("%s counted %d requests and gave %d answers", a.Instance, *a.Counted, a.Answers))
		}
	}
	if wrong := r.VIP.wrong(); wrong != "" {
		all = append(all, wrong)
	}
	return strings.Join(all, "; ")
}

// step notes and prints what happened.
func (d *demo) step(s demoStep) {
	d.result.TimeLine = append(d.result.TimeLine, s)
	a := d.app
	var what, colour string
	switch s.Transition {
	case "killed":
		pids := make([]string, len(s.PIDs))
		for i, pid := range s.PIDs {
			pids[i] = strconv.Itoa(pid)
		}
		what = fmt.Sprintf("killed %s: its agent, proxy and instances (kill -9 %s)", s.Node, strings.Join(pids, " "))
	case "cut off":
		what = fmt.Sprintf("cut the cable of %s", s.Node)
	case "ejected":
		what = fmt.Sprintf("the proxy of %s leaves the instance on %s out: a try failed", s.Observer, s.Node)
	case "endpoint gone":
		what = fmt.Sprintf("%s has %s of %s no more among the endpoints", s.Observer, s.Detail, s.Node)
	case "suspected":
		what, colour = fmt.Sprintf("%s suspects %s", s.Observer, s.Node), stateColour(model.StateSuspect)
	case "died":
		what, colour = fmt.Sprintf("%s holds %s for dead", s.Observer, s.Node), stateColour(model.StateDead)
	default:
		what = fmt.Sprintf("%s sees %s %s", s.Observer, s.Node, s.Transition)
	}
	if s.From != "" {
		what += ", told by " + s.From
	}
	a.say("t+%.3fs  %s\n", s.Seconds, paint(a.env.colour(), colour, what))
}

// printDemo prints the figures.
func (a *app) printDemo(r *demoJSON) error {
	if a.output == "json" {
		return printJSON(a.env.Stdout, r)
	}
	ms := func(seconds float64) string { return strconv.FormatFloat(seconds*1000, 'f', 1, 64) + " ms" }
	when := func(seconds *float64, word string) string {
		if seconds == nil {
			return "none " + word + " after the failure"
		}
		return fmt.Sprintf("%s after the failure, or up to %s before that", ms(*seconds), ms(r.Resolution))
	}
	colour := "32" // green
	if r.Errors > 0 {
		colour = "31" // red
	}
	errors := cells("errors", strconv.Itoa(r.Errors))
	errors[1].sgr = colour
	rows := [][]cell{
		cells("requests", fmt.Sprintf("%d, %.1f a second", r.Requests, r.Rate)), errors,
		cells("latency", fmt.Sprintf("p50 %s, p99 %s, most %s", ms(r.P50), ms(r.P99), ms(r.Max))),
		cells("last request sent to it", when(r.LastSent, "sent")),
		cells("last try, refused ones too", when(r.LastTry, "tried")),
		nil,
		cells("INSTANCE", "NODE", "ANSWERS", "COUNTED"),
	}
	for _, answer := range r.Answers {
		counted := "-"
		if answer.Counted != nil {
			counted = strconv.FormatUint(*answer.Counted, 10)
		}
		rows = append(rows, cells(answer.Instance, answer.Node, strconv.FormatUint(answer.Answers, 10), counted))
	}
	if v := r.VIP; v != nil {
		last := "none failed after the failure"
		if v.Errors > 0 {
			last = ms(*v.LastError) + " after the failure"
			switch after := v.AfterGone; {
			case after == nil:
			case *after < 0: // a suspect gets no connects
				last += fmt.Sprintf(", %s before its instance was taken out", ms(-*after))
			default:
				last += fmt.Sprintf(", %s after its instance was taken out", ms(*after))
			}
		}
		rows = append(rows, nil,
			cells("connects to "+v.Address, fmt.Sprintf("%d, led by %s", v.Connects, v.Plane)),
			cells("failed, led to the failed node", strconv.Itoa(v.Errors)),
			cells("last connect led to it", last))
	}
	a.say("\n")
	if err := tables(a.env.Stdout, a.env.colour(), rows); err != nil {
		return err
	}
	for _, cause := range slices.Sorted(maps.Keys(r.Causes)) {
		a.say("error, %d times: %s\n", r.Causes[cause], cause)
	}
	if r.FirstError != nil {
		a.say("the first of them was sent at t%+.3fs\n", *r.FirstError)
	}
	return nil
}

// say prints prose, which has no place in JSON.
func (a *app) say(format string, args ...any) {
	if a.output == "text" {
		fmt.Fprintf(a.env.Stdout, format, args...)
	}
}

package bench

import (
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"
	"unicode/utf8"
)

// row is one measured figure, smaller being better.
type row struct {
	work     string
	format   string // of one number
	fairlead float64
	peer     float64
	again    float64 // the agent's in a second window; NaN: measured once
	bar      bar
}

// bar is what a figure should not exceed: a number, a share of the peer's
// figure, or, if both are 0, nothing.
type bar struct{ number, share float64 }

func (r row) over() bool {
	return r.bar.number != 0 && r.fairlead > r.bar.number || r.bar.share != 0 && r.fairlead > r.bar.share*r.peer
}

// verdict judges the first window: the better of two would flatter, the worse
// one blame the agent for the machine.
func (r row) verdict() string {
	switch {
	case r.bar == bar{}:
		return ""
	case r.over():
		return "OVER"
	}
	return "ok"
}

func (r row) limit() string {
	switch {
	case r.bar.number != 0:
		return fmt.Sprintf(r.format, r.bar.number)
	case r.bar.share != 0:
		return fmt.Sprintf("%.2f ×", r.bar.share)
	}
	return ""
}

// print writes the rows as an aligned table.
func print(w io.Writer, rows []row) error {
	wide := 0
	for _, r := range rows {
		wide = max(wide, utf8.RuneCountInString(r.work))
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "%-*s\tfairlead\tmemberlist\tratio\tA/A\tbar\t\t\n", wide, "work")
	number := func(format string, x float64) string {
		if math.IsNaN(x) || math.IsInf(x, 0) {
			return "–"
		}
		return fmt.Sprintf(format, x)
	}
	for _, r := range rows {
		fmt.Fprintf(t, "%-*s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", wide, r.work, number(r.format, r.fairlead), number(r.format, r.peer),
			number("%.2f", r.fairlead/r.peer), number("%.2f", r.again/r.fairlead), r.limit(), r.verdict())
	}
	return t.Flush()
}

// median returns the middle of some numbers, the lower one of two.
func median(x []float64) float64 {
	if len(x) == 0 {
		return math.NaN()
	}
	x = slices.Sorted(slices.Values(x))
	return x[(len(x)-1)/2]
}

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
	format   string  // of one number
	fairlead float64 // NaN: not measured
	peer     float64
	again    float64 // the agent's in the second window; NaN: measured once
	bar      float64 // at most; NaN: none
}

// verdict judges the agent's number, not the noise: the better of two windows
// would flatter, the worse one blame the machine, so it is the first.
func (r row) verdict() string {
	switch {
	case math.IsNaN(r.bar):
		return ""
	case r.fairlead <= r.bar:
		return "ok"
	default:
		return "OVER"
	}
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
			number("%.2f", r.fairlead/r.peer), number("%.2f", r.again/r.fairlead), number(r.format, r.bar), r.verdict())
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

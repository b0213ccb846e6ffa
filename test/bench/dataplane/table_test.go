package dataplane

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
	work   string
	format string // of the number and of its bar
	value  float64
	bar    float64 // 0: none
}

func (r row) verdict() string {
	switch {
	case r.bar == 0:
		return ""
	case r.value > r.bar:
		return "OVER"
	}
	return "ok"
}

// print writes the rows as an aligned table.
func print(w io.Writer, rows []row) error {
	wide := 0
	for _, r := range rows {
		wide = max(wide, utf8.RuneCountInString(r.work))
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "%-*s\tmeasured\tbar\t\t\n", wide, "work")
	for _, r := range rows {
		limit := ""
		if r.bar != 0 {
			limit = fmt.Sprintf(r.format, r.bar)
		}
		fmt.Fprintf(t, "%-*s\t%s\t%s\t%s\t\n", wide, r.work, fmt.Sprintf(r.format, r.value), limit, r.verdict())
	}
	return t.Flush()
}

// quantile returns the smallest of some numbers that a share q of them does not
// exceed.
func quantile(x []float64, q float64) float64 {
	if len(x) == 0 {
		return math.NaN()
	}
	x = slices.Sorted(slices.Values(x))
	return x[max(0, int(math.Ceil(q*float64(len(x))))-1)]
}

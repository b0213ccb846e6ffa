package l4

import (
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"
	"unicode/utf8"
)

// row is one figure of each round, smaller being better.
type row struct {
	name   string
	format string // of the numbers and of the bar
	values []float64
	bar    float64 // of the median; NaN: none
}

// none is the bar of what has none.
var none = math.NaN()

func (r row) median() float64 {
	x := slices.Sorted(slices.Values(r.values))
	if len(x) == 0 {
		return math.NaN()
	}
	return x[(len(x)-1)/2]
}

func (r row) verdict() string {
	switch {
	case math.IsNaN(r.bar):
		return ""
	case !(r.median() <= r.bar):
		return "OVER"
	}
	return "ok"
}

// print writes rows as an aligned table under a title.
func print(w io.Writer, title string, rows []row) error {
	wide := utf8.RuneCountInString(title)
	for _, r := range rows {
		wide = max(wide, 2+utf8.RuneCountInString(r.name))
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "%-*s\tmedian\tlowest\thighest\tbar\t\t\n", wide, title)
	for _, r := range rows {
		low, high := math.NaN(), math.NaN()
		if len(r.values) > 0 {
			low, high = slices.Min(r.values), slices.Max(r.values)
		}
		fmt.Fprintf(t, "%-*s\t", wide, "  "+r.name)
		for _, v := range []float64{r.median(), low, high, r.bar} {
			if math.IsNaN(v) {
				fmt.Fprint(t, "–\t")
				continue
			}
			fmt.Fprintf(t, r.format+"\t", v)
		}
		fmt.Fprintf(t, "%s\t\n", r.verdict())
	}
	return t.Flush()
}

// over subtracts numbers of the same round, times divides them.
func over(a, b []float64) []float64 {
	return each(a, b, func(x, y float64) float64 { return x - y })
}

func times(a, b []float64) []float64 {
	return each(a, b, func(x, y float64) float64 { return x / y })
}

func each(a, b []float64, f func(x, y float64) float64) []float64 {
	out := make([]float64, len(a))
	for i := range a {
		out[i] = f(a[i], b[i])
	}
	return out
}

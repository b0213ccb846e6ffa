package l7

import (
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"
	"unicode/utf8"
)

// spread is the middle and the ends of some numbers.
type spread struct{ low, median, high float64 }

func spreadOf(x []float64) spread {
	if len(x) == 0 {
		return spread{math.NaN(), math.NaN(), math.NaN()}
	}
	x = slices.Sorted(slices.Values(x))
	return spread{x[0], x[(len(x)-1)/2], x[len(x)-1]}
}

// figure is one line of the first table: a number for each process.
type figure struct {
	name   string
	format string
	values []float64 // NaN: not measured
}

// ratio is one line of the second table, smaller being better.
type ratio struct {
	name string
	spread
	must, aim float64 // 0: none
}

func (r ratio) verdict() string {
	switch {
	case r.must == 0:
		return ""
	case !(r.median <= r.must):
		return "OVER"
	case r.aim != 0 && r.median > r.aim:
		return "ok, aim missed"
	}
	return "ok"
}

func printFigures(w io.Writer, heads []string, rows []figure) error {
	t := newTable(w, "", heads, rows, func(f figure) string { return f.name })
	for _, r := range rows {
		t.name(r.name)
		for _, v := range r.values {
			t.number(r.format, v)
		}
		t.end()
	}
	return t.w.Flush()
}

func printRatios(w io.Writer, rows []ratio) error {
	t := newTable(w, "ratio", []string{"median", "lowest", "highest", "must", "aim", ""}, rows, func(r ratio) string { return r.name })
	for _, r := range rows {
		t.name(r.name)
		for _, v := range []float64{r.median, r.low, r.high} {
			t.number("%.2f", v)
		}
		for _, bar := range []float64{r.must, r.aim} {
			if bar == 0 {
				bar = math.NaN()
			}
			t.number("%.2f", bar)
		}
		fmt.Fprintf(t.w, "%s\t", r.verdict())
		t.end()
	}
	return t.w.Flush()
}

// table aligns names to the left and numbers to the right.
type table struct {
	w    *tabwriter.Writer
	wide int
}

func newTable[R any](w io.Writer, corner string, heads []string, rows []R, name func(R) string) *table {
	t := &table{w: tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)}
	for _, r := range rows {
		t.wide = max(t.wide, utf8.RuneCountInString(name(r)))
	}
	t.name(corner)
	for _, h := range heads {
		fmt.Fprintf(t.w, "%s\t", h)
	}
	t.end()
	return t
}

func (t *table) name(s string) { fmt.Fprintf(t.w, "%-*s\t", t.wide, s) }
func (t *table) end()          { fmt.Fprintln(t.w) }

func (t *table) number(format string, v float64) {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		fmt.Fprint(t.w, "–\t")
		return
	}
	fmt.Fprintf(t.w, format+"\t", v)
}

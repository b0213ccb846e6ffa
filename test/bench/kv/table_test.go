package kv

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

// figure is one line of a table: a number for each system in each round.
type figure struct {
	name   string
	format string
	more   bool    // is better
	bar    float64 // of the ratio to the better etcd; 0: none
	limit  float64 // of the number itself, at most; 0: none
	or     *figure // its bar will do as well
	values map[string][]float64
}

func (f *figure) add(system string, v float64) {
	if f.values == nil {
		f.values = map[string][]float64{}
	}
	f.values[system] = append(f.values[system], v)
}

func (f *figure) median(system string) float64 { return spreadOf(f.values[system]).median }

// rival is the etcd that does better at this figure; none if nothing was measured.
func (f *figure) rival(systems []system) (best string) {
	for _, s := range systems {
		m := f.median(s.name)
		if !s.etcd || math.IsNaN(m) {
			continue
		}
		if b := f.median(best); best == "" || f.more && m > b || !f.more && m < b {
			best = s.name
		}
	}
	return best
}

// against are the ratios of two systems in the same rounds.
func (f *figure) against(a, b string) spread {
	var out []float64
	for i := range min(len(f.values[a]), len(f.values[b])) {
		out = append(out, f.values[a][i]/f.values[b][i])
	}
	return spreadOf(out)
}

// met says whether a ratio is on the right side of the bar, and the number on
// that of the limit.
func (f *figure) met(systems []system) bool {
	ratio, number := f.against(ours, f.rival(systems)).median, f.median(ours)
	switch {
	case f.limit != 0 && !(number <= f.limit):
		return false
	case f.bar == 0:
		return true
	case f.more:
		return ratio >= f.bar
	}
	return ratio <= f.bar
}

func (f *figure) verdict(systems []system) string {
	switch {
	case f.bar == 0 && f.limit == 0 || len(f.values[ours]) == 0 || f.rival(systems) == "":
		return ""
	case f.met(systems):
		return "met"
	case f.or != nil && f.or.met(systems):
		return "met by " + f.or.name
	}
	return "missed"
}

func (f *figure) bars() string {
	text := ""
	if f.bar != 0 {
		sign := "≤"
		if f.more {
			sign = "≥"
		}
		text = fmt.Sprintf("%s %.2f ×", sign, f.bar)
	}
	if f.limit != 0 {
		if text != "" {
			text += ", "
		}
		text += "≤ " + fmt.Sprintf(f.format, f.limit)
	}
	return text
}

// print writes figures as an aligned table.
func print(w io.Writer, title string, systems []system, figures []*figure) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	wide := utf8.RuneCountInString(title)
	for _, f := range figures {
		wide = max(wide, utf8.RuneCountInString(f.name))
	}
	fmt.Fprintf(t, "%-*s\t", wide, title)
	for _, s := range systems {
		fmt.Fprintf(t, "%s\t", s.name)
	}
	fmt.Fprint(t, "ratio\tlowest\thighest\tA/A\tbar\t\t\n")
	number := func(format string, v float64) {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			fmt.Fprint(t, "–\t")
			return
		}
		fmt.Fprintf(t, format+"\t", v)
	}
	for _, f := range figures {
		fmt.Fprintf(t, "%-*s\t", wide, f.name)
		for _, s := range systems {
			number(f.format, f.median(s.name))
		}
		ratio := f.against(ours, f.rival(systems))
		for _, v := range []float64{ratio.median, ratio.low, ratio.high, f.against(again, ours).median} {
			number("%.2f", v)
		}
		fmt.Fprintf(t, "%s\t%s\t\n", f.bars(), f.verdict(systems))
	}
	return t.Flush()
}

package main

import (
	"os"
	"strings"
	"testing"
	"time"
)

func TestClosestPatternCounts(t *testing.T) {
	table, err := ParseBudgets(strings.NewReader(`
# comment
...            10 20
core/...       30 40   # why
core/swim/...  50 60
core/swim      1.5 2
a              5 6
`))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		pkg         string
		short, long time.Duration
	}{
		{"test/run", 10 * time.Second, 20 * time.Second},
		{"core", 30 * time.Second, 40 * time.Second},
		{"core/model", 30 * time.Second, 40 * time.Second},
		{"a", 5 * time.Second, 6 * time.Second},
		{"corex", 10 * time.Second, 20 * time.Second},
		{"core/swim", 1500 * time.Millisecond, 2 * time.Second},
		{"core/swim/wire", 50 * time.Second, 60 * time.Second},
	} {
		if got := table.For(c.pkg, false); got != c.short {
			t.Errorf("For(%s) = %v, want %v", c.pkg, got, c.short)
		}
		if got := table.For(c.pkg, true); got != c.long {
			t.Errorf("For(%s, long) = %v, want %v", c.pkg, got, c.long)
		}
	}
}

func TestExceededNamesPackageAndExcess(t *testing.T) {
	table := Budgets{{Pattern: "...", Short: 10 * time.Second, Long: time.Minute}}
	if got := table.Exceeded("core/x", 10*time.Second, false); got != "" {
		t.Errorf("at the limit: %q, want none", got)
	}
	got := table.Exceeded("core/x", 12500*time.Millisecond, false)
	if want := "core/x took 12.5 s, 2.5 s over its budget of 10 s (test/budget.txt)"; got != want {
		t.Errorf("Exceeded = %q, want %q", got, want)
	}
	if got := table.Exceeded("core/x", 12500*time.Millisecond, true); got != "" {
		t.Errorf("in a long run: %q, want none", got)
	}
}

func TestBadBudgetTables(t *testing.T) {
	for text, want := range map[string]string{
		"core/... 1 2":              "no line for `...`",
		"... 1":                     "line 1: 2 fields",
		"... 1 2\na b 2":            `line 2: "b" is not a number`,
		"... 0 2":                   `line 1: "0" is not`,
		"... 1 NaN":                 `"NaN" is not`,
		"... 1 2\nx 1 2\n\nx 3 4\n": "line 4: x is listed twice",
	} {
		_, err := ParseBudgets(strings.NewReader(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseBudgets(%q) = %v, want an error with %q", text, err, want)
		}
	}
}

func TestTheTableOfThisRepository(t *testing.T) {
	f, err := os.Open("../budget.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	table, err := ParseBudgets(f)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range table {
		if b.Short > b.Long {
			t.Errorf("%s: %v in make test, but only %v in make test-long", b.Pattern, b.Short, b.Long)
		}
	}
}

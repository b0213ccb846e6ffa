package main

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// Budget is one line of test/budget.txt: how long the tests of the packages
// that Pattern names may take on a machine that has nothing else to do; see
// [Charge] for what counts on one that has.
type Budget struct {
	// Pattern is a package path relative to the module ("core/swim"), or one
	// that ends in "/..." and then names a whole tree. "..." alone matches all.
	Pattern string
	// Short bounds a package in make test, Long in make test-long.
	Short, Long time.Duration
}

// Budgets is the table in file order, which has no meaning: a package's own line
// counts, else that of the deepest tree around it.
type Budgets []Budget

// ParseBudgets reads lines of `pattern seconds seconds-long`; empty lines and
// what follows a # are ignored. The table needs a line for "...", the budget of
// a package that nobody listed.
func ParseBudgets(r io.Reader) (Budgets, error) {
	var table Budgets
	seen := map[string]bool{}
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		text, _, _ := strings.Cut(lines.Text(), "#")
		fields := strings.Fields(text)
		if len(fields) == 0 {
			continue
		}
		if len(fields) != 3 {
			return nil, fmt.Errorf("budget: line %d: %d fields, want `pattern seconds seconds-long`", n, len(fields))
		}
		b := Budget{Pattern: fields[0]}
		for i, d := range []*time.Duration{&b.Short, &b.Long} {
			s, err := strconv.ParseFloat(fields[i+1], 64)
			if err != nil || !(s > 0) {
				return nil, fmt.Errorf("budget: line %d: %q is not a number of seconds above 0", n, fields[i+1])
			}
			*d = time.Duration(s * float64(time.Second))
		}
		if seen[b.Pattern] {
			return nil, fmt.Errorf("budget: line %d: %s is listed twice", n, b.Pattern)
		}
		seen[b.Pattern] = true
		table = append(table, b)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("budget: %w", err)
	}
	if !seen["..."] {
		return nil, fmt.Errorf("budget: no line for `...`, the budget of unlisted packages")
	}
	return table, nil
}

// For returns the budget of one package, named relative to the module.
func (t Budgets) For(pkg string, long bool) time.Duration {
	var best Budget
	rank := -1
	for _, b := range t {
		if matches(b.Pattern, pkg) && precision(b.Pattern) > rank {
			best, rank = b, precision(b.Pattern)
		}
	}
	if long {
		return best.Long
	}
	return best.Short
}

// Exceeded explains by how much a package overran its budget; "" if it did not.
func (t Budgets) Exceeded(pkg string, took time.Duration, long bool) string {
	limit := t.For(pkg, long)
	if took <= limit {
		return ""
	}
	return fmt.Sprintf("%s took %.1f s, %.1f s over its budget of %.0f s (test/budget.txt)",
		pkg, took.Seconds(), (took - limit).Seconds(), limit.Seconds())
}

// precision orders patterns that match one package: a package's own line, then
// the deeper tree.
func precision(pattern string) int {
	if tree, ok := strings.CutSuffix(pattern, "..."); ok {
		return len(tree)
	}
	return len(pattern) + len("/") + 1
}

// matches reports whether the pattern names pkg; "core/..." names core too.
func matches(pattern, pkg string) bool {
	tree, ok := strings.CutSuffix(pattern, "...")
	if !ok {
		return pattern == pkg
	}
	return strings.HasPrefix(pkg+"/", tree)
}

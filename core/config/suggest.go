package config

import "strings"

// DidYouMean returns "; did you mean X?" for the candidate closest to name, or
// "" if none is close. Case, hyphens and underscores do not count as
// differences, so data-dir and dataDir find data_dir.
func DidYouMean(name string, candidates []string) string {
	best, bestDistance := "", len(name)/3+1
	plain := plainName(name)
	for _, c := range candidates {
		d := 0
		if p := plainName(c); p != plain {
			d = max(1, editDistance(plain, p))
		}
		if d < bestDistance || (d == bestDistance && best == "") {
			best, bestDistance = c, d
		}
	}
	if best == "" {
		return ""
	}
	return "; did you mean " + best + "?"
}

func plainName(s string) string {
	return strings.NewReplacer("-", "", "_", "").Replace(strings.ToLower(s))
}

// editDistance counts insertions, deletions, substitutions and swaps of
// neighbours (optimal string alignment) between two short names, in bytes.
func editDistance(a, b string) int {
	var before []int // the row above the last one
	last := make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(row[j-1]+1, last[j]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}

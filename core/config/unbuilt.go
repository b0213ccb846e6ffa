package config

import (
	"slices"
	"strings"
)

// unbuilt lists the keys, or sections with their dot, that parse but that
// nothing uses yet. A part that gets built deletes its row.
func unbuilt() []string {
	return []string{
		"dns.",
	}
}

// unbuiltWarnings names the written keys that have no effect yet. Defaults warn
// about nothing.
func unbuiltWarnings(origins Origins) []string {
	var warnings []string
	for _, k := range Keys() {
		if !slices.ContainsFunc(unbuilt(), func(row string) bool {
			return k.Path == row || (strings.HasSuffix(row, ".") && strings.HasPrefix(k.Path, row))
		}) {
			continue
		}
		if origin, ok := origins.written(k.Path); ok {
			warnings = append(warnings, origin.String()+": "+k.Path+" is accepted but this version does not use it yet")
		}
	}
	return warnings
}

// written returns the origin of a key or of the first thing inside it.
func (o Origins) written(path string) (Origin, bool) {
	if origin, ok := o[path]; ok {
		return origin, true
	}
	first := ""
	for p := range o {
		if strings.HasPrefix(p, path+".") && (first == "" || p < first) {
			first = p
		}
	}
	return o[first], first != ""
}

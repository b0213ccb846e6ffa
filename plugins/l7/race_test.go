//go:build race

package l7

// buildFlags make the proxy under test look for races as its tests do.
func buildFlags() []string { return []string{"-race"} }

//go:build !race

package l7

func buildFlags() []string { return nil }

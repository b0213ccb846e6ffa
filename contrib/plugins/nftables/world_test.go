package main

import (
	"strings"
	"testing"

	"github.com/google/nftables"

	"github.com/fairlead/fairlead/dataplane"
)

// ruleset names the tables of this network namespace.
func ruleset(t *testing.T) string {
	t.Helper()
	tables, err := new(nftables.Conn).ListTables()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, table := range tables {
		names = append(names, table.Name)
	}
	return strings.Join(names, " ")
}

func cleanAll() dataplane.CleanupOptions { return dataplane.CleanupOptions{AllKnown: true} }

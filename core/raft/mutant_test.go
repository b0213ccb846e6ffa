package raft

import (
	"testing"

	"github.com/fairlead/fairlead/test/mutant"
)

// TestMutants plants one bug after the other, and expects the invariant that the
// patch names to find it.
func TestMutants(t *testing.T) {
	mutant.Suite{Least: 14, Test: "TestCrashes"}.Hunt(t)
}

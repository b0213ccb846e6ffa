package formation

import (
	"flag"
	"testing"

	"github.com/fairlead/fairlead/test/mutant"
)

// TestMutants plants one bug after the other, and expects the invariant that its
// patch names to find it.
func TestMutants(t *testing.T) {
	if flag.Lookup("formation.seed").Value.String() != "0" || flag.Lookup("formation.count").Value.String() != "0" {
		t.Skip("-formation.seed and -formation.count are for the simulation")
	}
	mutant.Suite{Least: 20, Test: "TestSimulation", Args: []string{"-formation.count=1000"}}.Hunt(t)
}

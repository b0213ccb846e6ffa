package sim

import (
	"fmt"
	"regexp"
	"testing"

	"github.com/fairlead/fairlead/test/mutant"
)

// mutantSeeds is what has to be enough to find a planted bug.
const mutantSeeds = 60

// TestMutants plants one bug after the other, and expects the invariant that
// the patch names to find it.
func TestMutants(t *testing.T) {
	if *seedFlag != 0 || *countFlag != 0 {
		t.Skip("-sim.seed and -sim.count are for TestSimulation")
	}
	mutant.Suite{
		Least: 12, Test: "TestSimulation", Args: []string{fmt.Sprintf("-sim.count=%d", mutantSeeds)},
		Finding: regexp.MustCompile(`sim: seed \d+ at \S+: (Invariant\w+):`), Named: `"%s"`,
	}.Hunt(t)
}

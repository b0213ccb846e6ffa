package scale

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

// SeedEnv names the variable that holds the seed of tests that draw what they do.
const SeedEnv = "FAIRLEAD_TEST_SEED"

// Seed returns what a test that draws begins with, and logs it: SeedEnv, if that is
// set. Otherwise it is new for each run in full, and the same in all others: what fails
// there is then a fault of the change that is tested, and no other's.
func Seed(t testing.TB) uint64 {
	t.Helper()
	seed := uint64(1)
	switch text := os.Getenv(SeedEnv); {
	case text != "":
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("scale: %s=%q is no seed: set it to a number as tests log it", SeedEnv, text)
		}
	case Factor() >= 1:
		seed = rand.Uint64()
	}
	t.Logf("%s=%d", SeedEnv, seed)
	return seed
}

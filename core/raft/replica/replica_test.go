package replica

import (
	"testing"

	"github.com/fairlead/fairlead/test/scale"
)

// TestSimulation runs groups of one to five servers over messages that are lost,
// doubled and late, disks that forget what was not synced, crashes of one and of
// all, and partitions of single directions.
func TestSimulation(t *testing.T) {
	for seed := range uint64(scale.N(3000)) {
		if err := guarded(t, seed, 1+int(seed)%5, nil); err != nil {
			t.Fatalf("seed %d, %d servers: %v", seed, 1+seed%5, err)
		}
	}
}

// A disk that does not keep what Sync and SyncNames promise is a server that
// forgets to call them: the simulation finds it.
func TestSimulationFindsAForgottenSync(t *testing.T) {
	for _, lie := range []string{"sync", "names"} {
		found := error(nil)
		for seed := uint64(0); seed < 50 && found == nil; seed++ {
			found = guarded(t, seed, 3, func(s *sim) {
				for _, v := range s.servers {
					v.disk.Lies = map[string]bool{lie: true}
				}
			})
		}
		if found == nil {
			t.Errorf("nobody noticed a %s that did nothing", lie)
		} else {
			t.Log(found)
		}
	}
}

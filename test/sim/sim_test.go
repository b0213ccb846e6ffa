package sim

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/test/scale"
)

// fullSeeds is how many seeds a whole simulation runs.
const fullSeeds = 200

// failureLines is how much of the trace a failure prints; -sim.trace prints
// all that is kept.
const failureLines = 150

var (
	traceFlag = flag.Bool("sim.trace", false, "print the trace of each seed")
	seedFlag  = flag.Uint64("sim.seed", 0, "run this seed alone (1 and up), or the first of -sim.count")
	countFlag = flag.Int("sim.count", 0, "run this many seeds instead of 200 times the scale")
)

// seeds are those of this run.
func seeds() (first uint64, count int) {
	switch {
	case *seedFlag != 0:
		return *seedFlag, max(1, *countFlag)
	case *countFlag != 0:
		return 1, *countFlag
	}
	return 1, scale.N(fullSeeds)
}

// replay is the command that runs a seed alone.
func replay(seed uint64) string {
	return fmt.Sprintf("go test ./test/sim -run TestSimulation -sim.seed=%d", seed)
}

// runAll runs seeds on two cores and hands the results over in order. It stops
// after the first finding.
func runAll(first uint64, count int, each func(Result)) {
	results := make([]chan Result, count)
	for i := range results {
		results[i] = make(chan Result, 1)
	}
	stop := make(chan struct{})
	var next struct {
		sync.Mutex
		i int
	}
	var workers sync.WaitGroup
	for range min(2, count) {
		workers.Go(func() {
			for {
				next.Lock()
				i := next.i
				next.i++
				next.Unlock()
				select {
				case <-stop:
					return
				default:
				}
				if i >= count {
					return
				}
				results[i] <- Run(first + uint64(i))
			}
		})
	}
	for i := range results {
		r := <-results[i]
		each(r)
		if r.Finding != nil {
			break
		}
	}
	close(stop)
	workers.Wait()
}

// TestSimulation runs clusters of 2 to 9 nodes through all faults.
func TestSimulation(t *testing.T) {
	first, count := seeds()
	tally := NewTally()
	var slowest, reunited, detected Result
	var virtual time.Duration
	var records uint64
	began := time.Now()
	runAll(first, count, func(r Result) {
		tally.Add(r.Tally)
		virtual += r.Virtual
		records += r.Records
		if r.Healed > slowest.Healed {
			slowest = r
		}
		if r.Reunited > reunited.Reunited {
			reunited = r
		}
		if r.Detected > detected.Detected {
			detected = r
		}
		if *traceFlag {
			fmt.Fprintln(os.Stdout, r.Lines.Tail(traceLines))
		}
		if r.Finding != nil {
			fmt.Fprintln(os.Stdout, r.Lines.Tail(failureLines))
			t.Fatalf("%v\nreplay: %s", r.Finding, replay(r.Seed))
		}
	})
	t.Logf("seeds %d to %d: %v of virtual time, %d trace records, in %v", first, first+uint64(count)-1, virtual.Round(time.Second), records, time.Since(began).Round(time.Millisecond))
	t.Logf("slowest agreement after the faults: %v of %v (seed %d, %d nodes)", slowest.Healed, slowest.Floor, slowest.Seed, slowest.Nodes)
	t.Logf("slowest reunion after a partition: %v (seed %d, %d nodes)", reunited.Reunited, reunited.Seed, reunited.Nodes)
	t.Logf("slowest detection of a crash: %v (seed %d, %d nodes)", detected.Detected, detected.Seed, detected.Nodes)
	t.Logf("what happened:\n%s", tally)
	required := Required()
	if count < fullSeeds {
		required = slices.DeleteFunc(required, func(kind string) bool { return slices.Contains(Rare(), kind) })
	}
	if missing := tally.Missing(required); len(missing) > 0 && count >= fullSeeds/10 {
		t.Errorf("never happened, so nothing is shown about it: %q", missing)
	}
}

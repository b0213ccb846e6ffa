package health

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/test/scale"
)

func TestVerdictByThresholds(t *testing.T) {
	for _, test := range []struct {
		name               string
		success, failures  int
		probes, wantStates string // + success or passing, - failure or critical
	}{
		{"the first decides", 0, 0, "+-+--+", "+-+--+"},
		{"1 is like 0", 1, 1, "+-+--+", "+-+--+"},
		{"three successes from the start", 3, 0, "++-+++-", "-----+-"},
		{"three failures", 0, 3, "+--+---+", "++++++-+"},
		{"both", 2, 2, "+-++-+--+", "---++++--"},
		{"failures keep it critical", 0, 5, "--+", "--+"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var v verdict
			var got strings.Builder
			for _, p := range test.probes {
				v.observe(p == '+', Check{SuccessBeforePassing: test.success, FailuresBeforeCritical: test.failures})
				got.WriteByte("-+"[bit(v.passing)])
			}
			if got.String() != test.wantStates {
				t.Errorf("after %s it was %s, want %s", test.probes, got.String(), test.wantStates)
			}
		})
	}
}

// slowVerdict is the definition: it looks at the whole history each time.
func slowVerdict(was bool, history []bool, c Check) bool {
	tail := func(n int, ok bool) bool {
		n = max(n, 1)
		if len(history) < n {
			return false
		}
		for _, h := range history[len(history)-n:] {
			if h != ok {
				return false
			}
		}
		return true
	}
	switch {
	case tail(c.SuccessBeforePassing, true):
		return true
	case tail(c.FailuresBeforeCritical, false):
		return false
	}
	return was
}

func TestVerdictIsThatOfItsDefinition(t *testing.T) {
	for seed := range uint64(scale.N(2000)) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		var v verdict
		var history []bool
		want := false
		c := Check{}
		for range 60 {
			if rnd.IntN(10) == 0 { // thresholds may change under way
				c = Check{SuccessBeforePassing: rnd.IntN(5), FailuresBeforeCritical: rnd.IntN(5)}
			}
			ok := rnd.IntN(3) > 0
			history = append(history, ok)
			next := slowVerdict(want, history, c)
			if changed := v.observe(ok, c); changed != (next != want) || v.passing != next {
				t.Fatalf("seed %d: after %v with %+v it is %+v and changed %v, want passing %v", seed, history, c, v, changed, next)
			}
			if want = next; v.successes > 0 && v.failures > 0 {
				t.Fatalf("seed %d: both counts are above zero: %+v", seed, v)
			}
		}
	}
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

package e2e

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/test/scale"
)

// draw is what a test draws its faults from: the same ones for the same seed, as far as
// processes let it. Several goroutines may draw.
type draw struct{ *rand.Rand }

func newDraw(t *testing.T) draw {
	t.Helper()
	return draw{rand.New(&lockedSource{from: rand.NewPCG(scale.Seed(t), 0)})}
}

// upTo is a time below most, and none if that is none.
func (d draw) upTo(most time.Duration) time.Duration {
	return time.Duration(d.Int64N(max(1, int64(most))))
}

type lockedSource struct {
	mu   sync.Mutex
	from rand.Source
}

func (s *lockedSource) Uint64() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.from.Uint64()
}

package callers

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead/fairlead/test/await"
)

// recorder is a test that is watched.
type recorder struct {
	testing.TB
	errors []string
}

func (r *recorder) Errorf(format string, args ...any) {
	r.errors = append(r.errors, fmt.Sprintf(format, args...))
}

func TestFailedCallsAreCounted(t *testing.T) {
	var broken atomic.Bool
	c := Start(2, time.Millisecond, func() error {
		if broken.CompareAndSwap(true, false) {
			return errors.New("refused")
		}
		return nil
	})
	calls := func(n int) func() bool { return func() bool { return c.Count() >= n } }
	await.For(t, "calls", calls(10))
	broken.Store(true)
	await.For(t, "further calls", calls(c.Count()+10))
	r := &recorder{TB: t}
	c.Stop(r)
	want := fmt.Sprintf("1 of %d calls failed, the first: refused", c.Count())
	if len(r.errors) != 1 || r.errors[0] != want {
		t.Errorf("failed with %q, want %q", r.errors, want)
	}
}

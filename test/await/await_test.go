package await

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"
)

// recorder is a test that is watched.
type recorder struct {
	testing.TB
	said string
}

func (r *recorder) Helper() {}

func (r *recorder) Fatalf(format string, args ...any) {
	r.said = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// watch runs a test to its end, and returns why it failed.
func watch(t *testing.T, test func(testing.TB)) string {
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		test(r)
	}()
	<-done
	return r.said
}

func TestWaits(t *testing.T) {
	var looks int
	third := func() bool { looks++; return looks >= 3 }
	if said := watch(t, func(t testing.TB) { For(t, "the third look", third) }); said != "" || looks != 3 {
		t.Errorf("%d looks, failed with %q", looks, said)
	}
	words := []string{"a", "b", ""}
	next := func() (word string) { word, words = words[0], words[1:]; return word }
	if said := watch(t, func(t testing.TB) { Until(t, next) }); said != "" || len(words) != 0 {
		t.Errorf("%q was not asked for, failed with %q", words, said)
	}
}

func TestFailureNamesWhatIsMissing(t *testing.T) {
	never := func() bool { return false }
	if said := watch(t, func(t testing.TB) { Within(t, 10*time.Millisecond, "a miracle", never) }); said != "not within 10ms: a miracle" {
		t.Errorf("failed with %q", said)
	}
}

// TestLateConditionIsAskedOnceMore: whatever the machine did meanwhile, the condition
// is looked at when its time is over.
func TestLateConditionIsAskedOnceMore(t *testing.T) {
	begin := time.Now()
	holds := func() bool { return time.Since(begin) > 20*time.Millisecond }
	slow := func() bool {
		for !holds() { // one look takes longer than the limit
			runtime.Gosched()
		}
		return true
	}
	if said := watch(t, func(t testing.TB) { Within(t, time.Millisecond, "it", slow) }); strings.Contains(said, "not") {
		t.Errorf("failed with %q", said)
	}
}

// What fails is measured again if the host stood still meanwhile, and not for ever.
func TestSteadily(t *testing.T) {
	for name, c := range map[string]struct {
		stood        time.Duration
		fails, tries int
		said         string
	}{
		"right at once":      {0, 0, 1, ""},
		"wrong":              {10 * time.Millisecond, 1, 1, "too late"},
		"right at the third": {time.Second, 2, 3, ""},
		"always wrong":       {time.Second, 9, 3, "too late"},
	} {
		tries := 0
		measure := func() error {
			if tries++; tries <= c.fails {
				return errors.New("too late")
			}
			return nil
		}
		stood := func(context.Context) func() time.Duration { return func() time.Duration { return c.stood } }
		said := watch(t, func(t testing.TB) { steadily(t, measure, stood) })
		if said != c.said || tries != c.tries {
			t.Errorf("%s: %d tries, failed with %q", name, tries, said)
		}
	}
	begun := time.Now()
	longest := standstill(t.Context())
	For(t, "some time to pass", func() bool { return time.Since(begun) > 20*time.Millisecond })
	if got := longest(); got <= 0 || got > time.Since(begun) {
		t.Errorf("it stood still for %v of %v", got, time.Since(begun))
	}
	if got := standstill(t.Context())(); got <= 0 { // also if nothing ran between begin and end
		t.Errorf("in no time it stood still for %v", got)
	}
}

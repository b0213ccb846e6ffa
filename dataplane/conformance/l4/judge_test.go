package l4

import (
	"errors"
	"math"
	"testing"
	"time"
)

// TestQuantile against a table of chi-square at 0.999.
func TestQuantile(t *testing.T) {
	for freedom, want := range map[float64]float64{1: 10.828, 2: 13.816, 9: 27.877, 99: 148.230, 999: 1142.848} {
		if got := quantile(freedom); math.Abs(got-want) > 0.4 {
			t.Errorf("with %g degrees of freedom: %.3f, want %.3f", freedom, got, want)
		}
	}
}

// TestLed: a connect may go to any set that was in force while it lasted.
func TestLed(t *testing.T) {
	at := func(ms int) time.Time { return time.UnixMilli(int64(ms)) }
	sets := []set{
		{at(0), at(10), []string{"a"}}, {at(100), at(110), []string{"b"}}, {at(200), at(210), []string{"c"}},
	}
	for _, c := range []struct {
		from, to int
		name     string
		right    bool
	}{
		{50, 51, "a", true},
		{50, 51, "b", false},   // not yet
		{105, 106, "a", true},  // while b is asked for, both
		{105, 106, "b", true},  //
		{111, 112, "a", false}, // b is done
		{111, 112, "b", true},
		{90, 205, "a", true}, // a slow one
		{90, 205, "c", true},
		{211, 220, "c", true},
		{211, 220, "b", false},
		{211, 220, "", false},
	} {
		if err := led([]call{{at: at(c.from), until: at(c.to), name: c.name}}, sets); (err == nil) != c.right {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func TestFailures(t *testing.T) {
	bad := errors.New("bad")
	if err := failures([]call{{}, {err: bad}, {}}); !errors.Is(err, bad) {
		t.Errorf("%v, want that it wraps the first failure", err)
	}
	if err := failures([]call{{}, {}}); err != nil {
		t.Error(err)
	}
}

package scale

import (
	"strings"
	"testing"
	"time"
)

func TestFactorDefaultsToATenth(t *testing.T) {
	t.Setenv(Env, "")
	if got := Factor(); got != 0.1 {
		t.Errorf("Factor() = %v with %s empty, want 0.1", got, Env)
	}
	if got := N(200); got != 20 {
		t.Errorf("N(200) = %d with %s empty, want 20", got, Env)
	}
}

func TestN(t *testing.T) {
	for _, c := range []struct {
		env  string
		full int
		want int
	}{
		{"1", 200, 200},
		{"0.1", 20_000, 2_000},
		{"0.1", 12, 1},
		{"0.1", 15, 2}, // 1.5 rounds away from zero
		{"0.1", 1, 1},  // never none
		{"0.001", 3, 1},
		{"2", 7, 14},
	} {
		t.Setenv(Env, c.env)
		if got := N(c.full); got != c.want {
			t.Errorf("%s=%s: N(%d) = %d, want %d", Env, c.env, c.full, got, c.want)
		}
	}
}

func TestBound(t *testing.T) {
	for env, want := range map[string]time.Duration{"": time.Minute, "0.5": time.Minute, "1": time.Second, "2": time.Second} {
		t.Setenv(Env, env)
		if got := Bound(time.Second, time.Minute); got != want {
			t.Errorf("%s=%s: Bound is %v, want %v", Env, env, got, want)
		}
	}
}

func TestMistypedScaleIsRefused(t *testing.T) {
	for _, bad := range []string{"ten", "0", "-1", "NaN", "Inf", "101", "0,1"} {
		_, err := parse(bad)
		if err == nil {
			t.Errorf("parse(%q) was accepted, want an error", bad)
			continue
		}
		for _, part := range []string{Env, bad} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("parse(%q) = %q, which does not name %s", bad, err, part)
			}
		}
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("Factor() with %s=%q did not panic", Env, bad)
				}
			}()
			t.Setenv(Env, bad)
			Factor()
		}()
	}
}

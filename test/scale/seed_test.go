package scale

import "testing"

func TestSeed(t *testing.T) {
	t.Setenv(SeedEnv, "")
	t.Setenv(Env, "")
	if a, b := Seed(t), Seed(t); a != b {
		t.Errorf("at a tenth of the counts it is %d, then %d", a, b)
	}
	t.Setenv(Env, "1")
	if a, b := Seed(t), Seed(t); a == b {
		t.Errorf("in full it is %d twice", a)
	}
	t.Setenv(SeedEnv, "18446744073709551615")
	if got := Seed(t); got != 1<<64-1 {
		t.Errorf("it is %d", got)
	}
}

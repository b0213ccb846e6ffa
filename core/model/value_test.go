package model_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/test/scale"
)

var states = []model.State{model.StateAlive, model.StateSuspect, model.StateDead, model.StateLeft}

// grid is every value with small numbers, and those at the ends of their range.
func grid() []model.Value {
	words := []uint64{0, 1, 2, 1<<48 - 1, 1<<64 - 1}
	var vs []model.Value
	for _, e := range words {
		for _, i := range words {
			for _, s := range states {
				vs = append(vs, model.Value{Epoch: e, Incarnation: i, State: s})
			}
		}
	}
	return vs
}

// twin orders values the dumb way: as text, number by number.
func twin(v model.Value) string {
	return fmt.Sprintf("%020d %020d %d", v.Epoch, v.Incarnation, v.State)
}

func maximum(v, w model.Value) model.Value {
	if v.Compare(w) < 0 {
		return w
	}
	return v
}

func TestCompareAgreesWithItsTwin(t *testing.T) {
	for _, v := range grid() {
		for _, w := range grid() {
			if got, want := v.Compare(w), strings.Compare(twin(v), twin(w)); got != want {
				t.Fatalf("(%v).Compare(%v) = %d, want %d", v, w, got, want)
			}
			if got, want := v.CompareWord(w), strings.Compare(twin(v)[:41], twin(w)[:41]); got != want {
				t.Fatalf("(%v).CompareWord(%v) = %d, want %d", v, w, got, want)
			}
		}
	}
}

// A total order: two values are equal, or one of them is greater, and no
// three go in a circle.
func TestCompareIsATotalOrder(t *testing.T) {
	vs := grid()
	for _, v := range vs {
		for _, w := range vs {
			order := v.Compare(w)
			if order != -w.Compare(v) {
				t.Fatalf("%v and %v: %d one way, %d the other", v, w, order, w.Compare(v))
			}
			if (order == 0) != (v == w) {
				t.Fatalf("%v and %v compare as %d", v, w, order)
			}
			for _, x := range vs {
				if order <= 0 && w.Compare(x) <= 0 && v.Compare(x) > 0 {
					t.Fatalf("%v ≤ %v ≤ %v < the first", v, w, x)
				}
			}
		}
	}
}

// Members may hear the same words in any order, in any grouping and more than
// once, and hold the same value in the end.
func TestMaximumForgetsTheOrderOfArrival(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	random := func() model.Value {
		return model.Value{Epoch: rng.Uint64N(3), Incarnation: rng.Uint64N(3), State: states[rng.IntN(len(states))]}
	}
	for range scale.N(20_000) {
		a, b, c := random(), random(), random()
		if maximum(a, b) != maximum(b, a) {
			t.Fatalf("not commutative: %v, %v", a, b)
		}
		if maximum(maximum(a, b), c) != maximum(a, maximum(b, c)) {
			t.Fatalf("not associative: %v, %v, %v", a, b, c)
		}
		if maximum(a, a) != a || maximum(maximum(a, b), b) != maximum(a, b) {
			t.Fatalf("not idempotent: %v, %v", a, b)
		}

		heard := make([]model.Value, 1+rng.IntN(8))
		for i := range heard {
			heard[i] = random()
		}
		want := slices.MaxFunc(heard, func(v, w model.Value) int { return strings.Compare(twin(v), twin(w)) })
		heard = append(heard, heard[:rng.IntN(len(heard))]...) // duplicates
		rng.Shuffle(len(heard), func(i, j int) { heard[i], heard[j] = heard[j], heard[i] })
		var held model.Value
		for _, v := range heard {
			held = maximum(held, v)
		}
		if held != want {
			t.Fatalf("holds %v after %v, want %v", held, heard, want)
		}
	}
}

// The pairs that DESIGN §4 and SWIM §4.2 argue about.
func TestPrecedence(t *testing.T) {
	value := func(e, i uint64, s model.State) model.Value {
		return model.Value{Epoch: e, Incarnation: i, State: s}
	}
	for _, tt := range []struct {
		why            string
		lesser, higher model.Value
	}{
		{"rank: suspect over alive", value(1, 1, model.StateAlive), value(1, 1, model.StateSuspect)},
		{"rank: dead over suspect", value(1, 1, model.StateSuspect), value(1, 1, model.StateDead)},
		{"rank: left over dead", value(1, 1, model.StateDead), value(1, 1, model.StateLeft)},
		{"a refutation", value(1, 1, model.StateDead), value(1, 2, model.StateAlive)},
		{"a suspicion of the refuted word", value(1, 1, model.StateDead), value(1, 2, model.StateSuspect)},
		{"a restart beats its tombstone", value(1, 9, model.StateLeft), value(2, 0, model.StateAlive)},
	} {
		if tt.lesser.Compare(tt.higher) != -1 || tt.higher.Compare(tt.lesser) != 1 {
			t.Errorf("%s: want %v under %v", tt.why, tt.lesser, tt.higher)
		}
	}
}

func TestStateTextRoundTrips(t *testing.T) {
	for s, want := range map[model.State]struct {
		text string
		live bool
	}{
		model.StateAlive:   {"alive", true},
		model.StateSuspect: {"suspect", true},
		model.StateDead:    {"dead", false},
		model.StateLeft:    {"left", false},
	} {
		if s.String() != want.text || s.Live() != want.live {
			t.Errorf("state %d is %v, live %t; want %s, %t", uint8(s), s, s.Live(), want.text, want.live)
		}
		if got, err := model.ParseState(want.text); got != s || err != nil {
			t.Errorf("ParseState(%q) = %v, %v", want.text, got, err)
		}
		data, err := json.Marshal(s)
		if err != nil || string(data) != `"`+want.text+`"` {
			t.Errorf("JSON is %s, %v", data, err)
		}
		var back model.State
		if err := json.Unmarshal(data, &back); err != nil || back != s {
			t.Errorf("%s reads as %v, %v", data, back, err)
		}
	}
}

func TestStatesKeepTheirNumbers(t *testing.T) {
	for i, s := range states {
		if int(s) != i {
			t.Errorf("%v has the number %d, want %d: it is on the wire", s, s, i)
		}
	}
}

func TestParseStateRefuses(t *testing.T) {
	for _, text := range []string{"", "Alive", "alive ", "state(4)", "0", "failed"} {
		_, err := model.ParseState(text)
		if !errors.Is(err, model.ErrState) || !strings.Contains(err.Error(), fmt.Sprintf("%q", text)) {
			t.Errorf("ParseState(%q): %v; want ErrState with the text", text, err)
		}
		kept := model.StateDead
		if err := kept.UnmarshalText([]byte(text)); !errors.Is(err, model.ErrState) || kept != model.StateDead {
			t.Errorf("UnmarshalText(%q) left %v, %v; want dead and ErrState", text, kept, err)
		}
	}
}

func TestPrinting(t *testing.T) {
	if got := (model.Value{Epoch: 3, Incarnation: 1, State: model.StateSuspect}).String(); got != "3.1 suspect" {
		t.Errorf("a value prints as %q", got)
	}
	if got := model.State(4).String(); got != "state(4)" {
		t.Errorf("an unknown state prints as %q", got)
	}
	if model.State(4).Live() {
		t.Error("an unknown state is live")
	}
}

func TestBalanceNames(t *testing.T) {
	for b := model.BalanceDefault; b <= model.BalanceHash; b++ {
		if got, ok := model.ParseBalance(b.String()); !ok || got != b {
			t.Errorf("%v is read as %v, %v", b, got, ok)
		}
	}
	if _, ok := model.ParseBalance("balance(9)"); ok || model.Balance(9).String() != "balance(9)" {
		t.Error("an unknown one was read")
	}
}

package api_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/api"
)

// A restart is no good-bye: it reaches the agent with its hold, and one that
// the agent cannot announce is told as such.
func TestRestartReachesTheAgent(t *testing.T) {
	var held []time.Duration
	f := &fake{
		leave: func(context.Context) error { t.Error("said good-bye"); return nil },
		restart: func(_ context.Context, hold time.Duration) error {
			held = append(held, hold)
			switch {
			case hold > time.Minute:
				return fmt.Errorf("%w: too long", api.ErrNoRestart)
			case hold > 20*time.Second:
				return errors.New("nobody heard it")
			}
			return nil
		},
	}
	c := serve(t, f, api.AccessAll)
	if name, err := c.Restart(t.Context(), 15*time.Second); err != nil || name != "n1" {
		t.Errorf("Restart = %q, %v", name, err)
	}
	if _, err := c.Restart(t.Context(), 0); err != nil { // no good-bye by rounding
		t.Errorf("Restart for no time: %v", err)
	}
	if _, err := c.Restart(t.Context(), 25*time.Second); err == nil || err.Error() != "restart: nobody heard it" {
		t.Errorf("unheard: %v", err)
	}
	if _, err := c.Restart(t.Context(), time.Hour); err == nil || !strings.Contains(err.Error(), "no restart: too long") {
		t.Errorf("refused: %v", err)
	}
	if len(held) != 4 || held[0] != 15*time.Second || held[1] != time.Millisecond || held[3] != time.Hour {
		t.Errorf("the agent was asked for %v", held)
	}
}

// HeldUntil travels, and none is none.
func TestMembersTellOfHolds(t *testing.T) {
	table, err := serve(t, &fake{}, api.AccessRead).Members(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(table) != 2 || !table[0].HeldUntil.Equal(n1.HeldUntil) || n1.HeldUntil.IsZero() || !table[1].HeldUntil.IsZero() {
		t.Errorf("got %+v", table)
	}
}

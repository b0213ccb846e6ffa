package control

import (
	"errors"
	"testing"

	"github.com/fairlead/fairlead/core/control/voters"
)

func TestMayLeave(t *testing.T) {
	ids := func(ids ...uint64) []uint64 { return ids }
	alive := func(ids ...uint64) []voters.Server {
		var out []voters.Server
		for _, id := range ids {
			out = append(out, voters.Server{ID: id, State: voters.Alive})
		}
		return out
	}
	for _, c := range []struct {
		name    string
		removal Removal
		id      uint64
		force   bool
		want    error
	}{
		{"a spare takes its place", Removal{Voters: ids(1, 2, 3), Learners: ids(4), Known: alive(1, 2, 3, 4)}, 2, false, nil},
		{"a server that is no member yet takes its place", Removal{Voters: ids(1, 2, 3), Known: alive(1, 2, 3, 4)}, 2, false, nil},
		{"no spare", Removal{Voters: ids(1, 2, 3), Known: alive(1, 2, 3)}, 2, false, ErrNoSpare},
		{"no spare, by force", Removal{Voters: ids(1, 2, 3), Known: alive(1, 2, 3)}, 2, true, nil},
		{"a dead spare is none", Removal{Voters: ids(1, 2, 3), Learners: ids(4), Known: alive(1, 2, 3)}, 2, false, ErrNoSpare},
		{"a spare that leaves is none", Removal{Voters: ids(1, 2, 3), Learners: ids(4), Known: alive(1, 2, 3, 4), Leaving: ids(4)}, 2, false, ErrNoSpare},
		{"the spare is for another one that leaves", Removal{Voters: ids(1, 2, 3), Learners: ids(4), Known: alive(1, 2, 3, 4), Leaving: ids(1)}, 2, false, ErrNoSpare},
		{"more voters than are aimed at", Removal{Voters: ids(1, 2, 3, 4, 5), Known: alive(1, 2, 3, 4, 5)}, 5, false, nil},
		{"fewer than are aimed at already", Removal{Voters: ids(1, 2, 3), Known: alive(1, 2, 3), Target: 5}, 3, false, ErrNoSpare},
		{"a learner", Removal{Voters: ids(1, 2, 3), Learners: ids(4), Known: alive(1, 2, 3, 4)}, 4, false, nil},
		{"the last voter", Removal{Voters: ids(1), Known: alive(1)}, 1, false, ErrLast},
		{"the last voter, by force", Removal{Voters: ids(1), Known: alive(1)}, 1, true, ErrLast},
		{"the last voter with a spare: two are no better than one", Removal{Voters: ids(1), Learners: ids(2), Known: alive(1, 2)}, 1, false, ErrNoSpare},
		{"fewer voters than are aimed at, and a spare", Removal{Voters: ids(1, 2, 3), Known: alive(1, 2, 3, 4), Target: 5}, 3, false, nil},
		{"fewer voters than are aimed at, and as many spares", Removal{Voters: ids(1, 2, 3), Known: alive(1, 2, 3, 4, 5), Target: 5}, 3, false, ErrNoSpare},
		{"most of those that stay are dead", Removal{Voters: ids(1, 2, 3), Known: alive(1)}, 1, true, ErrNoSpare},
		{"no member", Removal{Voters: ids(1, 2, 3), Known: alive(1, 2, 3)}, 7, true, ErrNoMember},
	} {
		if c.removal.Target == 0 {
			c.removal.Target = 3
		}
		if err := c.removal.MayLeave(c.id, c.force); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}

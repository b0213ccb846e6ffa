package control

import (
	"context"
	"log/slog"
	"testing"

	"github.com/fairlead/fairlead/core/control/voters"
	"github.com/fairlead/fairlead/core/raft/replica"
)

// transferred is a server that notes to whom the leadership is handed.
type transferred struct {
	Server
	to uint64
}

func (*transferred) ID() uint64 { return 1 }

func (s *transferred) Transfer(_ context.Context, to uint64) error {
	s.to = to
	return nil
}

// A leader that is to leave hands its office to a voter that stays, however far the
// others are.
func TestStepAside(t *testing.T) {
	members := []replica.Member{
		{ID: 1, Match: 9, Active: true},
		{ID: 2, Match: 8, Active: true},
		{ID: 3, Match: 9, Active: true},
		{ID: 4, Match: 9, Active: true, Learner: true},
		{ID: 5, Match: 9},
	}
	for name, c := range map[string]struct {
		leaving []uint64
		to      uint64 // 0: it stays
	}{
		"it stays":        {[]uint64{3}, 0},
		"it leaves":       {[]uint64{1}, 3},
		"two leave":       {[]uint64{1, 3}, 2},
		"all voters":      {[]uint64{1, 2, 3}, 0},
		"also the silent": {[]uint64{1, 3, 5}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			s := &transferred{}
			var known []voters.Server
			for _, m := range members {
				known = append(known, voters.Server{ID: m.ID})
			}
			for _, id := range c.leaving {
				known[id-1].Leaving = true
			}
			done := New(Config{Server: s, Log: slog.New(slog.DiscardHandler)}).stepAside(t.Context(), members, known)
			if s.to != c.to || done != (c.to != 0) {
				t.Errorf("the leadership went to %d, %v: want %d", s.to, done, c.to)
			}
		})
	}
}

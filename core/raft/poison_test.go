package raft

import (
	"errors"
	"testing"

	"github.com/fairlead/fairlead/core/store"
)

// What no server could read from the log is refused before it gets there: it would
// end every server, and again at each start.
func TestNothingUnreadableGetsIntoTheLog(t *testing.T) {
	g := newGroup(t, 3, little())
	g.leader()
	deep := store.Op{Put: &store.PutOp{Key: "deep"}}
	for range 5_000 {
		deep = store.Op{Txn: &store.TxnOp{Then: []store.Op{deep}}}
	}
	for name, c := range map[string]struct {
		store.Command
		want error
	}{
		"too deep":             {store.Command{Space: store.User, Op: &deep}, store.ErrTooManyOps},
		"nothing":              {store.Command{Space: store.User}, store.ErrInvalid},
		"an operation of none": {store.Command{Space: store.User, Op: &store.Op{}}, store.ErrInvalid},
		"one of none within":   {store.Command{Space: store.User, Op: &store.Op{Txn: &store.TxnOp{Then: []store.Op{{}}}}}, store.ErrInvalid},
	} {
		for _, h := range g.up() {
			if r, err := h.Propose(soon(t), c.Command); err != nil || !errors.Is(r.Err, c.want) {
				t.Errorf("%s, server %d: %v, %v, want %v", name, h.ID(), r.Err, err, c.want)
			}
		}
	}
	for _, h := range g.up() {
		g.put(h, "after", "that")
	}
}

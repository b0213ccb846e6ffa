package control

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fairlead/fairlead/core/control/voters"
	"github.com/fairlead/fairlead/core/store"
)

// The errors of MayLeave.
var (
	// ErrLast: a group of nobody decides nothing.
	ErrLast = errors.New("it is the last voter, and has all that the store has: let another server join first")
	// ErrNoSpare: the voters would be fewer than are aimed at.
	ErrNoSpare = errors.New("no other server is there to take its place")
	// ErrNoMember: there is nothing to remove.
	ErrNoMember = errors.New("it is no member of the group")
)

// Removal is what is known when somebody asks for one.
type Removal struct {
	Voters, Learners []uint64
	// Known are those of the group that gossip knows, and Leaving those of which the
	// removal was asked for already.
	Known   []voters.Server
	Leaving []uint64
	Target  int
}

// MayLeave says why a server must not be removed, nil if it may. By force it may also
// if the voters are fewer then than are aimed at, but for the last one.
func (r Removal) MayLeave(id uint64, force bool) error {
	if !slices.Contains(r.Voters, id) && !slices.Contains(r.Learners, id) {
		return ErrNoMember
	}
	left, why := r.foresee(id, force)
	switch {
	case !slices.Contains(left, id):
		return nil
	case len(left) == 1:
		return ErrLast
	case why == "":
		why = "too few of the others are there"
	}
	return fmt.Errorf("%w: it is one of %d voters, and %d are aimed at (raft.voters): %s: start another server first", ErrNoSpare, len(r.Voters), r.Target, why)
}

// foresee returns who would take part in the end, if the leader did all that it could
// with those that are alive now, and what would be lacking.
func (r Removal) foresee(id uint64, force bool) (members []uint64, why string) {
	const long = time.Hour
	now := time.Now()
	g := voters.Group{Voters: slices.Clone(r.Voters), Learners: slices.Clone(r.Learners), Progress: map[uint64]voters.Progress{}}
	known := slices.Clone(r.Known)
	if !slices.ContainsFunc(known, func(s voters.Server) bool { return s.ID == id }) {
		known = append(known, voters.Server{ID: id})
	}
	for i, s := range known {
		known[i].Since = now.Add(-long)
		known[i].Leaving = s.ID == id || slices.Contains(r.Leaving, s.ID)
		known[i].Forced = s.ID == id && force
		up := s.State == voters.Alive
		g.Progress[s.ID] = voters.Progress{Active: up, CaughtUp: up}
	}
	leads := func(v uint64) bool { return v != id && !slices.Contains(r.Leaving, v) && g.Progress[v].Active }
	for range 4 * (len(known) + 1) { // each server comes, rises and goes at most once
		g.Leader = id
		if i := slices.IndexFunc(g.Voters, leads); i >= 0 {
			g.Leader = g.Voters[i]
		}
		d := voters.Decide(voters.Rules{Target: r.Target}, now, g, known)
		why = d.Why
		if d.Change.IsZero() {
			break
		}
		out := append(slices.Clone(d.Change.Remove), d.Change.Promote...)
		g.Learners = without(append(g.Learners, d.Change.AddLearner...), out)
		g.Voters = append(without(g.Voters, d.Change.Remove), d.Change.Promote...)
		known = slices.DeleteFunc(known, func(s voters.Server) bool { return slices.Contains(d.Change.Remove, s.ID) })
	}
	return append(g.Voters, g.Learners...), why
}

func without(ids, out []uint64) []uint64 {
	return slices.DeleteFunc(slices.Clone(ids), func(id uint64) bool { return slices.Contains(out, id) })
}

// Proposer writes to the store.
type Proposer interface {
	Propose(context.Context, store.Command) (store.Result, error)
}

// AskToLeave writes the wish that a server be removed, which the leader grants when it
// can.
func AskToLeave(ctx context.Context, p Proposer, id uint64, force bool) error {
	put := store.PutOp{Key: LeavingKey(id), Value: []byte("asked")}
	if force {
		put.Value = []byte(LeavingForced)
	}
	return write(ctx, p, store.Op{Put: &put})
}

// CancelLeaving takes such a wish back. It is too late if the server was removed.
func CancelLeaving(ctx context.Context, p Proposer, id uint64) error {
	return write(ctx, p, store.Op{Delete: &store.DeleteOp{Range: store.Range{Key: LeavingKey(id)}}})
}

func write(ctx context.Context, p Proposer, op store.Op) error {
	r, err := p.Propose(ctx, store.Command{Space: store.System, Op: &op})
	if err != nil {
		return err
	}
	return r.Err
}

// Leaving returns the servers of which the removal was asked for.
func Leaving(v *store.View) []uint64 {
	var ids []uint64
	for id := range leavingIn(v) {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

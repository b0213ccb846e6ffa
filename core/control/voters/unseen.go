package voters

import (
	"slices"
	"time"
)

// Unseen remembers since when members are unknown to gossip: it forgets who is dead
// for a day, or who died before all agents were started again. The zero value is
// ready to use. It is to be asked all the time, by who leads, and Reset when that ends.
type Unseen struct {
	since map[uint64]time.Time
}

// Reset forgets all.
func (u *Unseen) Reset() { u.since = nil }

// Complete returns what gossip knows, and those members that it does not know as dead
// since that was first so. One that lives is heard of by Raft, and stays for that.
func (u *Unseen) Complete(now time.Time, g Group, known []Server) []Server {
	next := map[uint64]time.Time{}
	out := slices.Clone(known)
	for _, id := range slices.Concat(g.Voters, g.Learners) {
		i := slices.IndexFunc(out, func(s Server) bool { return s.ID == id })
		if i >= 0 && out[i].State != Unknown {
			continue
		}
		at, is := u.since[id]
		if !is || g.Progress[id].Active {
			at = now
		}
		next[id] = at
		if i < 0 {
			out = append(out, Server{ID: id})
			i = len(out) - 1
		}
		out[i].State, out[i].Since = Dead, at
	}
	u.since = next
	return out
}

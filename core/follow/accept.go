package follow

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/core/durable"
)

// ErrNotRefused says that Accept was asked for servers that nobody refuses.
var ErrNotRefused = errors.New("follow: no server of that cluster is refused")

// Accepted is what came of Accept.
type Accepted struct {
	Revision int64
	Keys     int
	// Was is the state before; KeptAs is the file that has it, "" if there is none.
	Was    State
	KeptAs string
}

const (
	// keptAs is what the file ends in that the copy before is kept in.
	keptAs = ".before"
	// mostRefused bounds the clusters that are remembered as refused.
	mostRefused = 16
)

// refuse returns err, and remembers of which cluster the server was.
func (f *Follower) refuse(cluster uint64, err error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, is := f.refused[cluster]; is || len(f.refused) < mostRefused {
		f.refused[cluster] = err
	}
	return err
}

// accepts reports whether an operator said that servers of a cluster are to be
// followed, whatever is known.
func (f *Follower) accepts(cluster uint64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return cluster != 0 && f.accepted == cluster
}

// Accept follows servers of a cluster that were refused, and returns when the copy is
// theirs: it is an operator's word that they were begun anew, or restored. Until then
// the copy stays what it is. It goes back once, and not again. Two such words are taken
// one after the other.
func (f *Follower) Accept(ctx context.Context, cluster uint64) (Accepted, error) {
	select {
	case f.word <- struct{}{}:
		defer func() { <-f.word }()
	case <-ctx.Done():
		return Accepted{}, fmt.Errorf("follow: another cluster than %016x, or the same, is being followed on an operator's word: %w", cluster, ctx.Err())
	}
	f.mu.Lock()
	if f.refused[cluster] == nil {
		defer f.mu.Unlock()
		return Accepted{}, f.notRefused(cluster)
	}
	out := Accepted{Was: f.state}
	current := f.current
	f.mu.Unlock()
	var err error
	if out.KeptAs, err = f.keepBefore(out.Was, current); err != nil {
		return Accepted{}, err
	}
	f.mu.Lock()
	f.accepted = cluster
	if f.turn != nil {
		f.turn()
	}
	f.mu.Unlock()
	for {
		f.mu.Lock()
		changed, st, keys, still, problem := f.changed, f.state, f.keys, f.accepted == cluster, f.problem
		f.mu.Unlock()
		if !still && st != out.Was {
			out.Revision, out.Keys = st.Revision(), keys
			return out, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			f.mu.Lock()
			f.accepted = 0
			f.mu.Unlock()
			return Accepted{}, fmt.Errorf("follow: no server of cluster %016x could be read, and the copy stays what it is: %s: %w", cluster, problem, ctx.Err())
		}
	}
}

// notRefused says which are; f.mu is held.
func (f *Follower) notRefused(cluster uint64) error {
	var ids []string
	for id := range maps.Keys(f.refused) {
		ids = append(ids, fmt.Sprintf("%016x", id))
	}
	slices.Sort(ids)
	return fmt.Errorf("%w: %016x; refused are: %s", ErrNotRefused, cluster, cmp.Or(strings.Join(ids, ", "), "none"))
}

// keepBefore writes a state beside the file, which may be a while behind it. What this
// agent's own server has is on that server's disk.
func (f *Follower) keepBefore(st State, current time.Time) (string, error) {
	c, is := st.(*Copy)
	if f.cfg.File == "" || !is || c.revision == 0 {
		return "", nil
	}
	kept := f.cfg.File + keptAs
	if err := durable.Replace(kept, encode(f.cfg.Of, c, current)); err != nil {
		return "", fmt.Errorf("follow: the copy cannot be kept: %w", err)
	}
	return kept, nil
}

// followed forgets that servers of a cluster were refused.
func (f *Follower) followed(cluster uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.refused, cluster)
}

// taken ends the wait of Accept: the copy is that of the accepted cluster.
func (f *Follower) taken(cluster uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.accepted == cluster {
		f.accepted = 0
		clear(f.refused)
	}
}

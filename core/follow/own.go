package follow

import (
	"context"
	"fmt"
	"time"
)

// followOwn shows the state of this agent's own server, until ctx ends or it may not
// be shown, for which it returns the reason. It is shown as it is: nothing is copied.
func (f *Follower) followOwn(ctx context.Context, own *Local) error {
	ticker := time.NewTicker(f.cfg.times.ask)
	defer ticker.Stop()
	shown, begun := false, f.State().Revision()
	for {
		changed := own.Changed()
		st := own.State()
		if err := f.cfg.compare(f.State(), st.Cluster(), st.Revision()); err != nil {
			if !f.accepts(st.Cluster()) {
				return fmt.Errorf("this agent's own server: %w", f.refuse(st.Cluster(), err))
			}
			f.taken(st.Cluster())
		}
		status := own.Status()
		if now := st.Revision(); !shown || now != f.State().Revision() {
			f.draft = nil
			f.show(st, status.Keys)
		}
		if !shown {
			shown = true
			f.cfg.Log.Info("the system's keyspace is that of this agent's own server", "revision", st.Revision(), "known", begun)
			defer f.leaveOwn(own)
		}
		f.wasCurrent(status.Current)
		f.at(Server{Name: own.cfg.Name}, status.Problem)
		select {
		case <-changed:
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// leaveOwn makes what was shown a copy, to go on from. An agent that stops is still a
// server, which needs none.
func (f *Follower) leaveOwn(own *Local) {
	f.mu.Lock()
	still := f.own == own
	f.mu.Unlock()
	if still {
		return
	}
	last := f.State()
	f.draft = newDraft(last.Cluster(), last.Revision())
	for kv := range last.Range("") {
		f.draft.keys.Set(kv.Key, kv)
	}
	f.publish()
}

// awaitOwn ends what is followed once the own server is not behind it any more.
func (f *Follower) awaitOwn(ctx context.Context, cancel context.CancelFunc, own *Local) {
	for {
		changed := own.Changed()
		st := own.State()
		if f.cfg.compare(f.State(), st.Cluster(), st.Revision()) == nil || f.accepts(st.Cluster()) {
			cancel()
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

package agent

import (
	"context"
	"time"

	"github.com/fairlead/fairlead/core/membership"
)

// departing is membership whose good-bye begins with a drain, so that others
// stop sending to the instances of this node before they see it go. An
// announced restart drains nothing: the instances go on.
type departing struct {
	*membership.Membership
	agent *Agent
}

// Leave says good-bye and waits until that has spread.
func (d departing) Leave(ctx context.Context) error {
	d.agent.drain(ctx)
	d.agent.storage.handOver(ctx)
	return d.Membership.Leave(ctx)
}

// drain shows the instances of this node as draining for shutdown_drain, if
// there is anybody to see that.
func (a *Agent) drain(ctx context.Context) {
	cfg := a.config()
	wait := min(cfg.ShutdownDrain, cfg.ShutdownTimeout/2)
	if wait <= 0 || a.services == nil || !a.seen() || !a.services.stopping() {
		return
	}
	a.log.Info("draining", "for", wait)
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// seen reports whether another live member is known.
func (a *Agent) seen() bool {
	for _, m := range a.members.Snapshot().Members {
		if !m.Self && m.Value.State.Live() {
			return true
		}
	}
	return false
}

// stopping makes all instances drain. It reports whether there is one that
// others may send to.
func (s *services) stopping() bool {
	s.mu.Lock()
	s.drains.stopping = true
	healthy := s.health.States()
	s.mu.Unlock()
	if err := s.publish(); err != nil {
		s.log.Warn("the others are not told that this node's instances drain", "error", err)
		return false
	}
	for _, status := range healthy {
		if status.Passing {
			return true
		}
	}
	return false
}

package l7

import (
	"context"
	"time"

	"github.com/fairlead/fairlead/dataplane"
)

const (
	// progressEvery is how often a drain says how far it is.
	progressEvery = 100 * time.Millisecond
	// cutTime is left of a deadline for what has to be cut.
	cutTime = 200 * time.Millisecond
)

// Cleanup takes all services away, if they are of that instance. Nothing of the
// proxy is in the system apart from its process, so the list is empty.
func (p *Provider) Cleanup(_ context.Context, what dataplane.CleanupOptions) ([]dataplane.CleanupItem, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.proxy != nil && !what.DryRun && (what.AllKnown || what.InstanceID == p.instance) {
		p.forget()
	}
	return nil, nil
}

// Drain takes no more requests and waits for those under way, tunnels included;
// what is left at the deadline is cut. Configure opens the listeners again.
func (p *Provider) Drain(ctx context.Context, deadline time.Time, progress func(dataplane.DrainProgress)) error {
	p.mu.Lock()
	configured, announce := p.configured, min(p.settings.Announce, time.Until(deadline)/4)
	p.mu.Unlock()
	if !configured {
		progress(dataplane.DrainProgress{})
		return nil
	}
	p.leave(ctx, announce, deadline, progress)
	return ctx.Err()
}

// Shutdown ends as Drain does, within the grace of the settings and what ctx
// leaves. There is nothing that could stay or has to be removed.
func (p *Provider) Shutdown(ctx context.Context, _ dataplane.ShutdownPolicy) error {
	if p.over.Swap(true) {
		return nil
	}
	p.mu.Lock()
	configured, announce, grace := p.configured, p.settings.Announce, p.settings.Grace
	p.mu.Unlock()
	if !configured {
		return nil
	}
	deadline := time.Now().Add(announce + grace)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
		announce = min(announce, time.Until(d)/4)
	}
	p.leave(ctx, announce, deadline, func(dataplane.DrainProgress) {})
	p.proxy.Close()
	p.admin.Close()
	return nil
}

// leave is the end of all requests: announced, then no new ones, then cut. It
// returns when none is left.
func (p *Provider) leave(ctx context.Context, announce time.Duration, deadline time.Time, progress func(dataplane.DrainProgress)) {
	p.ending.Store(true)
	p.front.Leave()
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	wait(ctx, announce)

	soon, cancelSoon := context.WithDeadline(ctx, deadline.Add(-cutTime))
	defer cancelSoon()
	start := p.active()
	closed := make(chan int, 1)
	go func() { closed <- p.front.Close(soon) }()
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	forced, open := 0, true
	for open || p.proxy.Tunnels() > 0 && soon.Err() == nil {
		select {
		case forced = <-closed:
			open = false
		case <-tick.C:
			now := p.active()
			progress(dataplane.DrainProgress{Active: now, Closed: max(0, start-now)})
		}
	}
	forced = max(forced, p.proxy.Tunnels())
	p.proxy.CloseTunnels()
	progress(dataplane.DrainProgress{Closed: max(0, start-forced), Forced: forced})
}

// active is the number of requests and tunnels.
func (p *Provider) active() int { return max(p.front.Requests(), p.proxy.Tunnels()) }

func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

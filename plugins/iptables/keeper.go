package iptables

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/plugins/iptables/internal/host"
	"github.com/fairlead/fairlead/plugins/iptables/internal/rules"
)

// keeper is the goroutine that works when nobody calls: it finds what others did to
// the tables, and repairs it.
type keeper struct {
	provider *Provider
	interval time.Duration // of whole comparisons
	cancel   context.CancelFunc
	done     sync.WaitGroup
}

// tickTime is how often the fingerprints are looked at, and keepTime how long one
// look and its repair may take.
const (
	tickTime = time.Second
	keepTime = 5 * time.Second
)

// startKeeper starts it, or lets it go on with another interval. Only who has the
// turn calls it.
func (p *Provider) startKeeper() {
	if p.keeper != nil && p.keeper.interval == p.settings.interval {
		return
	}
	p.stopKeeper()
	ctx, cancel := context.WithCancel(context.Background())
	k := &keeper{provider: p, interval: p.settings.interval, cancel: cancel}
	k.done.Go(func() { k.run(ctx) })
	p.keeper = k
}

// stopKeeper ends it. Its goroutine may be waiting for the turn, which the caller
// has: that wait ends with its context.
func (p *Provider) stopKeeper() {
	if p.keeper != nil {
		p.keeper.cancel()
		p.keeper.done.Wait()
		p.keeper = nil
	}
}

func (k *keeper) run(ctx context.Context) {
	tick := time.NewTicker(min(tickTime, k.interval))
	defer tick.Stop()
	whole := time.Now().Add(k.interval)
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			due := !now.Before(whole)
			if due {
				whole = now.Add(k.interval)
			}
			k.look(ctx, due)
		}
	}
}

// look compares the fingerprints, and the tables themselves if one is another or a
// whole comparison is due.
func (k *keeper) look(ctx context.Context, whole bool) {
	p := k.provider
	ctx, cancel := context.WithTimeout(ctx, keepTime)
	defer cancel()
	release, err := p.take(ctx, "check")
	if err != nil {
		return // busy: what it does is newer than what we would find
	}
	defer release()
	if p.keeper != k {
		return
	}
	p.keepRoutes(whole)
	for _, f := range families(!p.opts.NoIPv6) {
		plan := p.shown.plans[f]
		if plan == nil {
			continue // not programmed yet
		}
		print, err := p.tools.Variant.Take(hostFamily(f))
		if same := err == nil && print == p.tables.prints[f]; same && !whole {
			continue
		}
		if !whole && p.tools.Variant == host.NFT && p.tables.took[f] >= p.dear && stumps(p.tools, f, plan) {
			_ = p.mark(f)
			continue
		}
		p.check(ctx, f, plan)
	}
}

// check compares a table with the plan, and brings it back.
func (p *Provider) check(ctx context.Context, f rules.Family, plan *rules.Plan) {
	found, err := p.readOnce(ctx, f)
	if err != nil {
		p.show(func(sh *shown) { sh.health.set(troubleDrift, err.Error()) })
		return
	}
	drift := rules.Drift(found, plan)
	if len(drift) == 0 {
		p.show(func(sh *shown) { sh.health.set(troubleDrift, "") })
		_ = p.mark(f) // if it cannot be taken, the next look compares again
		return
	}
	delete(p.tables.plans, f)
	err = p.restore(ctx, p.tools, f, rules.Repair(found, plan))
	trouble := ""
	if err == nil {
		p.tables.plans[f] = plan
		_ = p.mark(f)
	} else {
		delete(p.tables.prints, f)
		trouble = fmt.Sprintf("the %v nat table was altered and could not be repaired: %v", f, err)
	}
	p.show(func(sh *shown) { sh.health.set(troubleDrift, trouble) })
	what := fmt.Sprintf("%v nat table: %s", f, strings.Join(drift, "; "))
	p.log.Warn("the tables were not as this provider left them", "found", what, "repaired", err == nil, "error", err)
	p.emit(dataplane.Event{Drift: &dataplane.Drift{What: what, Repaired: err == nil}})
}

// keepRoutes brings routes back that somebody removed.
func (p *Provider) keepRoutes(whole bool) {
	n, err := p.routes.keep(whole)
	trouble := ""
	if err != nil {
		trouble = err.Error()
	}
	p.show(func(sh *shown) { sh.health.set(troubleRoutes, trouble) })
	if n > 0 {
		what := fmt.Sprintf("%d routes to VIPs", n)
		p.log.Warn("the routes were not as this provider left them", "changes", n, "error", err)
		p.emit(dataplane.Event{Drift: &dataplane.Drift{What: what, Repaired: err == nil}})
	}
}

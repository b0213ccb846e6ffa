package plane

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/fairlead/fairlead/dataplane"
)

// keeper is the goroutine that works when nobody calls: it looks whether somebody
// changed the kernel's rules, and puts ours right.
type keeper struct {
	provider *Provider
	interval time.Duration
	quit     chan struct{}
	done     sync.WaitGroup
	// rest is until when sets are not read: to read many takes long, and others may
	// change their rules all the time.
	rest   time.Time
	routes time.Time // until when routes are not read either
}

// restFactor bounds reading to a hundredth of the time.
const restFactor = 100

// routesInterval is how often routes are read at most.
const routesInterval = 2 * time.Second

// startKeeper starts it, or lets it go on with another interval. p.mu is held.
func (p *Provider) startKeeper() {
	if p.keeper != nil && p.keeper.interval == p.settings.interval {
		return
	}
	p.stopKeeper()
	k := &keeper{provider: p, interval: p.settings.interval, quit: make(chan struct{})}
	k.done.Go(k.run)
	p.keeper = k
}

// stopKeeper ends it. p.mu is held, which the goroutine may be waiting for: it is
// told first, and then let through.
func (p *Provider) stopKeeper() {
	k := p.keeper
	if k == nil {
		return
	}
	p.keeper = nil
	close(k.quit)
	p.mu.Unlock()
	k.done.Wait()
	p.mu.Lock()
}

func (k *keeper) run() {
	tick := time.NewTicker(k.interval)
	defer tick.Stop()
	for {
		select {
		case <-k.quit:
			return
		case <-tick.C:
			k.check()
		}
	}
}

// check compares the kernel with what should be there, and repairs it.
func (k *keeper) check() {
	p := k.provider
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.keeper != k || p.mark.State.Generation == 0 {
		return // there is nothing, or the next generation will see to it
	}
	k.checkTables()
	k.checkRoutes()
}

// checkTables looks if anybody changed anything.
func (k *keeper) checkTables() {
	p := k.provider
	rules, err := p.tables.Generation()
	if err == nil && rules == p.rules {
		return
	}
	damage := p.tables.Check()
	if damage == nil && time.Now().Before(k.rest) {
		return // p.rules stays another, so sets are read later
	}
	start := time.Now()
	ops, err := k.repair()
	k.rest = time.Now().Add(restFactor * time.Since(start))
	p.rules = 0
	if after, told := p.tables.Generation(); told == nil && err == nil && ops == 0 {
		p.rules = after
	}
	if damage == nil && ops == 0 && err == nil {
		return
	}
	what := fmt.Sprintf("%d elements of sets were not as they had been left", ops)
	if damage != nil {
		what = damage.Error()
	}
	p.broken = ""
	if err != nil {
		what += ": " + err.Error()
		p.broken = what
	}
	p.publish()
	k.tell(what, err)
	k.routes = time.Time{} // who took the one may have taken the other
}

// repair makes the kernel what this process knows that should be there.
func (k *keeper) repair() (int, error) {
	p := k.provider
	found, err := p.tables.Load()
	if err != nil {
		return 0, err
	}
	return p.tables.Sync(context.Background(), found, p.entries, p.counts, p.mark)
}

// checkRoutes reads them now and then: nobody tells that somebody removed one.
func (k *keeper) checkRoutes() {
	start := time.Now()
	if start.Before(k.routes) {
		return
	}
	p := k.provider
	failed := p.routesFailed
	p.routes.Recheck()
	ops, err := p.setRoutes()
	if failed && err == nil {
		p.trouble = ""
		p.publish()
	}
	k.routes = time.Now().Add(max(routesInterval, restFactor*time.Since(start)))
	if ops > 0 || err != nil {
		k.tell(fmt.Sprintf("%d routes or rules to service addresses were missing", ops), err)
	}
}

// tell says what was found.
func (k *keeper) tell(what string, err error) {
	p := k.provider
	p.log.Warn("the kernel was not as this provider left it", "found", what, "repaired", err == nil, "error", err)
	p.emit(dataplane.Event{Drift: &dataplane.Drift{What: what, Repaired: err == nil}})
}

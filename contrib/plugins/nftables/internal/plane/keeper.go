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
	rest time.Time
}

// restFactor bounds reading to a hundredth of the time.
const restFactor = 100

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

// check compares the kernel with what should be there if anybody changed anything,
// and repairs it.
func (k *keeper) check() {
	p := k.provider
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.keeper != k || p.tables == nil || !p.tables.Made() {
		return
	}
	rules, err := p.tables.Generation()
	if err == nil && rules == p.rules {
		return
	}
	damage := p.tables.Check()
	if damage == nil && now().Before(k.rest) {
		return // p.rules stays another, so sets are read later
	}
	start := now()
	ops, err := k.repair()
	k.rest = now().Add(restFactor * now().Sub(start))
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
	if err != nil {
		what += ": " + err.Error()
	}
	p.log.Warn("the rules in the kernel were not as this provider left them", "found", what, "repaired", err == nil)
	p.emit(dataplane.Event{Drift: &dataplane.Drift{What: what, Repaired: err == nil}})
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

package ebpf

import (
	"fmt"
	"sync"
	"time"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/plugins/ebpf/internal/host"
	"github.com/fairlead/fairlead/plugins/ebpf/internal/reaper"
)

// keeper is the goroutine that works when nobody calls: it ends connections whose
// time has come, and compares the kernel with what should be there.
type keeper struct {
	provider *Provider
	interval time.Duration
	woken    chan struct{}
	quit     chan struct{}
	done     sync.WaitGroup
	reaper   reaper.Reaper // nil: this kernel cannot end connections
}

// startKeeper starts it, or lets it go on with other settings. p.mu is held.
func (p *Provider) startKeeper() {
	if p.keeper != nil && p.keeper.interval == p.settings.interval {
		return
	}
	p.stopKeeper()
	k := &keeper{provider: p, interval: p.settings.interval, woken: make(chan struct{}, 1), quit: make(chan struct{})}
	if r, err := reaper.New(p.data.Shared("sockets")); err == nil {
		k.reaper = r
	} else {
		p.log.Warn("connections to endpoints that are gone cannot be ended on this kernel", "error", err)
	}
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
	if k.reaper != nil {
		k.reaper.Close()
	}
}

// wake lets the keeper look at once whether there is anything to do.
func (k *keeper) wake() {
	select {
	case k.woken <- struct{}{}:
	default:
	}
}

func (k *keeper) run() {
	check := time.NewTicker(k.interval)
	defer check.Stop()
	due := time.NewTimer(time.Hour)
	defer due.Stop()
	for {
		select {
		case <-k.quit:
			return
		case <-check.C:
			k.check()
		case <-k.provider.doubt:
			k.check()
		case <-due.C:
		case <-k.woken:
		}
		wait := time.Hour
		if next := k.end(); !next.IsZero() {
			wait = max(0, next.Sub(now()))
		}
		due.Reset(wait)
	}
}

// end ends the connections whose time has come, and says when to come again.
func (k *keeper) end() time.Time {
	p := k.provider
	p.mu.Lock()
	if p.keeper != k {
		p.mu.Unlock()
		return time.Time{}
	}
	at := now()
	take, next := p.ends.due(at, func(key dataplane.Key, id uint64) bool {
		if p.last == nil {
			return false
		}
		svc := p.last.Service(key)
		if svc == nil {
			return false
		}
		_, is := svc.Endpoints.Get(id)
		return is
	})
	p.mu.Unlock()
	if len(take) == 0 || k.reaper == nil {
		return next
	}
	var list []reaper.Doom
	for d, e := range take {
		doom := reaper.Doom{Service: d.service, Endpoint: d.endpoint}
		if !e.since.IsZero() {
			doom.Silent = at.Sub(e.since)
		}
		list = append(list, doom)
	}
	ended, err := k.reaper.Pass(list)
	if err != nil {
		p.log.Warn("not all connections to endpoints that are gone could be ended", "error", err)
	}
	if ended > 0 {
		p.log.Info("ended connections to endpoints that are gone", "connections", ended, "endpoints", len(list))
	}
	return next
}

// check compares the kernel with what this process did there, and repairs it.
func (k *keeper) check() {
	p := k.provider
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.keeper != k || p.data == nil {
		return
	}
	found := p.data.Check()
	if found == nil {
		return
	}
	err := p.repair()
	p.log.Warn("the kernel was not as this provider left it", "found", found, "repaired", err == nil, "error", err)
	what := found.Error()
	if err != nil {
		what = fmt.Sprintf("%v: %v", found, err)
	}
	p.emit(dataplane.Event{Drift: &dataplane.Drift{What: what, Repaired: err == nil}})
}

// repair also makes the file system anew that somebody unmounted. p.mu is held.
func (p *Provider) repair() error {
	if p.settings.BPFFS == "" {
		if err := host.MountBPFFS(p.place.bpffs); err != nil {
			return err
		}
	}
	return p.data.Repair()
}

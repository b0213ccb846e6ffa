package l4

import (
	"fmt"
	"net/netip"
	"sync"
	"time"
)

// load connects without end, and remembers who answered since when.
type load struct {
	quit chan struct{}
	done sync.WaitGroup

	mu    sync.Mutex
	calls []call
}

// call is one connect and its answer.
type call struct {
	at, until time.Time // when it began and ended
	name      string
	err       error
}

// load starts two callers with a connect each 4 ms.
func (g *rig) load(c client, to netip.AddrPort) *load {
	l := &load{quit: make(chan struct{})}
	for range 2 {
		l.done.Go(func() {
			tick := time.NewTicker(4 * time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-l.quit:
					return
				case <-tick.C:
				}
				start := time.Now()
				name, err := c.ask("tcp", to)
				l.mu.Lock()
				l.calls = append(l.calls, call{start, time.Now(), name, err})
				l.mu.Unlock()
			}
		})
	}
	g.later(func() { l.stop() })
	return l
}

func (l *load) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.calls)
}

// more waits until n more connects have ended well.
func (l *load) more(g *rig, n int) error {
	was := l.count()
	if err := l.failures(); err != nil {
		return err // there is no use in going on
	}
	return g.within(3*g.options.Answer, func() error {
		if now := l.count(); now < was+n {
			return fmt.Errorf("%d connects ended, want %d", now-was, n)
		}
		return nil
	})
}

func (l *load) failures() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return failures(l.calls)
}

// stop ends the callers, and returns all calls.
func (l *load) stop() []call {
	select {
	case <-l.quit:
	default:
		close(l.quit)
	}
	l.done.Wait()
	return l.calls
}

// failures is what was wrong with calls; nil if nothing was.
func failures(calls []call) error {
	failed := 0
	var first error
	for _, c := range calls {
		if c.err != nil {
			if failed++; first == nil {
				first = c.err
			}
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d connects failed, the first: %w", failed, len(calls), first)
	}
	return nil
}

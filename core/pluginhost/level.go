package pluginhost

import (
	"log/slog"
	"sync"
	"time"
)

// levels is the level at which plugins log, and who waits for another one.
type levels struct {
	mu      sync.Mutex
	now     slog.Level
	changed chan struct{} // closed with the next change; nil: nobody waits
}

func (l *levels) set(now slog.Level) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.now == now {
		return
	}
	l.now = now
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
}

// get returns the level, and what is closed when it is another one.
func (l *levels) get() (slog.Level, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.changed == nil {
		l.changed = make(chan struct{})
	}
	return l.now, l.changed
}

// The pause after a plugin did not take a level, such as for a Reconcile under
// way, doubles from the first to the longest.
const (
	firstLevelRetry = 200 * time.Millisecond
	maxLevelRetry   = 30 * time.Second
)

// followLevel tells a plugin each change of the level until it is lost: by its
// configuration once more, which is the same but for that. Whoever runs by itself
// logs as its own operator wants.
func (s *supervisor) followLevel(i *instance) {
	if i.kind == KindAlone {
		return
	}
	pause := firstLevelRetry
	for {
		level, changed := s.host.level.get()
		if level == i.level {
			select {
			case <-changed:
			case <-i.lost:
				return
			case <-i.ctx.Done():
				return
			}
			continue
		}
		err := s.configure(i.ctx, i)
		if err == nil {
			pause = firstLevelRetry
			continue
		}
		s.host.log.Debug("plugin did not take the log level, and is asked again", "plugin", s.name, "level", level, "error", err)
		select {
		case <-time.After(pause):
			pause = min(2*pause, maxLevelRetry)
		case <-i.lost:
			return
		case <-i.ctx.Done():
			return
		}
	}
}

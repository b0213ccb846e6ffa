package follow

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/fairlead/fairlead/core/durable"
)

// load takes the file for the copy. A file that cannot be used is set aside.
func (f *Follower) load() {
	if f.cfg.File == "" {
		return
	}
	data, err := durable.Read(f.cfg.File, maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	var d *draft
	var current time.Time
	if err == nil {
		d, current, err = decode(f.cfg.Of, data)
	}
	if err != nil {
		f.setAside(err)
		return
	}
	f.draft, f.state, f.keys, f.current = d, d.copy(), d.keys.Len(), current
	f.metrics.revision.Set(float64(d.revision))
	f.metrics.keys.Set(float64(d.keys.Len()))
	f.cfg.Log.Info("the copy of the system's keyspace is read", "file", f.cfg.File, "revision", d.revision, "keys", d.keys.Len(), "current", current)
}

func (f *Follower) setAside(why error) {
	aside := f.cfg.File + damagedAs
	args := []any{"file", f.cfg.File, "reason", why, "set_aside_as", aside}
	if err := os.Rename(f.cfg.File, aside); err != nil {
		args = append(args, "error", err)
	}
	f.cfg.Log.Warn("the copy of the system's keyspace is not used: what is configured is known once a server answers", args...)
}

// keep writes the file when there is something new, and at the end.
func (f *Follower) keep() {
	if f.cfg.File == "" {
		<-f.keeping
		return
	}
	var k keeper
	for {
		select {
		case <-f.fresh:
			k.write(f)
		case <-f.keeping:
			k.write(f)
			return
		}
		t := time.NewTimer(f.cfg.times.write)
		select {
		case <-t.C:
		case <-f.keeping:
		}
		t.Stop()
		if k.failing {
			f.renew()
		}
	}
}

// keeper remembers what is in the file.
type keeper struct {
	copy    *Copy
	current time.Time
	failing bool
	removed bool
}

// write replaces the file. That of a server is taken away: it is its own copy, and
// an old one would only forbid the server to begin anew.
func (k *keeper) write(f *Follower) {
	f.mu.Lock()
	st, current := f.state, f.current
	f.mu.Unlock()
	c, is := st.(*Copy)
	if !is {
		if !k.removed {
			*k = keeper{removed: true}
			if err := os.Remove(f.cfg.File); err != nil && !errors.Is(err, fs.ErrNotExist) {
				f.cfg.Log.Warn("the copy of the system's keyspace cannot be removed: it is in the way if the servers are begun anew", "file", f.cfg.File, "error", err)
			}
		}
		return
	}
	if c.revision == 0 || k.copy == c && k.current.Equal(current) {
		return
	}
	if err := durable.Replace(f.cfg.File, encode(f.cfg.Of, c, current)); err != nil {
		f.metrics.writes.WithLabelValues(writeFailed).Inc()
		if !k.failing {
			f.cfg.Log.Warn("the copy of the system's keyspace cannot be written: without a server, the next start knows what is in the file", "file", f.cfg.File, "error", fmt.Errorf("follow: %w", err))
		}
		k.failing = true
		return
	}
	if k.failing {
		f.cfg.Log.Info("the copy of the system's keyspace is written again", "file", f.cfg.File)
	}
	f.metrics.writes.WithLabelValues(writeOK).Inc()
	*k = keeper{copy: c, current: current}
}

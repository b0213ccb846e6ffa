package iptables

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/plugins/iptables/internal/host"
	"github.com/fairlead/fairlead/plugins/iptables/internal/rules"
)

// tables is what this process knows of the nat tables.
type tables struct {
	// plans are what stands there. A family without one was not looked at, or
	// something went wrong in between: it is read before it is altered.
	plans map[rules.Family]*rules.Plan
	// prints are the fingerprints after our last change.
	prints map[rules.Family]host.Fingerprint
	// readings are of tables that took longer to read than a call had time. The
	// next call waits for the same one.
	readings map[rules.Family]*reading
	// took is how long the last one took.
	took map[rules.Family]time.Duration
}

// reading is an iptables-save under way.
type reading struct {
	begun time.Time
	done  chan struct{}
	text  string
	err   error
}

// readTime bounds it.
const readTime = time.Minute

// How long a restore may wait for the lock, and what of a call's time is left for
// the rest.
const (
	lockTime  = 5 * time.Second
	spareTime = 1500 * time.Millisecond
)

// patience is how long to wait for the lock in a call that ends with ctx.
func patience(ctx context.Context, now time.Time) time.Duration {
	end, ok := ctx.Deadline()
	if !ok {
		return lockTime
	}
	return min(max(end.Sub(now)-spareTime, time.Second), lockTime)
}

// put makes a family's table what the plan says, and returns how many lines that
// took.
func (p *Provider) put(ctx context.Context, f rules.Family, plan *rules.Plan) (ops int, err error) {
	var text []byte
	if was := p.stands(f); was != nil && sameJumps(was, plan) {
		text = rules.Restore(was, plan)
	} else {
		found, err := p.readOnce(ctx, f)
		if err != nil {
			return 0, err
		}
		text = rules.Repair(found, plan)
	}
	if len(text) > 0 {
		delete(p.tables.plans, f)
		if err := p.restore(ctx, p.tools, f, text); err != nil {
			if was := p.shown.plans[f]; was != nil && untouched(err) {
				p.tables.plans[f] = was
			}
			return 0, err
		}
	}
	p.tables.plans[f] = plan
	p.show(func(sh *shown) {
		if sh.plans == nil {
			sh.plans = make(map[rules.Family]*rules.Plan)
		}
		sh.plans[f] = plan
	})
	if err := p.mark(f); err != nil {
		p.log.Warn("changes by others will be found late", "error", err)
	}
	return operations(text), nil
}

// sameJumps reports whether two plans are led to from the same base chains; a restore
// between others leaves those alone.
func sameJumps(a, b *rules.Plan) bool {
	return slices.EqualFunc(a.Jumps(), b.Jumps(), func(x, y rules.Jump) bool { return x.Base == y.Base })
}

// stands is what the table of a family holds, nil if that is not known. If a restore
// was ended and the nft ruleset has its old number, it had not begun; the counts of a
// legacy table do not tell.
func (p *Provider) stands(f rules.Family) *rules.Plan {
	if plan := p.tables.plans[f]; plan != nil || p.tools.Variant != host.NFT {
		return plan
	}
	print, marked := p.tables.prints[f]
	if now, err := p.tools.Variant.Take(hostFamily(f)); err == nil && marked && now == print {
		return p.shown.plans[f]
	}
	return nil
}

// readOnce is read for who has the turn: if ctx ends first, it goes on for the next
// call, which so profits from the time that this one took.
func (p *Provider) readOnce(ctx context.Context, f rules.Family) (*rules.Table, error) {
	r := p.tables.readings[f]
	if r == nil {
		r = &reading{begun: time.Now(), done: make(chan struct{})}
		p.tables.readings[f] = r
		tools := p.tools
		go func() {
			defer close(r.done)
			ctx, cancel := context.WithTimeout(context.Background(), readTime)
			defer cancel()
			r.text, r.err = tools.Save(ctx, hostFamily(f), "nat")
		}()
	}
	select {
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: iptables: the %v nat table is being read: %w", dataplane.ErrFailed, f, ctx.Err())
	case <-r.done:
	}
	delete(p.tables.readings, f)
	p.tables.took[f] = time.Since(r.begun)
	return p.parse(f, r.text, r.err)
}

// mark remembers how the table looks after a change of ours.
func (p *Provider) mark(f rules.Family) error {
	print, err := p.tools.Variant.Take(hostFamily(f))
	if err != nil {
		delete(p.tables.prints, f)
		return err
	}
	p.tables.prints[f] = print
	return nil
}

// read reads what stands in a family's nat table.
func (p *Provider) read(ctx context.Context, t host.Tools, f rules.Family) (*rules.Table, error) {
	text, err := t.Save(ctx, hostFamily(f), "nat")
	return p.parse(f, text, err)
}

func (p *Provider) parse(f rules.Family, text string, err error) (*rules.Table, error) {
	if err != nil {
		return nil, p.failed(err)
	}
	found, err := rules.Parse([]byte(text))
	if err != nil {
		return nil, fmt.Errorf("%w: iptables: the %v nat table: %w", dataplane.ErrFailed, f, err)
	}
	return found, nil
}

// restore applies a text, and notes in Health whether the lock let it.
func (p *Provider) restore(ctx context.Context, t host.Tools, f rules.Family, text []byte) error {
	delete(p.tables.readings, f) // it shows what was before
	err := t.Restore(ctx, hostFamily(f), text, patience(ctx, time.Now()))
	trouble := ""
	if err != nil {
		if err = p.failed(err); errors.Is(err, host.ErrLocked) {
			trouble = err.Error()
		}
	}
	p.show(func(sh *shown) { sh.health.set(troubleLock, trouble) })
	return err
}

// failed says what to do about an error of a binary.
func (p *Provider) failed(err error) error {
	switch {
	case errors.Is(err, host.ErrLocked):
		who := host.LockHolder()
		if who == "" {
			who = "another process"
		}
		return fmt.Errorf("%w: iptables: %w by %s: wait until it is done, or end it", dataplane.ErrFailed, err, who)
	case errors.Is(err, host.ErrForbidden):
		return fmt.Errorf("%w: iptables: %w: %s", dataplane.ErrFailed, err, rights)
	}
	return fmt.Errorf("%w: iptables: %w", dataplane.ErrFailed, err)
}

// refused reports whether an error means that the text was read and not taken: a
// service in it may be at fault.
func refused(err error) bool {
	return err != nil && !errors.Is(err, host.ErrLocked) && !errors.Is(err, host.ErrForbidden) &&
		!errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded)
}

// untouched reports whether an error means that the table is as it was: a text is
// taken whole or not at all, unless the process was ended while it was about it.
func untouched(err error) bool { return refused(err) || errors.Is(err, host.ErrLocked) }

// slow reports whether a restore took longer than a call has time.
func slow(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// operations counts the lines of a text that alter something.
func operations(text []byte) int {
	n := 0
	for line := range bytes.Lines(text) {
		if line[0] == '-' || line[0] == ':' {
			n++
		}
	}
	return n
}

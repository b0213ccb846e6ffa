package observe

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/fairlead/fairlead/dataplane"
)

// ErrClosed ends observers when the hub closes.
var ErrClosed = errors.New("observe: the hub is closed")

// buffer is how many flows an observer may lag before it loses some.
const buffer = 1024

// Flow is a flow and the provider that told of it.
type Flow struct {
	dataplane.Flow
	Provider string
}

// Lost counts flows that an observer was not given since the last time it was
// told.
type Lost struct {
	Slow     uint64 // it did not read them in time
	OverRate uint64 // beyond its rate; providers leave out more without counting
	Provider uint64 // a provider's stream was not read in time
}

// Any reports whether anything was lost.
func (l Lost) Any() bool { return l != Lost{} }

// Item is what an observer is given: one field is set.
type Item struct {
	Began []string // the first item: the providers that are asked, maybe none yet
	Flow  *Flow
	Lost  Lost // before the next flow
}

// observer is one call of Observe.
type observer struct {
	options Options
	flows   chan *Flow
	behind  chan struct{} // holds one token when lost is worth telling

	mu     sync.Mutex
	pick   int // so much of a sample is due, in parts of options.OneIn
	second int64
	used   int
	lost   Lost
}

func newObserver(o Options) *observer {
	return &observer{options: o, flows: make(chan *Flow, buffer), behind: make(chan struct{}, 1)}
}

// offer gives a flow that was sampled one in so many. It never blocks.
func (o *observer) offer(f *Flow, oneIn int, now time.Time) {
	if !o.options.match(&f.Flow) {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	// Invariant: of n flows offered n·oneIn/options.OneIn are taken, rounded down.
	if o.pick += oneIn; o.pick < o.options.OneIn {
		return
	}
	o.pick -= o.options.OneIn
	if second := now.Unix(); second != o.second {
		o.second, o.used = second, 0
	}
	if o.used >= o.options.Rate {
		o.lost.OverRate++
		o.tell()
		return
	}
	select {
	case o.flows <- f:
		o.used++
	default:
		o.lost.Slow++
		o.tell()
	}
}

// missed notes flows that did not even get here.
func (o *observer) missed(n uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lost.Provider += n
	o.tell()
}

func (o *observer) tell() {
	select {
	case o.behind <- struct{}{}:
	default:
	}
}

func (o *observer) takeLost() Lost {
	o.mu.Lock()
	defer o.mu.Unlock()
	l := o.lost
	o.lost = Lost{}
	return l
}

// tellEvery is how often an observer is told of losses, at most.
const tellEvery = time.Second

// items yields what arrives until ctx ends, closed closes or the reader stops.
func (o *observer) items(ctx context.Context, closed <-chan struct{}, metrics *Metrics, yield func(Item, error) bool) {
	tick := time.NewTimer(tellEvery)
	defer tick.Stop()
	behind := (<-chan struct{})(o.behind)
	for {
		select {
		case f := <-o.flows:
			if !yield(Item{Flow: f}, nil) {
				return
			}
		case <-tick.C:
			behind = o.behind
		case <-behind:
			behind = nil
			tick.Reset(tellEvery)
			lost := o.takeLost()
			metrics.gone(lost)
			if lost.Any() && !yield(Item{Lost: lost}, nil) {
				return
			}
		case <-closed:
			yield(Item{}, ErrClosed)
			return
		case <-ctx.Done():
			yield(Item{}, ctx.Err())
			return
		}
	}
}

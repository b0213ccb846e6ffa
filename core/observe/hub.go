package observe

import (
	"context"
	"errors"
	"io"
	"iter"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fairlead/fairlead/dataplane"
	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
	"github.com/fairlead/fairlead/dataplane/transfer"
)

// MaxObservers bounds the calls of Observe under way.
const MaxObservers = 32

// ErrTooMany reports MaxObservers.
var ErrTooMany = errors.New("observe: 32 observers are there already: end one")

// retryAfter is how long a provider is left alone whose stream broke.
const retryAfter = time.Second

// Config is what a Hub needs. What is nil is not used.
type Config struct {
	Log     *slog.Logger
	Metrics *Metrics
	Now     func() time.Time // for rates; nil: the clock
}

// Hub gathers flows. Its methods may be called from any goroutine.
type Hub struct {
	cfg    Config
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu        sync.Mutex
	observers map[*observer]bool
	list      []*observer            // of observers; replaced, never changed
	wanted    *dataplane.FlowOptions // nil: nobody observes
	changed   chan struct{}          // closed when wanted changes
	providers map[*provider]bool
}

// provider is one life of a provider.
type provider struct {
	name   string
	client pb.DataPlaneProviderClient
	lost   <-chan struct{}
}

// New returns a hub that knows of no provider yet.
func New(cfg Config) *Hub {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Metrics == nil {
		cfg.Metrics = NewMetrics()
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	h := &Hub{cfg: cfg, observers: make(map[*observer]bool), changed: make(chan struct{}), providers: make(map[*provider]bool)}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	return h
}

// Close ends all observers and all streams, and returns when nothing runs any
// more. What is added later is ignored.
func (h *Hub) Close() {
	h.mu.Lock()
	h.cancel()
	h.mu.Unlock()
	h.wg.Wait()
}

// Add makes one life of a provider part of the hub, until lost closes.
func (h *Hub) Add(name string, client pb.DataPlaneProviderClient, lost <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ctx.Err() != nil {
		return
	}
	p := &provider{name: name, client: client, lost: lost}
	h.providers[p] = true
	h.wg.Go(func() {
		h.follow(p)
		h.mu.Lock()
		delete(h.providers, p)
		h.mu.Unlock()
	})
}

// Observe yields which providers are asked and then flows, until ctx ends, which is the error that it
// ends with, or the reader stops. It ends with ErrClosed if the hub closes.
func (h *Hub) Observe(ctx context.Context, options Options) iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		o := newObserver(options.normal())
		if err := h.enter(o); err != nil {
			yield(Item{}, err)
			return
		}
		defer h.leave(o)
		if !yield(Item{Began: h.Providers()}, nil) {
			return
		}
		o.items(ctx, h.ctx.Done(), h.cfg.Metrics, yield)
	}
}

func (h *Hub) enter(o *observer) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.ctx.Err() != nil:
		return ErrClosed
	case len(h.observers) >= MaxObservers:
		return ErrTooMany
	}
	h.observers[o] = true
	h.renew()
	return nil
}

func (h *Hub) leave(o *observer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.observers, o)
	h.renew()
}

// renew works out what is wanted of all providers. h.mu is held.
func (h *Hub) renew() {
	h.list = make([]*observer, 0, len(h.observers))
	var all []Options
	for o := range h.observers {
		h.list = append(h.list, o)
		all = append(all, o.options)
	}
	h.cfg.Metrics.watching.Set(float64(len(h.list)))
	want := union(all)
	if want == nil && h.wanted == nil || want != nil && h.wanted != nil && *want == *h.wanted {
		return
	}
	h.wanted = want
	close(h.changed)
	h.changed = make(chan struct{})
}

// wish returns what is wanted, and what closes when that changes.
func (h *Hub) wish() (*dataplane.FlowOptions, <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.wanted, h.changed
}

// follow keeps a stream open to a provider while there is somebody to tell.
func (h *Hub) follow(p *provider) {
	for {
		want, changed := h.wish()
		wait := time.Duration(0) // for a change, however long it takes
		if want != nil {
			if ended := h.stream(p, *want, changed); ended {
				return
			}
			wait = retryAfter // unless it ended by a change
		}
		if !h.pause(p, wait, changed) {
			return
		}
	}
}

// pause waits for a change, or so long if that is not 0. It reports whether the
// provider is there still.
func (h *Hub) pause(p *provider, most time.Duration, changed <-chan struct{}) bool {
	var over <-chan time.Time
	if most > 0 {
		timer := time.NewTimer(most)
		defer timer.Stop()
		over = timer.C
	}
	select {
	case <-over:
	case <-changed:
	case <-p.lost:
		return false
	case <-h.ctx.Done():
		return false
	}
	return true
}

// stream passes on the flows of one call of Watch, until something else is
// wanted, or it breaks. ended: the provider is lost, or cannot be watched at all.
func (h *Hub) stream(p *provider, want dataplane.FlowOptions, changed <-chan struct{}) (ended bool) {
	ctx, cancel := context.WithCancel(h.ctx)
	var helper sync.WaitGroup
	defer helper.Wait()
	defer cancel()
	helper.Go(func() {
		select {
		case <-changed:
		case <-p.lost:
		case <-ctx.Done():
		}
		cancel()
	})
	err := h.receive(ctx, p, want)
	switch {
	case ctx.Err() != nil:
	case status.Code(err) == codes.Unimplemented:
		return true
	case !errors.Is(err, io.EOF):
		h.cfg.Log.Debug("a provider's flows ended", "provider", p.name, "error", err)
	}
	select {
	case <-p.lost:
		return true
	default:
		return h.ctx.Err() != nil
	}
}

func (h *Hub) receive(ctx context.Context, p *provider, want dataplane.FlowOptions) error {
	stream, err := p.client.Watch(ctx, &pb.WatchRequest{Flows: transfer.EncodeFlowOptions(&want)})
	if err != nil {
		return err
	}
	var seq uint64
	for {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		h.mu.Lock()
		list := h.list
		h.mu.Unlock()
		if seq != 0 && m.GetSeq() > seq+1 {
			for _, o := range list {
				o.missed(m.GetSeq() - seq - 1)
			}
		}
		seq = m.GetSeq()
		f := transfer.DecodeEvent(m).Flow
		if f == nil {
			continue
		}
		h.cfg.Metrics.flow(p.name, f.Verdict)
		now, flow := h.cfg.Now(), &Flow{Flow: *f, Provider: p.name}
		for _, o := range list {
			o.offer(flow, want.SampleOneIn, now)
		}
	}
}

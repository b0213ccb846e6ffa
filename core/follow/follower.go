package follow

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/status"

	"github.com/fairlead/fairlead/core/identity"
)

// Follower is the Source of an agent.
type Follower struct {
	cfg     Config
	metrics *metrics
	draft   *draft // of the goroutine that follows; nil: there is none yet

	cancel  context.CancelFunc
	running sync.WaitGroup
	keeping chan struct{} // closed when following has ended, and the file is to be written a last time
	kept    chan struct{} // closed when it is
	fresh   chan struct{} // of one: there is something to write

	mu      sync.Mutex
	state   State
	keys    int
	changed chan struct{} // closed when there is a newer state
	current time.Time
	server  Server // zero: none
	problem string
	own     *Local             // nil: this agent is no server
	turn    context.CancelFunc // ends what is followed, since own is another one
	stopped bool

	refused  map[uint64]error // by cluster: why its servers are not followed
	accepted uint64           // an operator has this one followed; 0: none
	word     chan struct{}    // of one: an operator's word is being taken
}

var _ Source = (*Follower)(nil)

// Start reads the file and begins to follow.
func Start(cfg Config) (*Follower, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	f := &Follower{
		cfg: cfg, keeping: make(chan struct{}), kept: make(chan struct{}), fresh: make(chan struct{}, 1),
		state: newDraft(0, 0).copy(), changed: make(chan struct{}), problem: "it begins to look for a server",
		refused: map[uint64]error{}, word: make(chan struct{}, 1),
	}
	f.metrics = newMetrics(func() (time.Duration, bool) { return f.Status().Age(cfg.Now()) })
	if err := f.metrics.register(cfg.Metrics); err != nil {
		return nil, err
	}
	f.load()
	ctx, cancel := context.WithCancel(context.Background())
	f.cancel = cancel
	f.running.Go(func() { f.run(ctx) })
	go func() {
		defer close(f.kept)
		f.keep()
	}()
	return f, nil
}

// Stop ends following, and writes what is known. What was read stays.
func (f *Follower) Stop() {
	f.mu.Lock()
	again := f.stopped
	f.stopped = true
	f.mu.Unlock()
	if !again {
		f.cancel()
		f.running.Wait()
		close(f.keeping)
	}
	<-f.kept
	if !again {
		f.metrics.unregister(f.cfg.Metrics)
	}
}

// State implements Source.
func (f *Follower) State() State {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state
}

// Changed implements Source.
func (f *Follower) Changed() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.changed
}

// Status implements Source.
func (f *Follower) Status() Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	return Status{
		Cluster: f.state.Cluster(), Revision: f.state.Revision(), Keys: f.keys, Current: f.current,
		Server: f.server.Name, Address: f.server.Address, Problem: f.problem,
	}
}

// publish makes the draft the newest state.
func (f *Follower) publish() {
	c := f.draft.copy()
	f.show(c, c.keys.Len())
}

// show makes a state the newest one.
func (f *Follower) show(st State, keys int) {
	f.mu.Lock()
	f.state, f.keys = st, keys
	close(f.changed)
	f.changed = make(chan struct{})
	f.mu.Unlock()
	f.metrics.revision.Set(float64(st.Revision()))
	f.metrics.keys.Set(float64(keys))
	f.renew()
}

// renew says that there is something to write, or not any more.
func (f *Follower) renew() {
	select {
	case f.fresh <- struct{}{}:
	default: // it is known
	}
}

// wasCurrent notes that the copy was the newest there is at a time.
func (f *Follower) wasCurrent(at time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if at.After(f.current) {
		f.current = at
	}
}

// at notes whom it follows.
func (f *Follower) at(s Server, problem string) {
	f.mu.Lock()
	f.server, f.problem = s, problem
	f.mu.Unlock()
	connected := 0.0
	if s != (Server{}) {
		connected = 1
	}
	f.metrics.connected.Set(connected)
}

// Serve says that this agent is a server now, or, with nil, that it is none: its own
// state is the source from then on, as soon as it is not older than what is known.
func (f *Follower) Serve(own *Local) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.own = own
	if f.turn != nil {
		f.turn()
	}
}

// run follows one server after the other, or this agent's own.
func (f *Follower) run(ctx context.Context) {
	w := wanderer{Follower: f, rest: f.cfg.times.rest}
	for ctx.Err() == nil {
		turn, cancel := context.WithCancel(ctx)
		f.mu.Lock()
		own := f.own
		f.turn = cancel
		f.mu.Unlock()
		w.wander(turn, cancel, own)
		cancel()
	}
	f.at(Server{}, "this agent stops")
}

// wanderer is what is known from one server to the next.
type wanderer struct {
	*Follower
	last  Server
	rest  time.Duration
	said  string
	since time.Time // nobody is followed; zero: somebody is
}

// wander follows until there is a reason to look around again.
func (w *wanderer) wander(ctx context.Context, cancel context.CancelFunc, own *Local) {
	var err error
	if own != nil {
		if err = w.followOwn(ctx, own); ctx.Err() != nil {
			return
		}
		// It is behind: others are followed until it is not.
		var waiting sync.WaitGroup
		defer waiting.Wait()
		defer cancel()
		waiting.Go(func() { w.awaitOwn(ctx, cancel, own) })
	}
	followed, others := w.round(ctx, w.last)
	switch {
	case ctx.Err() != nil:
		return
	case followed != (Server{}):
		w.last, w.rest, w.said, w.since = followed, w.cfg.times.rest, "", time.Time{}
		return
	}
	err = errors.Join(err, others)
	w.at(Server{}, err.Error())
	if w.since.IsZero() {
		w.since = time.Now()
	}
	if kind := kindOf(err); kind != w.said && (kind != kindNone || time.Since(w.since) >= w.cfg.times.patience) {
		w.said = kind
		w.cfg.Log.Warn("no server of the store can be followed: what is configured stays as it is known", "error", err, "revision", w.State().Revision())
	}
	wait(ctx, jittered(w.rest))
	w.rest = min(2*w.rest, w.cfg.times.restMost)
}

// kindOf tells errors apart that an operator has to hear of.
func kindOf(err error) string {
	for _, kind := range []error{ErrOtherCluster, ErrBehind, ErrRewritten} {
		if errors.Is(err, kind) {
			return kind.Error()
		}
	}
	return kindNone
}

// kindNone is of errors that may pass by themselves.
const kindNone = "none"

// round tries all servers, the last one at the end, until one was followed for some
// time. Else it returns why none was.
func (f *Follower) round(ctx context.Context, last Server) (followed Server, err error) {
	servers := slices.Clone(f.cfg.Servers())
	if len(servers) == 0 {
		return Server{}, errors.New(f.cfg.Nobody)
	}
	rand.Shuffle(len(servers), func(i, j int) { servers[i], servers[j] = servers[j], servers[i] })
	if i := slices.Index(servers, last); i >= 0 {
		servers = append(slices.Delete(servers, i, i+1), last)
	}
	var failures []error
	for _, s := range servers {
		held, err := f.follow(ctx, s)
		if ctx.Err() != nil {
			return Server{}, ctx.Err()
		}
		f.metrics.left.WithLabelValues(reasonOf(err)).Inc()
		explained := fmt.Errorf("server %s at %s: %w", s.Name, s.Address, f.describe(err))
		f.at(Server{}, explained.Error())
		if held >= f.cfg.times.steady {
			f.cfg.Log.Info("left a server of the store", "server", s.Name, "address", s.Address, "reason", f.describe(err))
			return s, nil
		}
		failures = append(failures, explained)
	}
	return Server{}, errors.Join(failures...)
}

func reasonOf(err error) string {
	switch {
	case errors.Is(err, ErrOtherCluster):
		return leftOther
	case errors.Is(err, ErrBehind):
		return leftBehind
	case errors.Is(err, ErrRewritten):
		return leftRewritten
	case errors.Is(err, ErrSilent):
		return leftSilent
	case hasNoLeader(err):
		return leftLeaderless
	}
	return leftBroken
}

func hasNoLeader(err error) bool {
	return strings.Contains(rpctypes.ErrorDesc(err), rpctypes.ErrorDesc(rpctypes.ErrGRPCNoLeader))
}

// describe says an error of a call for people.
func (f *Follower) describe(err error) error {
	if f.cfg.Prefix != "" {
		return plain(err)
	}
	if explained := identity.Explain(err); explained.Error() != err.Error() {
		return explained
	}
	return plain(err)
}

func plain(err error) error {
	if s, is := status.FromError(err); is {
		return errors.New(s.Message())
	}
	return err
}

func jittered(d time.Duration) time.Duration { return d/2 + rand.N(d) }

// wait waits, or until it is over.
func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

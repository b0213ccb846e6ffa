package pluginhost

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/dataplane"
	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
	"github.com/fairlead/fairlead/dataplane/transfer"
)

// State is where a provider is in its life; the package comment draws it.
type State string

// The states.
const (
	StateDiscovered State = "discovered"
	StateStarting   State = "starting"
	StateConfigured State = "configured"
	StateReady      State = "ready"
	StateBackoff    State = "backoff"
	StateCrashLoop  State = "crash-loop"
	StateRefused    State = "refused"  // its file may not be run, or is gone
	StateRejected   State = "rejected" // its settings are wrong
	StateStopped    State = "stopped"
	StateLeaving    State = "leaving" // it was not chosen any more, and is being cleaned
)

func states() []State {
	return []State{StateDiscovered, StateStarting, StateConfigured, StateReady, StateBackoff, StateCrashLoop, StateRefused, StateRejected, StateStopped, StateLeaving}
}

// down reports whether a provider does not run and waits for something.
func (s State) down() bool {
	return slices.Contains([]State{StateBackoff, StateCrashLoop, StateRefused, StateRejected}, s)
}

// Status is what is known of a provider.
type Status struct {
	Name   string           `json:"name"`
	State  State            `json:"state"`
	Since  time.Time        `json:"since"`
	Kind   Kind             `json:"kind,omitempty"`
	PID    int              `json:"pid,omitempty"`
	Path   string           `json:"path,omitempty"` // of the program
	Socket string           `json:"socket,omitempty"`
	Info   dataplane.Info   `json:"-"` // of the life before, if there is none now
	Health dataplane.Health `json:"-"`
	// Starts and Losses count since the agent began; Starts has those that came
	// to nothing, too.
	Starts int `json:"starts"`
	Losses int `json:"losses"`
	// Reason is why it is not ready, or was last lost; Words are the last that
	// it wrote then.
	Reason string   `json:"reason,omitempty"`
	Words  []string `json:"words,omitempty"`
	// Until is when it is tried again; zero if that is not a matter of time.
	Until time.Time `json:"until,omitzero"`
	// serves is how many restarts had been asked for when the last start began:
	// it is what became of them.
	serves uint64
}

// supervisor keeps one provider running. One goroutine, run, does all of it.
type supervisor struct {
	host   *Host
	name   string
	losses losses
	asked  chan string // why to restart; the first of several counts
	place  string      // what its files were before the last start
	said   string      // the last failure as logged
	// unproved: it could not be asked, as it was chosen, whether it works here.
	unproved bool
	retiring atomic.Bool // another one takes its place: it claims nothing any more

	ctx     context.Context
	cancel  context.CancelFunc
	parting chan struct{} // closed when another one takes over what runs
	done    chan struct{} // closed when run has ended
	handed  *instance     // what ran then; valid once done is closed

	mu      sync.Mutex
	wishes  uint64 // restarts that were asked for
	status  Status
	now     *instance     // that is ready; nil: none is
	given   string        // the instance id that it was configured with
	changed chan struct{} // closed and replaced with each change of status
}

func newSupervisor(h *Host, name string) *supervisor {
	s := &supervisor{
		host: h, name: name, losses: losses{rule: h.cfg.Timing.Backoff}, asked: make(chan string, 1), changed: make(chan struct{}),
		place: placeKey(h.cfg.Search, name), parting: make(chan struct{}), done: make(chan struct{}),
	}
	s.ctx, s.cancel = context.WithCancel(h.ctx)
	s.status.Name = name
	s.to(StateDiscovered, "")
	return s
}

// part ends the supervision without ending what is supervised, and returns what
// runs, nil if nothing does. It is called once.
func (s *supervisor) part() *instance {
	close(s.parting)
	s.cancel()
	<-s.done
	return s.handed
}

// parted reports whether another one takes over what runs.
func (s *supervisor) parted() bool {
	select {
	case <-s.parting:
		return s.host.ctx.Err() == nil
	default:
		return false
	}
}

// tag is the instance id that it was configured with, empty if it was not yet.
func (s *supervisor) tag() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.given
}

// lacks says what keeps the provider from doing its work, in words that follow
// "which"; empty: nothing.
func (s *supervisor) lacks(ctx context.Context) string {
	s.mu.Lock()
	st, i := s.status, s.now
	s.mu.Unlock()
	if st.State != StateReady || i == nil {
		return strings.TrimSuffix(fmt.Sprintf("is %s: %s", st.State, st.Reason), ": ")
	}
	if settled := s.host.cfg.Settled; settled != nil {
		if what := settled(s.name); what != "" {
			return what
		}
	}
	ctx, cancel := context.WithTimeout(ctx, s.host.cfg.Timing.Call)
	defer cancel()
	switch h, err := i.dataPath(ctx); {
	case err != nil:
		return "does not tell its health: " + err.Error()
	case h.State != dataplane.HealthReady && h.State != dataplane.HealthDegraded:
		return strings.TrimSuffix(fmt.Sprintf("is not healthy (%v): %s", h.State, strings.Join(h.Reasons, "; ")), ": ")
	}
	return ""
}

// ask asks for a restart, and returns the number of the wish.
func (s *supervisor) ask(reason string) uint64 {
	s.mu.Lock()
	s.wishes++
	n := s.wishes
	s.mu.Unlock()
	select {
	case s.asked <- reason:
	default:
	}
	return n
}

// outstanding reports whether a restart was asked for since the last start began.
func (s *supervisor) outstanding() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.wishes > s.status.serves
}

func (s *supervisor) snapshot() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status
}

func (s *supervisor) change(f func(*Status)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(&s.status)
	close(s.changed)
	s.changed = make(chan struct{})
}

// renew asks for a restart and waits for its end, good or bad.
func (s *supervisor) renew(ctx context.Context, reason string) (Status, error) {
	n := s.ask(reason)
	for {
		s.mu.Lock()
		is, changed := s.status, s.changed
		s.mu.Unlock()
		if is.State == StateStopped || is.serves >= n && (is.State.down() || is.State == StateReady) {
			return is, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return s.snapshot(), fmt.Errorf("pluginhost: restart of %s: it is %s: %w", s.name, s.snapshot().State, ctx.Err())
		}
	}
}

// to enters a state. The reason of the last loss stays while the provider is on
// its way back.
func (s *supervisor) to(state State, reason string) {
	s.change(func(st *Status) {
		st.State, st.Since, st.Until = state, s.host.cfg.Now(), time.Time{}
		if state == StateStarting {
			st.serves = s.wishes
		}
		if state.down() || state == StateStopped {
			st.PID, st.Health = 0, dataplane.Health{}
		}
		if reason != "" {
			st.Reason = reason
		}
	})
	s.host.metrics.set(s.name, state)
}

// run lives through one life after another, until ctx ends. A fault is how it
// did when it was asked before.
func (s *supervisor) run(ctx context.Context, fault error) {
	defer func() {
		if s.parted() {
			s.to(StateLeaving, "")
			return
		}
		s.to(StateStopped, "")
	}()
	if fault != nil {
		s.failed(ctx, fault)
	}
	for ctx.Err() == nil {
		s.to(StateStarting, "")
		s.place = placeKey(s.host.cfg.Search, s.name)
		i, err := s.begin(ctx)
		if ctx.Err() != nil {
			if i != nil {
				s.finish(i)
			}
			return
		}
		if err != nil {
			s.failed(ctx, err)
			continue
		}
		if reason, ready, again := s.live(ctx, i); !again {
			s.wait(ctx, reason, ready)
		}
	}
}

// failed waits after a start that came to nothing, for as long as it makes sense.
func (s *supervisor) failed(ctx context.Context, err error) {
	s.host.metrics.starts.WithLabelValues(s.name, startFailed).Inc()
	var h *heldError
	switch {
	case errors.As(err, &h):
		s.hold(ctx, h.state, err)
	case errors.Is(err, errNotThere):
		s.look(ctx, err)
	default:
		s.wait(ctx, err.Error(), 0)
	}
}

// begin brings a provider to StateConfigured.
func (s *supervisor) begin(ctx context.Context) (*instance, error) {
	i, err := s.host.open(ctx, s.name, false)
	if err != nil {
		if !errors.Is(err, errNotThere) { // looking for it is no start
			s.change(func(st *Status) { st.Starts++ })
		}
		return nil, err
	}
	s.change(func(st *Status) {
		st.Starts++
		st.Kind, st.Info = i.kind, i.info
		st.PID, st.Path, st.Socket = 0, i.path(), i.socket
		if i.proc != nil {
			st.PID = i.proc.pid
		}
	})
	err = s.prove(ctx, i)
	if err == nil && !s.retiring.Load() {
		err = s.host.claims.take(s.name, Finding{Info: i.info, Config: s.host.configOf(s.name)}.captured())
	}
	if err == nil {
		err = s.configure(ctx, i)
	}
	if err != nil {
		if i.proc != nil && errors.Is(err, dataplane.ErrFailed) {
			i.proc.ended(endTime) // it may have panicked, and be about to say so
		}
		i.kill()
		return nil, s.host.withWords(err, i)
	}
	s.to(StateConfigured, "")
	return i, nil
}

// prove makes up for the probe of one that could not be asked as it was chosen.
func (s *supervisor) prove(ctx context.Context, i *instance) error {
	if !s.unproved {
		return nil
	}
	report, err := s.host.probe(ctx, i)
	if err != nil {
		return err
	}
	if why := (Finding{Name: s.name, Installed: true, Report: report}).against(); why != nil {
		return held(StateRefused, why)
	}
	s.unproved = false
	return nil
}

// configure gives a provider its settings. One that runs by itself and has its
// own is left alone if there are none here.
func (s *supervisor) configure(ctx context.Context, i *instance) error {
	cfg := s.host.cfg
	settings := s.host.settingsOf(s.name)
	_, values, err := settings.split(s.name, cfg.Timing.Start)
	if err != nil {
		return held(StateRejected, err)
	}
	ctx, cancel := context.WithTimeout(ctx, cfg.Timing.Call)
	defer cancel()
	instance := s.host.instanceID(s.name)
	if i.kind != KindChild {
		st, err := i.client.State(ctx, &pb.StateRequest{})
		switch has := st.GetInstanceId(); {
		case err != nil || has == "":
		case i.kind == KindAlone && len(values) == 0:
			return nil
		case i.kind == KindAlone:
			instance = has
		default:
			instance = has
			s.host.keepInstanceID(s.name, has)
		}
	}
	text, err := settings.encode(s.name, values, i.info.ConfigSchema)
	if err != nil {
		return held(StateRejected, err)
	}
	runDir := filepath.Join(cfg.RunDir, s.name)
	if err := os.MkdirAll(runDir, 0o700); err != nil {
		return fmt.Errorf("make its run directory: %w", err)
	}
	s.mu.Lock()
	s.given = instance
	s.mu.Unlock()
	if i.kind != KindAlone { // whoever runs that cleans up after it
		s.host.own(owned{Name: s.name, Instance: instance, Layers: i.info.Layers})
	}
	request := transfer.EncodeConfig(dataplane.Config{
		JSON: text, RunDir: runDir, StateDir: filepath.Join(cfg.StateDir, s.name), InstanceID: instance, Node: cfg.Node,
	})
	level, _ := s.host.level.get()
	if i.kind != KindAlone {
		request.LogLevel = transfer.EncodeLevel(level)
	}
	answer, err := i.client.Configure(ctx, request)
	if err != nil {
		err = i.fromWire(ctx, err)
		if errors.Is(err, dataplane.ErrInvalid) {
			return held(StateRejected, fmt.Errorf("it rejects its configuration: %w; correct plugins.%s", err, s.name))
		}
		return fmt.Errorf("it cannot be configured: %w", err)
	}
	i.level = level
	for _, d := range transfer.DecodeDiagnostics(answer) {
		s.host.log.Warn("remark on the configuration of a plugin", "plugin", s.name, "key", "plugins."+s.name+"."+d.Path, "message", d.Message)
	}
	return nil
}

// finish ends an instance as the agent stops, or hands it over.
func (s *supervisor) finish(i *instance) {
	if s.parted() {
		i.lose("it is not chosen any more")
		s.handed = i
		return
	}
	if s.host.hosting(s.name).outlives {
		i.leave()
		return
	}
	i.stop(s.host.cfg.Timing)
}

// live watches an instance until it is lost (then it returns why, and for how
// long it was ready), or until a restart was asked for (again), or ctx ends.
func (s *supervisor) live(ctx context.Context, i *instance) (reason string, ready time.Duration, again bool) {
	result := startOK
	if i.kind != KindChild {
		result = startAdopted
	}
	s.host.metrics.starts.WithLabelValues(s.name, result).Inc()
	s.host.log.Info("plugin is ready", "plugin", s.name, "kind", string(i.kind), "pid", s.snapshot().PID, "version", i.info.Version)
	var watchers sync.WaitGroup
	defer watchers.Wait()
	watchers.Go(func() { i.beat(s.host.cfg.Timing, s.host.metrics.unanswered.WithLabelValues(s.name).Inc) })
	watchers.Go(func() { s.lookAfter(i) })
	watchers.Go(func() { s.followLevel(i) })
	if i.kind == KindKept || s.host.hosting(s.name).outlives {
		watchers.Go(func() { s.trimLog(i) })
	}
	s.said = ""
	s.mu.Lock()
	s.now = i
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.now = nil
		s.mu.Unlock()
	}()
	s.to(StateReady, "")
	began := s.host.cfg.Now()
	if s.host.cfg.OnReady != nil {
		s.host.cfg.OnReady(Provider{
			Name: s.name, Kind: i.kind, Info: i.info, Client: i.client, Lost: i.lost,
			Restart: func(reason string) { i.lose("it is of no use: %s", reason) },
		})
	}
	for lost := false; !lost; {
		select {
		case <-ctx.Done():
			s.finish(i)
			return "", 0, true
		case reason := <-s.asked:
			if !s.outstanding() { // this life is what became of it
				continue
			}
			s.host.log.Info("plugin is restarted", "plugin", s.name, "reason", reason)
			s.to(StateStarting, "")
			i.stop(s.host.cfg.Timing)
			return "", 0, true
		case <-i.lost:
			lost = true
		}
	}
	s.host.metrics.losses.WithLabelValues(s.name).Inc()
	s.change(func(st *Status) { st.Losses++ })
	i.kill()
	s.mourn(i)
	return i.cause, s.host.cfg.Now().Sub(began), false
}

// mourn logs how a provider ended, and its last words.
func (s *supervisor) mourn(i *instance) {
	attrs := []any{"plugin", s.name, "kind", string(i.kind), "reason", i.cause}
	words := i.words()
	if len(words) > 0 {
		attrs = append(attrs, "last_words", strings.Join(words, "\n"))
	}
	s.change(func(st *Status) { st.Words = words })
	s.host.log.Error("plugin was lost", attrs...)
}

// trimLog keeps the log file of a child that outlives us within bounds, until the
// instance is lost.
func (s *supervisor) trimLog(i *instance) {
	timer := time.NewTimer(trimRest)
	defer timer.Stop()
	size, moved := int64(0), false
	for {
		if size, moved = boundLog(logPath(s.host.run, s.name), size); moved {
			timer.Reset(trimInterval)
		} else {
			timer.Reset(trimRest)
		}
		select {
		case <-i.ctx.Done():
			return
		case <-i.lost:
			return
		case <-timer.C:
		}
	}
}

// lookAfter notes the health of the data path.
func (s *supervisor) lookAfter(i *instance) {
	t := s.host.cfg.Timing
	tick := time.NewTicker(t.DataPath)
	defer tick.Stop()
	for {
		select {
		case <-i.ctx.Done():
			return
		case <-i.lost:
			return
		case <-tick.C:
		}
		ctx, cancel := context.WithTimeout(i.ctx, t.DataPath)
		h, err := i.dataPath(ctx)
		cancel()
		if err != nil {
			h = dataplane.Health{State: dataplane.HealthFailed, Reasons: []string{err.Error()}}
		}
		s.noteHealth(i, h)
	}
}

func (s *supervisor) noteHealth(i *instance, h dataplane.Health) {
	var was dataplane.HealthState
	s.change(func(st *Status) {
		was = st.Health.State
		st.Health = h
	})
	if h.State == was || i.ctx.Err() != nil {
		return
	}
	if h.State == dataplane.HealthReady {
		s.host.log.Info("data path is healthy", "plugin", s.name)
		return
	}
	s.host.log.Warn("data path is not healthy", "plugin", s.name, "health", h.State.String(), "reasons", strings.Join(h.Reasons, "; "))
}

// wait waits for the next start after a loss, or a start that failed.
func (s *supervisor) wait(ctx context.Context, reason string, ready time.Duration) {
	s.host.launcher.mu.Lock()
	delay, loop := s.losses.lost(s.host.cfg.Now(), ready, s.host.launcher.rng)
	s.host.launcher.mu.Unlock()
	state := StateBackoff
	if loop {
		state = StateCrashLoop
	}
	s.to(state, reason)
	s.change(func(st *Status) { st.Until = s.host.cfg.Now().Add(delay) })
	attrs := []any{"plugin", s.name, "state", string(state), "again_in", delay.Round(time.Millisecond), "reason", reason}
	if ready == 0 || loop {
		s.complain(string(state)+reason, attrs...)
	} else {
		s.host.log.Warn("plugin will be started again", attrs...)
	}
	s.pause(ctx, delay)
}

// hold waits until what was wrong may be corrected.
func (s *supervisor) hold(ctx context.Context, state State, err error) {
	s.complain(string(state)+err.Error(), "plugin", s.name, "state", string(state), "reason", err,
		"again", "when its file or its settings change, or by fairlead plugin restart "+s.name)
	s.to(state, err.Error())
	s.pause(ctx, forever)
}

// complain logs a failure once for as long as it stays the same.
func (s *supervisor) complain(failure string, attrs ...any) {
	level := slog.LevelError
	if failure == s.said {
		level = slog.LevelDebug
	}
	s.said = failure
	s.host.log.Log(context.Background(), level, "plugin does not run", attrs...)
}

// look waits for a provider that runs by itself. It is no fault that it does
// not, so it is no crash and does not wait longer each time.
func (s *supervisor) look(ctx context.Context, err error) {
	if s.snapshot().Reason != err.Error() {
		s.host.log.Warn("waiting for a provider that runs by itself", "plugin", s.name, "reason", err)
	}
	s.to(StateBackoff, err.Error())
	s.pause(ctx, s.host.cfg.Timing.Redial)
}

// forever is a pause that no time ends.
const forever = time.Duration(-1)

// pause waits. A restart that somebody asks for cuts it short, and another file
// in the place of the plugin: what was wrong may be corrected.
func (s *supervisor) pause(ctx context.Context, d time.Duration) {
	var over <-chan time.Time
	if d != forever {
		timer := time.NewTimer(d)
		defer timer.Stop()
		over = timer.C
	}
	look := time.NewTicker(s.host.cfg.Timing.Look)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-over:
			return
		case <-s.asked:
			if s.outstanding() {
				return
			}
		case <-look.C:
			if placeKey(s.host.cfg.Search, s.name) != s.place {
				s.host.log.Info("another file is in the place of the plugin", "plugin", s.name)
				s.losses = losses{rule: s.losses.rule}
				return
			}
		}
	}
}

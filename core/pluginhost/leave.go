package pluginhost

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fairlead/fairlead/dataplane"
	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
)

// leaver takes leave of a provider that is not chosen any more. What took its place
// is ready first, so that no connection comes between the two:
//
//	waits ─► parts ─► drains ─► cleans, as long as connections need something ─► gone
//
// Until it parts, a provider that runs is kept up to date like any. What was begun is
// gone on with after a crash: the provider is in the list of the owned until it is
// clean.
type leaver struct {
	host *Host
	owned
	since time.Time
	drain time.Time // when connections under way had their time; zero: not parted yet
	gone  *instance // taken over from its supervisor, or started to clean; nil: neither

	mu   sync.Mutex
	s    *supervisor // nil: none of this agent runs it, or not any more
	says string      // what it waits for
}

// errLeaving: the leave was broken off, as the agent stops or chose anew.
var errLeaving = errors.New("pluginhost: the leave of a data plane was broken off")

// run does all of it, or as much as there is time for.
func (l *leaver) run(ctx context.Context) error {
	if used, err := l.awaitSuccessors(ctx); used || err != nil {
		return err
	}
	l.part()
	l.drainConnections(ctx)
	if l.Instance != "" { // else it made nothing
		if err := l.clean(ctx); err != nil {
			return err
		}
	}
	l.end()
	l.host.disown(l.owned)
	l.host.log.Info("a data plane is gone, and all that it had programmed", "plugin", l.Name, "instance_id", l.Instance)
	return nil
}

// end ends the process that was taken over or started. What is programmed stays.
func (l *leaver) end() {
	if l.gone != nil {
		l.gone.stop(l.host.cfg.Timing)
		l.gone = nil
	}
}

// awaitSuccessors waits until all that were chosen for the same layer are at work.
// used says that a provider that was chosen turned out to be this very one.
func (l *leaver) awaitSuccessors(ctx context.Context) (used bool, err error) {
	tick := time.NewTicker(l.host.cfg.Timing.Follow)
	defer tick.Stop()
	for {
		waits := ""
		for _, s := range l.host.chosen() {
			st := s.snapshot()
			if s.name == l.Name && s.tag() == l.Instance {
				return true, nil
			}
			if !l.replacedBy(st.Info.Layers) {
				continue
			}
			if lacks := s.lacks(ctx); lacks != "" {
				waits = fmt.Sprintf("it stays until %s is at work in its place, which %s", s.name, lacks)
			}
		}
		if waits == "" {
			return false, nil
		}
		if waits != l.waitsFor() {
			l.host.log.Info("a data plane goes once another one is at work", "plugin", l.Name, "instance_id", l.Instance, "now", waits)
			l.say(waits)
		}
		select {
		case <-ctx.Done():
			return false, errLeaving
		case <-tick.C:
		}
	}
}

// replacedBy reports whether a provider of these layers takes the place of this one.
// One of which that is not known may.
func (l *leaver) replacedBy(layers []dataplane.Layer) bool {
	return len(l.Layers) == 0 || len(layers) == 0 || slices.ContainsFunc(layers, func(layer dataplane.Layer) bool { return slices.Contains(l.Layers, layer) })
}

// part takes the provider from its supervisor. Nobody tells it anything any more.
func (l *leaver) part() {
	if s := l.supervisor(); s != nil {
		l.gone = s.part()
		l.mu.Lock()
		l.s = nil
		l.mu.Unlock()
		l.host.mu.Lock()
		l.Instance = s.tag() // it may have had none as this began
		l.host.mu.Unlock()
		if l.host.cfg.OnLeave != nil {
			l.host.cfg.OnLeave(l.Name)
		}
	}
	if l.drain.IsZero() {
		l.drain = l.host.cfg.Now().Add(l.host.drainTime())
	}
}

// drainConnections lets a provider that holds connections itself end them.
func (l *leaver) drainConnections(ctx context.Context) {
	if l.gone == nil {
		return
	}
	left := l.drain.Sub(l.host.cfg.Now())
	ctx, cancel := context.WithTimeout(ctx, max(left, 0)+l.host.cfg.Timing.Call)
	defer cancel()
	stream, err := l.gone.client.Drain(ctx, &pb.DrainRequest{Deadline: durationpb.New(max(left, 0))})
	for err == nil {
		var p *pb.DrainResponse
		if p, err = stream.Recv(); err == nil {
			l.say(fmt.Sprintf("it drains: %d connections", p.GetActive()))
		}
	}
}

// clean removes what the provider programmed, in as many steps as that takes. It
// ends with success, or when ctx does.
func (l *leaver) clean(ctx context.Context) error {
	pause := l.host.cfg.Timing.Follow
	told := ""
	for {
		linger := l.host.cfg.Now().Before(l.drain)
		items, err := l.cleanup(ctx, linger)
		if ctx.Err() != nil {
			return errLeaving
		}
		var failed, pending []string
		for _, i := range items {
			switch i.Result {
			case dataplane.Failed:
				failed = append(failed, i.Object+": "+i.Message)
			case dataplane.Pending:
				pending = append(pending, i.Message)
			}
		}
		switch {
		case err != nil:
			l.say("it cannot be cleaned: " + err.Error())
		case len(failed) > 0:
			l.say("it cannot be cleaned: " + strings.Join(failed, "; "))
		case len(pending) > 0 && linger:
			l.say("connections under way need it: " + strings.Join(pending, "; "))
			pause = l.host.cfg.Timing.Follow
		default:
			return nil
		}
		if err != nil || len(failed) > 0 {
			if said := l.waitsFor(); said != told {
				told = said
				l.host.log.Error("what a data plane has programmed stays for now", "plugin", l.Name, "instance_id", l.Instance, "reason", said,
					"again", "with growing delays; or stop the agent and call fairlead cleanup")
			}
			pause = min(2*pause, l.host.cfg.Timing.Backoff.Most)
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return errLeaving
		case <-timer.C:
		}
	}
}

// cleanup calls Cleanup once, of the process that ran if it still does, else of one
// that is started for the rest of the leave: it may remember what it saw.
func (l *leaver) cleanup(ctx context.Context, linger bool) (items []dataplane.CleanupItem, err error) {
	what := dataplane.CleanupOptions{InstanceID: l.Instance, Linger: linger}
	if l.gone != nil && !l.gone.running() {
		l.gone.kill()
		l.gone = nil
	}
	if l.gone == nil {
		if l.gone, err = l.host.open(ctx, l.Name, true); err != nil {
			l.gone = nil
			return nil, err
		}
	}
	items, err = l.gone.cleanup(ctx, l.host.cfg.Timing.Cleanup, what)
	if err != nil { // the next try is with another process
		l.end()
	}
	return items, err
}

func (l *leaver) say(what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.says = what
}

func (l *leaver) waitsFor() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.says
}

// supervisor returns what keeps the provider running, nil if nothing does.
func (l *leaver) supervisor() *supervisor {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.s
}

// status is how it shows: as it runs, until it has parted.
func (l *leaver) status() Status {
	st := Status{Name: l.Name, State: StateLeaving, Since: l.since}
	if s := l.supervisor(); s != nil {
		st = s.snapshot()
	}
	st.Reason = l.waitsFor()
	return st
}

// Leave is a data plane of which the agent takes leave.
type Leave struct {
	Name     string `json:"name"`
	Instance string `json:"instance_id"`
	Reason   string `json:"reason"` // what it waits for
}

// beginLeaves takes leave of these supervisors' providers, and of all others that may
// have something in the system and were not chosen. The caller has the switching.
func (h *Host) beginLeaves(removed []*supervisor, decision Decision) {
	var ctx context.Context
	ctx, h.breakOff = context.WithCancel(h.ctx)
	h.mu.Lock()
	known := func(name, instance string) bool {
		return slices.ContainsFunc(h.leavers, func(l *leaver) bool { return l.is(name, instance) })
	}
	begin := func(o owned, s *supervisor) {
		h.leavers = append(h.leavers, &leaver{host: h, owned: o, s: s, since: h.cfg.Now()})
	}
	for _, s := range removed {
		begin(owned{s.name, s.tag(), s.snapshot().Info.Layers}, s)
	}
	for _, o := range h.ownedNow() {
		if decision.runs(o.Name) && o.Instance == h.instanceID(o.Name) || known(o.Name, o.Instance) || decision.spares(o) {
			continue
		}
		begin(o, nil)
	}
	leavers := slices.Clone(h.leavers)
	h.mu.Unlock()
	for _, l := range leavers {
		h.log.Info("taking leave of a data plane", "plugin", l.Name, "instance_id", l.Instance)
		h.leaving.Go(func() {
			if l.run(ctx) == nil {
				h.left(l)
			}
		})
	}
}

// spares reports whether a decision leaves a provider alone that it did not choose:
// nobody knows whether it could run, and nothing took its place.
func (d Decision) spares(o owned) bool {
	return d.uncertain(o.Name) && !slices.ContainsFunc(d.Chosen, func(c Choice) bool { return c.Auto })
}

// left forgets one that is gone.
func (h *Host) left(l *leaver) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.leavers = slices.DeleteFunc(h.leavers, func(o *leaver) bool { return o == l })
	if !slices.ContainsFunc(h.supervisors, func(s *supervisor) bool { return s.name == l.Name }) {
		h.metrics.forget(l.Name)
	}
}

// drainTime is how long connections through a leaving provider may go on.
func (h *Host) drainTime() time.Duration {
	if h.cfg.DrainTime == nil {
		return h.cfg.Timing.Drain
	}
	return h.cfg.DrainTime()
}

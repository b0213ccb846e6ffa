package pluginhost

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fairlead/fairlead/dataplane"
)

// choose decides which providers run: as last time if nothing changed since,
// else by probing all that come into question.
//
// faults are the errors of those that are chosen although they could not be
// asked.
func (h *Host) choose(ctx context.Context, wish Wish) (kept Kept, faults map[string]error, err error) {
	if len(wish.Names) == 0 {
		h.claims.settle(nil)
		return Kept{Decision: Decision{}}, nil, nil
	}
	sockets := map[string]string{}
	for _, name := range wish.toProbe() {
		sockets[name] = h.hosting(name).socket
	}
	key := choiceKey(wish, h.Discovery(), sockets)
	if kept, ok := ReadChoice(h.cfg.StateDir); ok && kept.Key == key {
		before := kept.findings(h.configOf)
		if len(kept.Decision.conflicts(before)) == 0 {
			h.log.Info("data plane as before: neither kernel, boot nor plugins changed", "chosen", names(kept.Decision), "since", kept.At)
			h.warn(kept.Decision)
			h.settle(kept.Decision, before)
			return kept, nil, nil
		}
	}
	found := h.findAll(ctx, wish)
	decision, err := Decide(wish, found)
	if ctx.Err() != nil { // what was found then says nothing
		return Kept{}, nil, fmt.Errorf("pluginhost: the choice of the data plane was cut short: %w", ctx.Err())
	}
	h.tell(wish, decision)
	kept = Kept{At: h.cfg.Now().UTC().Truncate(time.Second), Wish: wish, Decision: decision, Infos: map[string]dataplane.Info{}}
	if err != nil {
		kept.Error = err.Error() // for people only: it is decided anew next time
		h.keepChoice(kept)
		return kept, nil, err
	}
	faults = map[string]error{}
	for _, c := range decision.Chosen {
		faults[c.Name] = found[c.Name].Err
		info := found[c.Name].Info
		info.ConfigSchema = nil
		kept.Infos[c.Name] = info
	}
	h.settle(decision, found)
	if h.lasting(found) {
		kept.Key = key
	}
	h.keepChoice(kept)
	return kept, faults, nil
}

// settle lets the chosen claim what they capture.
func (h *Host) settle(d Decision, found map[string]Finding) {
	var chosen []Finding
	for _, c := range d.Chosen {
		chosen = append(chosen, found[c.Name])
	}
	h.claims.settle(chosen)
}

func (h *Host) keepChoice(k Kept) {
	if err := writeChoice(h.cfg.StateDir, k); err != nil {
		h.log.Warn("the choice of the data plane is not kept", "error", err)
	}
}

// configOf returns the settings of a plugin as JSON. Whether they are right only
// its schema says.
func (h *Host) configOf(name string) []byte {
	_, values, err := h.settingsOf(name).split(name, 0)
	if err != nil {
		return nil
	}
	text, err := json.Marshal(values)
	if err != nil {
		return nil
	}
	return text
}

// lasting reports whether a decision on what was found holds until kernel, boot
// or plugins change. That a plugin which may run did not start or answer, or
// could not be tested, may be over next time: the host was busy as it booted, or
// a provider that runs by itself came later.
func (h *Host) lasting(found map[string]Finding) bool {
	for name, f := range found {
		c, _ := h.Discovery().Find(name)
		if f.Installed && c.Refused == nil && (f.Err != nil || f.Report.Verdict == dataplane.Inconclusive) {
			return false
		}
	}
	return true
}

// tell logs a decision once, with everything it rests on.
func (h *Host) tell(wish Wish, d Decision) {
	attrs := []any{"wish", strings.Join(wish.Names, ","), "chosen", names(d)}
	for _, r := range d.Rejected {
		attrs = append(attrs, "not_"+strings.ReplaceAll(r.Name, "-", "_"), r.Refusal.Error())
	}
	h.log.Info("data plane chosen", attrs...)
	h.warn(d)
}

func (h *Host) warn(d Decision) {
	for _, w := range d.Warnings {
		h.log.Warn("data plane", "warning", w)
	}
}

func names(d Decision) string {
	var out []string
	for _, c := range d.Chosen {
		out = append(out, c.Name)
	}
	return strings.Join(out, ",")
}

// findAll probes all that come into question, at the same time.
func (h *Host) findAll(ctx context.Context, wish Wish) map[string]Finding {
	var mu sync.Mutex
	var wg sync.WaitGroup
	found := map[string]Finding{}
	for _, name := range wish.toProbe() {
		wg.Go(func() {
			f := h.Find(ctx, name)
			mu.Lock()
			defer mu.Unlock()
			found[name] = f
		})
	}
	wg.Wait()
	return found
}

// Find asks a provider what it is and whether it can work here. If it does not
// run it is started for that, and ended.
func (h *Host) Find(ctx context.Context, name string) Finding {
	return h.find(ctx, name, func(f *Finding, i *instance) (err error) {
		f.Report, err = h.probe(ctx, i)
		return err
	})
}

// probe runs a provider's own test. That the test itself fails is a verdict, too:
// nobody knows, then.
func (h *Host) probe(ctx context.Context, i *instance) (dataplane.Report, error) {
	ctx, cancel := context.WithTimeout(ctx, h.cfg.Timing.Probe)
	defer cancel()
	report, err := i.probe(ctx)
	if err != nil && ctx.Err() == nil && status.Code(err) != codes.Unavailable && !errors.Is(err, context.DeadlineExceeded) {
		return dataplane.Report{Verdict: dataplane.Inconclusive, Checks: []dataplane.Check{{
			ID: "probe", Required: true, Result: dataplane.Inconclusive, Reason: err.Error(), Remedy: "see its log",
		}}}, nil
	}
	return report, err
}

// Identify asks a provider what it is.
func (h *Host) Identify(ctx context.Context, name string) Finding {
	return h.find(ctx, name, func(*Finding, *instance) error { return nil })
}

func (h *Host) find(ctx context.Context, name string, ask func(*Finding, *instance) error) Finding {
	f := Finding{Name: name, Config: h.configOf(name)}
	f.Err = h.visit(ctx, name, func(i *instance) error {
		f.Info = i.info
		return ask(&f, i)
	})
	f.Installed = !errors.Is(f.Err, errNotInstalled)
	return f
}

// visit calls do with a provider: the one that runs by itself, or one that is
// started for it.
func (h *Host) visit(ctx context.Context, name string, do func(*instance) error) error {
	i, err := h.open(ctx, name, true)
	if err != nil {
		return err
	}
	err = do(i)
	if i.kind == KindKept {
		i.leave()
		return err
	}
	i.stop(h.cfg.Timing)
	return err
}

// errNotInstalled: there is no file of that name.
var errNotInstalled = errors.New("it is not installed")

// open returns an instance of a provider: by its socket if it runs already, else
// a new child. A visitor's child leaves no trace for others to find.
func (h *Host) open(ctx context.Context, name string, visitor bool) (*instance, error) {
	how := h.hosting(name)
	if how.socket != "" {
		return adopt(ctx, h.cfg.Timing.Call, name, how.socket, h.run)
	}
	i, err := adopt(ctx, h.cfg.Timing.Call, name, h.run.socket(name), h.run)
	if !errors.Is(err, errNotThere) {
		return i, err
	}
	return h.begin(ctx, name, how, visitor)
}

// begin starts the program of a provider.
func (h *Host) begin(ctx context.Context, name string, how hosting, visitor bool) (*instance, error) {
	c, ok := h.Discovery().Find(name)
	if !ok || c.Refused != nil { // somebody may have seen to it since
		c, ok = Discover(h.cfg.Search).Find(name)
	}
	switch {
	case !ok:
		err := fmt.Errorf("%w: install fairlead-dataplane-%s beside the agent or in FAIRLEAD_PLUGIN_DIRS", errNotInstalled, name)
		return nil, held(StateRefused, err)
	case c.Refused != nil:
		return nil, held(StateRefused, c.Refused)
	}
	img, refused := openImage(c.Path, name, newTrust(h.cfg.Search.Binary))
	if refused != nil {
		return nil, held(StateRefused, refused)
	}
	defer img.close()
	return h.launch(ctx, img, how, visitor)
}

func (h *Host) launch(ctx context.Context, img *image, how hosting, visitor bool) (*instance, error) {
	if how.outlives && !visitor {
		if err := checkSocket(h.run.socket(img.name)); err != nil {
			return nil, err
		}
	}
	c, err := h.launcher.launch(ctx, img, order{
		name: img.name, timeout: how.timeout, outlives: how.outlives && !visitor, visitor: visitor,
		log: h.log.With("plugin", img.name), dropped: h.metrics.linesLost.WithLabelValues(img.name),
	})
	if err != nil {
		return nil, err
	}
	i := &instance{name: img.name, kind: KindChild, child: c, proc: c.proc, run: h.run}
	call, cancel := context.WithTimeout(ctx, h.cfg.Timing.Call)
	defer cancel()
	if err := connect(call, i, c.socket); err != nil {
		i.proc.kill()
		<-i.proc.exited
		i.forget()
		return nil, h.withWords(err, i)
	}
	return i, nil
}

// withWords adds what a process wrote last to an error about it.
func (h *Host) withWords(err error, i *instance) error {
	if words := i.words(); len(words) > 0 {
		return fmt.Errorf("%w; its last words: %s", err, inBrief(words))
	}
	return err
}

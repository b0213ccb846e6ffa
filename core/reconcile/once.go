package reconcile

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"iter"
	"time"

	"github.com/fairlead/fairlead/core/view"
	"github.com/fairlead/fairlead/dataplane"
	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
	"github.com/fairlead/fairlead/dataplane/transfer"
)

// What is sent; labels of metrics.
const (
	unchanged = "unchanged"
	delta     = "delta"
	whole     = "snapshot"
)

// call is one generation on its way.
type call struct {
	kind    string
	begin   *pb.Begin
	changes iter.Seq[*pb.Change]
}

// once brings the provider to the newest view, or tells it that it is there.
func (l *Loop) once(serving context.Context, to peer) error {
	ctx, cancel := context.WithTimeout(serving, l.cfg.Deadline)
	defer cancel()
	if l.unsure {
		if err := l.ask(ctx, to); err != nil {
			if serving.Err() == nil {
				l.fail(err)
			}
			return err
		}
	}
	next := l.next()
	c := l.prepare(next)
	if c.kind != unchanged {
		l.tried = next
	}
	begun := time.Now()
	response, err := to.reconcile(ctx, c)
	took := time.Since(begun)
	if err == nil && response != nil && response.GetGeneration() != next.snapshot.Generation {
		err = lie(next.snapshot.Generation, response.GetGeneration())
	}
	l.cfg.Metrics.call(l.cfg.label(), c.kind, resultOf(err), took)
	if err != nil {
		l.refused(err)
		if serving.Err() == nil { // else this agent or the process ends, and nothing failed
			l.fail(err)
		}
		return err
	}
	l.accepted(next, response, c.kind)
	return nil
}

// ask learns what the provider has.
func (l *Loop) ask(ctx context.Context, to peer) error {
	was, err := to.state(ctx)
	if err != nil && !errors.Is(err, dataplane.ErrUnsupported) {
		return err
	}
	l.unsure = false
	switch {
	case err == nil && l.has.is(was):
	case err == nil && l.tried.is(was):
		l.has = l.tried
	default:
		l.has = nil
	}
	if l.stranger == nil && was.Generation > 0 && was.Session.AgentID != l.cfg.Session.AgentID {
		l.stranger = met(time.Now())
	}
	if was.Session == l.cfg.Session {
		l.generation = max(l.generation, was.Generation)
	}
	return nil
}

// next is what the provider should have: what it has, if that is still so, or
// a generation of its own.
func (l *Loop) next() *delivered {
	latest := l.cfg.Views.Latest()
	l.projector.advance(latest)
	s := *l.projector.snapshot
	s.Session = l.cfg.Session
	s.Completeness = l.completeness(latest)
	s.Digest = binary.BigEndian.AppendUint64(nil, l.projector.digest)
	if l.resync == "" && l.again.due(time.Now()) {
		l.resync = dataplane.ReasonApplyFailed
	}
	if l.has != nil && l.resync == "" && bytes.Equal(l.has.snapshot.Digest, s.Digest) && l.has.snapshot.Completeness == s.Completeness {
		l.has.view = latest
		return l.has
	}
	l.generation++
	s.Generation = l.generation
	return &delivered{view: latest, snapshot: &s}
}

// completeness is what may be concluded from the view. Once complete, a session
// stays so: what it then lacks, it has seen going.
func (l *Loop) completeness(v *view.View) dataplane.Completeness {
	c := completeness(v)
	switch {
	case !c.Complete() && l.settled:
		return dataplane.TimedOut
	case c == dataplane.Alone && !l.settled && l.stranger != nil && !l.stranger.over(time.Now(), v.NodeCount()):
		return dataplane.Incomplete
	}
	return c
}

// prepare chooses the least that leads from what the provider has to next.
func (l *Loop) prepare(next *delivered) call {
	s := next.snapshot
	allowEmpty := s.Len() == 0 && s.Completeness.Complete()
	switch {
	case next == l.has:
		return call{kind: unchanged, begin: transfer.Begin(s, s.Generation, false), changes: none}
	case l.has != nil && l.resync == "":
		return call{kind: delta, begin: transfer.Begin(s, l.has.snapshot.Generation, allowEmpty), changes: l.encoder.Delta(difference(l.has, next))}
	}
	return call{kind: whole, begin: transfer.Begin(s, 0, allowEmpty), changes: l.encoder.Snapshot(s)}
}

func none(func(*pb.Change) bool) {}

// difference is what is different in the services that changed.
func difference(was, is *delivered) dataplane.Delta {
	var d dataplane.Delta
	reason := reasons(was.view, is.view)
	for _, c := range view.Diff(was.view, is.view) {
		key := dataplane.Key(c.Key)
		if change, changed := dataplane.Compare(was.snapshot.Service(key), is.snapshot.Service(key), reason); changed {
			d.Changes = append(d.Changes, change)
		}
	}
	return d
}

// accepted notes that the provider has a generation.
func (l *Loop) accepted(d *delivered, r *pb.ReconcileResponse, kind string) {
	if kind == whole {
		l.cfg.Log.Info("the provider has a whole snapshot", "generation", d.snapshot.Generation, "services", d.snapshot.Len(),
			"endpoints", d.snapshot.EndpointCount(), "completeness", d.snapshot.Completeness.String())
	}
	if l.failed != "" {
		l.cfg.Log.Info("the provider is reconciled again", "generation", d.snapshot.Generation)
	}
	if kind != unchanged {
		l.resync = ""
	}
	l.settled = l.settled || d.snapshot.Completeness.Complete()
	l.has, l.tried, l.failures, l.failed = d, nil, 0, ""
	l.standing.applied(d, r, kind == unchanged)
	l.again.note(l.Status().Statuses, time.Now())
}

// refused decides what an error says of what the provider has. Whatever it
// says, State is asked before the next try.
func (l *Loop) refused(err error) {
	switch {
	case errors.Is(err, dataplane.ErrBaseMismatch), errors.Is(err, dataplane.ErrOldGeneration):
		l.resync = "mismatch"
	case errors.Is(err, dataplane.ErrInvalid):
		l.resync = "invalid"
	case errors.Is(err, errLie):
		l.resync = "lie"
	default:
		return
	}
	l.cfg.Metrics.resync(l.cfg.label(), l.resync)
}

// resultOf is the label of a call's result.
func resultOf(err error) string {
	for _, r := range []struct {
		err  error
		name string
	}{
		{errLie, "lie"},
		{dataplane.ErrBaseMismatch, "mismatch"},
		{dataplane.ErrOldGeneration, "old-generation"},
		{dataplane.ErrOldSession, "old-session"},
		{dataplane.ErrInvalid, "invalid"},
		{dataplane.ErrBusy, "busy"},
		{dataplane.ErrLimit, "limit"},
		{dataplane.ErrFailed, "failed"},
		{dataplane.ErrNotConfigured, "not-configured"},
		{context.DeadlineExceeded, "deadline"},
	} {
		if errors.Is(err, r.err) {
			return r.name
		}
	}
	if err != nil {
		return "lost"
	}
	return "ok"
}

package fake

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/fairlead/fairlead/dataplane"
)

// Reconcile programs next. It takes the short way, the delta, if the generation
// before was its own; a process that found the work of another compares all.
func (p *Provider) Reconcile(ctx context.Context, next *dataplane.Snapshot, delta dataplane.Delta) (dataplane.Result, error) {
	p.mu.Lock()
	delay := p.options.delay
	p.mu.Unlock()
	if err := wait(ctx, delay); err != nil {
		return dataplane.Result{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.configured {
		return dataplane.Result{}, fmt.Errorf("%w: fake: Reconcile", dataplane.ErrNotConfigured)
	}
	if err := p.kernel.unmark(); err != nil {
		return dataplane.Result{}, fmt.Errorf("%w: fake: %w", dataplane.ErrFailed, err)
	}
	var result dataplane.Result
	if p.kernel.known {
		for _, c := range delta.Changes {
			p.program(c.Key(), c.New, &result)
		}
		p.repeat(next, &result)
	} else {
		p.all(next, &result)
	}
	p.state = dataplane.State{
		Session: next.Session, Generation: next.Generation, Digest: next.Digest, InstanceID: p.config.InstanceID,
		Complete: next.Completeness.Complete(),
	}
	if err := p.kernel.mark(p.state); err != nil {
		return result, fmt.Errorf("%w: fake: %w", dataplane.ErrFailed, err)
	}
	return result, nil
}

// all compares everything. What an incomplete snapshot lacks stays: a process
// before may have been told more.
func (p *Provider) all(next *dataplane.Snapshot, result *dataplane.Result) {
	for svc := range next.Services() {
		p.program(svc.Key, svc, result)
	}
	if !next.Completeness.Complete() {
		return
	}
	for _, k := range p.kernel.keys() {
		if next.Service(k) == nil {
			p.program(k, nil, result)
		}
	}
	p.kernel.known = true
}

// program makes one service what svc says; nil removes it.
func (p *Provider) program(k dataplane.Key, svc *dataplane.Service, result *dataplane.Result) {
	if svc != nil && slices.Contains(p.options.Refuse, k.String()) {
		result.Statuses = append(result.Statuses, dataplane.ServiceStatus{
			Service: k, Status: dataplane.StatusUnsupported, Reason: dataplane.ReasonUnsupported, Message: "the configuration refuses it",
		})
		return
	}
	changed, err := p.kernel.put(k, svc)
	if err != nil {
		result.Statuses = append(result.Statuses, dataplane.ServiceStatus{
			Service: k, Status: dataplane.StatusRejected, Reason: dataplane.ReasonApplyFailed, Message: err.Error(),
		})
		p.kernel.known = false // the next call looks at all again
		return
	}
	if changed {
		result.Operations++
	}
}

// repeat adds the statuses of refused services that did not change.
func (p *Provider) repeat(next *dataplane.Snapshot, result *dataplane.Result) {
	for _, name := range p.options.Refuse {
		k, err := dataplane.ParseKey(name)
		if err != nil || next.Service(k) == nil || slices.ContainsFunc(result.Statuses, func(s dataplane.ServiceStatus) bool { return s.Service == k }) {
			continue
		}
		p.program(k, next.Service(k), result)
	}
}

func wait(ctx context.Context, d time.Duration) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("fake: Reconcile: %w", err)
	}
	if d == 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("fake: Reconcile: %w", ctx.Err())
	}
}

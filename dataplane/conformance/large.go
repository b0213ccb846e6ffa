package conformance

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"

	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
)

// largeChecks are about size and time.
func largeChecks() []Check {
	return []Check{
		{
			ID: "large.snapshot", Demand: "A snapshot of 10,000 services with 10 endpoints each, in chunks of 1 MiB, is applied in time.",
			Remedy: "apply in batches; raise the receive limit to 64 MiB; a lower limit belongs into Info.limits", run: largeSnapshot,
		},
		{
			ID: "large.chunk", Demand: "A Change of 1 MiB is accepted.",
			Remedy: "do not bound messages below 1 MiB", run: largeChunk,
		},
		{
			ID: "large.limits", Demand: "Beyond the limits of Info services are REJECTED by name, up to them all are programmed.",
			Remedy: "count while placing services; reason limit", run: limits,
		},
		{
			ID: "deadline.cancel", Demand: "A Reconcile that is cancelled leaves all or old, State says which, and the next one works.",
			Remedy: "stop between services when the context ends, and set State to what is true", run: cancelled,
		},
		{
			ID: "deadline.expired", Demand: "A Reconcile whose deadline passes ends, and the next one works.",
			Remedy: "mind the deadline of the call in every loop", run: expired,
		},
	}
}

// size is the large world, within the provider's limits.
func (k *kit) size() (services, perService int) {
	services, perService = k.options.Services, k.options.EndpointsPerService
	atMost := func(n *int, limit uint32) {
		if limit > 0 {
			*n = min(*n, int(limit))
		}
	}
	l := k.info.GetLimits()
	atMost(&services, l.GetServices())
	atMost(&perService, l.GetEndpointsPerService())
	if e := int(l.GetEndpoints()); e > 0 {
		services = max(1, min(services, e/max(1, perService)))
	}
	return services, perService
}

// few is n services, or fewer if the provider takes no more.
func (k *kit) few(n int) int {
	if limit := int(k.info.GetLimits().GetServices()); limit > 0 {
		return min(n, limit)
	}
	return n
}

func sized(services, perService int) programmed {
	p := make(programmed, services)
	for n := 1; n <= services; n++ {
		p[key(n)] = perService
	}
	return p
}

func largeSnapshot(ctx context.Context, k *kit) error {
	if err := k.open(ctx); err != nil {
		return err
	}
	services, per := k.size()
	changes, bytes := large(services, per)
	start := time.Now()
	r, err := k.apply(ctx, k.begin(0), changes...)
	if err != nil {
		return fmt.Errorf("%d services with %d endpoints each, %d bytes: %w", services, per, bytes, err)
	}
	k.note("%d services with %d endpoints each, %d bytes in %d chunks: %v", services, per, bytes, len(changes), time.Since(start).Round(time.Millisecond))
	if n := len(r.GetStatuses()); n > 0 && r.GetStatuses()[0].GetStatus() != pb.Status_STATUS_PROGRAMMED && r.GetStatuses()[0].GetStatus() != pb.Status_STATUS_PARTIAL {
		return fmt.Errorf("%d of %d plain services are not programmed, such as %s: %s", n, services, r.GetStatuses()[0].GetService(), statusText(r.GetStatuses()[0]))
	}
	if err := k.stays(ctx, "it"); err != nil {
		return err
	}
	if err := k.seesIfCan(ctx, "it", sized(services, per)); err != nil {
		return err
	}
	start = time.Now()
	if _, err := k.reconcile(ctx, k.unchanged()); err != nil {
		return fmt.Errorf("an unchanged tick at this size: %w", err)
	}
	k.note("an unchanged tick: %v", time.Since(start).Round(time.Microsecond))
	return nil
}

func largeChunk(ctx context.Context, k *kit) error {
	if err := k.open(ctx); err != nil {
		return err
	}
	services, per := k.size()
	changes, bytes := large(min(services, 1<<20/64/max(1, per)), per)
	r, err := k.apply(ctx, k.begin(0), changes[0])
	if err != nil {
		return fmt.Errorf("a Change of %d bytes: %w", min(bytes, 1<<20), err)
	}
	k.note("%d services in one message", len(changes[0].GetServices()))
	return isGood(r, 1)
}

func limits(ctx context.Context, k *kit) error {
	limit := int(k.info.GetLimits().GetServices())
	if limit == 0 || limit > k.options.Services {
		return skipf("the provider names no limit of services up to %d", k.options.Services)
	}
	if err := k.open(ctx); err != nil {
		return err
	}
	changes, _ := large(limit+1, 0)
	r, err := k.apply(ctx, k.begin(0), changes...)
	if err != nil {
		return fmt.Errorf("one service more than the limit of %d: %w", limit, err)
	}
	if len(r.GetStatuses()) != 1 || r.GetStatuses()[0].GetStatus() != pb.Status_STATUS_REJECTED {
		return fmt.Errorf("one service more than the limit of %d gave %d statuses, want 1 REJECTED", limit, len(r.GetStatuses()))
	}
	return nil
}

// cancelled interrupts generations at different moments after Commit was sent.
func cancelled(ctx context.Context, k *kit) error {
	services, _ := k.size()
	services = min(services, 500)
	small, _ := large(services, 2)
	if err := k.open(ctx, small...); err != nil {
		return err
	}
	old, more := 2, 3
	for _, patience := range []time.Duration{0, time.Millisecond, 5 * time.Millisecond} {
		b := k.begin(0)
		changes, _ := large(services, more)
		applied, err := k.interrupt(ctx, patience, b, changes...)
		if err != nil {
			return err
		}
		if err := k.quiet(ctx); err != nil {
			return err
		}
		st, err := k.state(ctx)
		if err != nil {
			return err
		}
		switch {
		case says(st, b):
			if err := k.seesIfCan(ctx, "a cancelled Reconcile that State says was done", sized(services, more)); err != nil {
				return err
			}
		case !says(st, k.last) && st.GetGeneration() != 0 || applied:
			return fmt.Errorf("after a cancelled Reconcile State says %s, want %s or %s", describe(st), describe(b), describe(k.last))
		default:
			if err := k.allOrOld(ctx, services, old, more); err != nil {
				return err
			}
		}
		if _, err := k.apply(ctx, k.begin(0), changes...); err != nil {
			return fmt.Errorf("the Reconcile after a cancelled one: %w", err)
		}
		if err := k.seesIfCan(ctx, "the next Reconcile", sized(services, more)); err != nil {
			return err
		}
		old, more = more, more+1
	}
	return nil
}

// interrupt sends a generation and cancels it after a while. It reports whether
// the answer came before.
func (k *kit) interrupt(ctx context.Context, patience time.Duration, b *pb.Begin, changes ...*pb.Change) (answered bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := k.client().Reconcile(ctx)
	if err != nil {
		return false, err
	}
	steps := []*pb.ReconcileRequest{beginStep(b)}
	for _, c := range changes {
		steps = append(steps, changeStep(c))
	}
	if err := send(stream, append(steps, commitStep())...); err != nil {
		return false, err
	}
	time.AfterFunc(patience, cancel)
	_, err = stream.CloseAndRecv()
	if code := codeOf(err); err != nil && code != codes.Canceled {
		return false, fmt.Errorf("a Reconcile that was cancelled after %v ended with %w", patience, err)
	}
	return err == nil, nil
}

// allOrOld demands that each service has its old or its new endpoints.
func (k *kit) allOrOld(ctx context.Context, services, old, fresh int) error {
	got, err := k.observe(ctx)
	if err != nil {
		return ignoreBlind(err)
	}
	if len(got) != services {
		return fmt.Errorf("after a cancelled Reconcile there are %d services, want %d", len(got), services)
	}
	for svc, n := range got {
		if n != old && n != fresh {
			return fmt.Errorf("after a cancelled Reconcile %s has %d endpoints, want %d or %d", svc, n, old, fresh)
		}
	}
	return nil
}

func expired(ctx context.Context, k *kit) error {
	services, per := k.size()
	changes, _ := large(min(services, 500), per)
	if err := k.open(ctx, several(1)); err != nil {
		return err
	}
	short, cancel := context.WithTimeout(ctx, time.Millisecond)
	_, err := k.reconcile(short, k.begin(0), changes...)
	cancel()
	if code := codeOf(err); err != nil && code != codes.DeadlineExceeded && code != codes.Canceled {
		return fmt.Errorf("a Reconcile with a deadline of 1 ms ended with %w", err)
	}
	k.note("with a deadline of 1 ms: %v", codeOf(err))
	// A quick provider was quicker than that. It cannot be where the host waits.
	short, cancel = context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	h, err := k.hold(short, k.begin(0), changes...)
	if err != nil && short.Err() == nil {
		return err
	}
	if err == nil {
		defer h.cancel()
		if a := <-h.answer; a.err == nil {
			return fmt.Errorf("a Reconcile was answered with generation %d before Commit", a.response.GetGeneration())
		}
	}
	if err := k.quiet(ctx); err != nil {
		return err
	}
	if _, err := k.apply(ctx, k.begin(0), several(2)); err != nil {
		return fmt.Errorf("the Reconcile after one whose deadline passed: %w", err)
	}
	return k.seesIfCan(ctx, "the next Reconcile", expect(map[int]int{1: 2, 2: 2}))
}

package conformance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"

	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
)

func ignoreBlind(err error) error {
	if errors.Is(err, errBlind) {
		return nil
	}
	return err
}

func concurrencyChecks() []Check {
	return []Check{
		{
			ID: "concurrency.second-reconcile", Demand: "While a Reconcile is under way a second one is answered with ABORTED at once.",
			Remedy: "take a lock with try, not with wait, from Begin to the answer", run: secondReconcile,
		},
		{
			ID: "concurrency.others", Demand: "While a Reconcile is under way Probe, Configure and Cleanup are answered with ABORTED: nothing is queued.",
			Remedy: "take the same lock with try in all of them", run: othersMeanwhile,
		},
		{
			ID: "concurrency.questions", Demand: "Info, State and Health answer while a Reconcile is under way.",
			Remedy: "answer them from copies, without the lock of Reconcile", run: questionsMeanwhile,
		},
		{
			ID: "concurrency.slow-host", Demand: "A host that is slow between Begin and Commit is waited for.",
			Remedy: "do not bound the time between two messages of a generation below a second", run: slowHost,
		},
	}
}

// meanwhile runs f while a Reconcile is under way, which is then committed.
func (k *kit) meanwhile(ctx context.Context, f func() error) error {
	if err := k.open(ctx, several(2)); err != nil {
		return err
	}
	h, err := k.enter(ctx, k.begin(k.gen), whole(3, 2))
	if err != nil {
		return err
	}
	defer h.cancel()
	if err := f(); err != nil {
		return err
	}
	return k.commit(h)
}

func secondReconcile(ctx context.Context, k *kit) error {
	const patience = 2 * time.Second
	err := k.meanwhile(ctx, func() error {
		limit, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		start := time.Now()
		_, err := k.reconcile(limit, k.unchanged())
		if limit.Err() != nil {
			return fmt.Errorf("a second Reconcile was not answered in %v, want ABORTED", patience)
		}
		k.note("answered in %v", time.Since(start).Round(time.Microsecond))
		return refused("a second Reconcile", err, codes.Aborted)
	})
	if err != nil {
		return err
	}
	return k.seesIfCan(ctx, "the first Reconcile", expect(map[int]int{1: 2, 2: 2, 3: 2}))
}

func othersMeanwhile(ctx context.Context, k *kit) error {
	return k.meanwhile(ctx, func() error {
		ctx, cancel := context.WithTimeout(ctx, answerTime)
		defer cancel()
		_, probe := k.client().Probe(ctx, &pb.ProbeRequest{})
		_, configure := k.client().Configure(ctx, k.config())
		_, cleanup := k.client().Cleanup(ctx, k.owned())
		return errors.Join(refused("Probe", probe, codes.Aborted), refused("Configure", configure, codes.Aborted), refused("Cleanup", cleanup, codes.Aborted))
	})
}

func questionsMeanwhile(ctx context.Context, k *kit) error {
	return k.meanwhile(ctx, func() error {
		for range 3 {
			if err := k.questions(ctx); err != nil {
				return err
			}
		}
		return nil
	})
}

// questions asks what has to be answered at any time.
func (k *kit) questions(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	if _, err := k.client().Info(ctx, &pb.InfoRequest{}); err != nil {
		return failf("Info while a Reconcile is under way: %w", err)
	}
	if _, err := k.client().Health(ctx, &pb.HealthRequest{}); err != nil {
		return failf("Health while a Reconcile is under way: %w", err)
	}
	return k.stays(ctx, "Begin")
}

func slowHost(ctx context.Context, k *kit) error {
	return k.meanwhile(ctx, func() error {
		pause(ctx, 300*time.Millisecond)
		return nil
	})
}

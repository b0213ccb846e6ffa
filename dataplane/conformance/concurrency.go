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

// held is a Reconcile that was begun and waits for us.
type held struct {
	stream reconcileStream
	begin  *pb.Begin
	cancel context.CancelFunc
}

// hold begins a generation with a service and stops before Commit.
func (k *kit) hold(ctx context.Context) (*held, error) {
	ctx, cancel := context.WithCancel(ctx)
	h := &held{begin: k.begin(k.last.GetGeneration()), cancel: cancel}
	stream, err := k.client().Reconcile(ctx)
	if err == nil {
		h.stream = stream
		err = send(stream, beginStep(h.begin), changeStep(whole(3, 2)))
	}
	if err != nil {
		cancel()
		return nil, err
	}
	return h, nil
}

func (k *kit) commit(h *held) error {
	if err := send(h.stream, commitStep()); err != nil {
		return err
	}
	r, err := h.stream.CloseAndRecv()
	if err != nil {
		return fmt.Errorf("the Reconcile that was under way: %w", err)
	}
	if r.GetGeneration() != h.begin.GetGeneration() {
		return fmt.Errorf("the Reconcile that was under way was answered with generation %d, want %d", r.GetGeneration(), h.begin.GetGeneration())
	}
	k.last = h.begin
	return nil
}

// errAgain is returned by what runs meanwhile if the Reconcile may not have got in.
var errAgain = errors.New("the first Reconcile may not have got in")

// meanwhile runs f while a Reconcile is under way, which is then committed. A
// call of f that comes before its Begin gets it refused: then all is repeated.
func (k *kit) meanwhile(ctx context.Context, f func() error) (err error) {
	if err := k.open(ctx, several(2)); err != nil {
		return err
	}
	const attempts = 6
	for range attempts {
		var h *held
		if h, err = k.hold(ctx); err != nil {
			return err
		}
		if err = f(); err == nil {
			err = k.commit(h)
		}
		h.cancel()
		if codeOf(err) != codes.Aborted && !errors.Is(err, errAgain) {
			return err
		}
	}
	return err
}

func secondReconcile(ctx context.Context, k *kit) error {
	const patience = 400 * time.Millisecond
	err := k.meanwhile(ctx, func() error {
		limit, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		for {
			// The first may not have arrived yet: an unchanged tick does no harm then.
			start := time.Now()
			_, err := k.reconcile(limit, k.unchanged())
			switch {
			case codeOf(err) == codes.Aborted:
				k.note("answered in %v", time.Since(start).Round(time.Microsecond))
				return nil
			case limit.Err() != nil:
				return fmt.Errorf("%w: a second one was answered with %v in %v, want ABORTED", errAgain, codeOf(err), patience)
			case err != nil:
				return refused("a second Reconcile", err, codes.Aborted)
			}
		}
	})
	if err != nil {
		return err
	}
	return k.seesIfCan(ctx, "the first Reconcile", expect(map[int]int{1: 2, 2: 2, 3: 2}))
}

func othersMeanwhile(ctx context.Context, k *kit) error {
	return k.meanwhile(ctx, func() error {
		if err := k.inside(ctx); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, answerTime)
		defer cancel()
		_, probe := k.client().Probe(ctx, &pb.ProbeRequest{})
		_, configure := k.client().Configure(ctx, k.config())
		_, cleanup := k.client().Cleanup(ctx, k.owned())
		if codeOf(probe) == codes.OK && codeOf(configure) == codes.OK {
			return fmt.Errorf("%w: Probe and Configure were done, want ABORTED", errAgain)
		}
		return errors.Join(refused("Probe", probe, codes.Aborted), refused("Configure", configure, codes.Aborted), refused("Cleanup", cleanup, codes.Aborted))
	})
}

func questionsMeanwhile(ctx context.Context, k *kit) error {
	return k.meanwhile(ctx, func() error {
		if err := k.inside(ctx); err != nil {
			return err
		}
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
		return fmt.Errorf("Info while a Reconcile is under way: %w", err)
	}
	if _, err := k.client().Health(ctx, &pb.HealthRequest{}); err != nil {
		return fmt.Errorf("Health while a Reconcile is under way: %w", err)
	}
	return k.stays(ctx, "Begin")
}

func slowHost(ctx context.Context, k *kit) error {
	return k.meanwhile(ctx, func() error {
		pause(ctx, 300*time.Millisecond)
		return nil
	})
}

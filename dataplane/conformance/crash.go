package conformance

import (
	"context"
	"fmt"
	"time"

	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
)

func crashChecks() []Check {
	const demand = "Killed %s and started again, State says what is true or nothing, and a snapshot works."
	const remedy = "take back the mark of what is applied before changing anything, and set it after all is done"
	check := func(id, when string, run func(context.Context, *kit) error) Check {
		return Check{ID: "crash." + id, Demand: fmt.Sprintf(demand, when), Remedy: remedy, Exec: true, run: run}
	}
	return []Check{
		check("idle", "while nothing happens", func(ctx context.Context, k *kit) error {
			return k.crashAt(ctx, k.crash)
		}),
		check("begin", "after Begin", func(ctx context.Context, k *kit) error {
			return k.crashAt(ctx, func(ctx context.Context) error { return k.crashInside(ctx) })
		}),
		check("change", "after a Change", func(ctx context.Context, k *kit) error {
			return k.crashAt(ctx, func(ctx context.Context) error { return k.crashInside(ctx, k.next()) })
		}),
		check("commit", "during Commit", func(ctx context.Context, k *kit) error {
			for _, moment := range []time.Duration{0, time.Millisecond, 4 * time.Millisecond} {
				if err := k.crashAt(ctx, func(ctx context.Context) error { return k.crashInCommit(ctx, moment) }); err != nil {
					return err
				}
			}
			return nil
		}),
		{
			ID: "crash.incomplete", Demand: "A process that was started anew leaves what it finds in the system while the host is incomplete.",
			Remedy: "remove what a snapshot lacks only if its completeness is EXCHANGED, ALONE or TIMEOUT", Exec: true, run: crashIncomplete,
		},
	}
}

func crashIncomplete(ctx context.Context, k *kit) error {
	if err := k.open(ctx, several(3)); err != nil {
		return err
	}
	if err := k.crash(ctx); err != nil {
		return err
	}
	if err := k.configure(ctx); err != nil {
		return err
	}
	want, err := k.observe(ctx)
	if err != nil {
		return err
	}
	k.note("%d services outlived the process", len(want))
	k.renew(k.session.GetAgentId())
	for n := range 2 {
		b := k.begin(uint64(n))
		b.Completeness = pb.Completeness_COMPLETENESS_INCOMPLETE
		if _, err := k.apply(ctx, b, whole(8+n, 1)); err != nil {
			return err
		}
		want[key(8+n)] = 1
		if err := k.sees(ctx, "an incomplete generation", want); err != nil {
			return err
		}
	}
	if _, err := k.apply(ctx, k.begin(0), several(2)); err != nil {
		return err
	}
	return k.sees(ctx, "a complete snapshot", expect(map[int]int{1: 2, 2: 2}))
}

// crowd is how many services a generation has that is killed.
func (k *kit) crowd() int { return k.few(200) }

// next changes every service.
func (k *kit) next() *pb.Change {
	c := &pb.Change{}
	for n := 1; n <= k.crowd(); n++ {
		c.Endpoints = append(c.Endpoints, endpoints(n, 3))
	}
	return c
}

// crashAt lets a provider that has a generation crash while it gets the next.
func (k *kit) crashAt(ctx context.Context, crash func(context.Context) error) error {
	k.renew(k.session.GetAgentId())
	if err := k.open(ctx, several(k.crowd())); err != nil {
		return err
	}
	k.committing = false
	if err := crash(ctx); err != nil {
		return err
	}
	if err := k.configure(ctx); err != nil {
		return err
	}
	possible := map[uint64]programmed{1: sized(k.crowd(), 2)}
	if k.committing {
		possible[2] = sized(k.crowd(), 3)
	}
	if err := k.truth(ctx, possible); err != nil {
		return err
	}
	k.gen = 10
	if _, err := k.apply(ctx, k.begin(0), several(2)); err != nil {
		return fmt.Errorf("the snapshot after a crash: %w", err)
	}
	return k.seesIfCan(ctx, "the snapshot", expect(map[int]int{1: 2, 2: 2}))
}

func (k *kit) crashInside(ctx context.Context, changes ...*pb.Change) error {
	h, err := k.enter(ctx, k.begin(k.gen), changes...)
	if err != nil {
		return err
	}
	defer h.cancel()
	return k.crash(ctx)
}

func (k *kit) crashInCommit(ctx context.Context, moment time.Duration) error {
	h, err := k.enter(ctx, k.begin(k.gen), k.next())
	if err != nil {
		return err
	}
	defer h.cancel()
	k.committing = true
	if err := send(h.stream, commitStep()); err != nil {
		return err
	}
	pause(ctx, moment)
	return k.crash(ctx)
}

// crash kills the provider and starts it again.
func (k *kit) crash(ctx context.Context) error {
	k.peer.proc.kill()
	_ = k.peer.conn.Close()
	k.suite.peer = nil
	if err := k.connect(ctx); err != nil {
		return fmt.Errorf("started again after a crash: %w", err)
	}
	return nil
}

// truth demands that State says nothing, or one of these generations of the
// session with just that in the system.
func (k *kit) truth(ctx context.Context, possible map[uint64]programmed) error {
	st, err := k.state(ctx)
	if err != nil {
		return err
	}
	if st.GetGeneration() == 0 {
		k.note("State says nothing")
		return nil
	}
	want, can := possible[st.GetGeneration()]
	if !can || st.GetSession().GetAgentId() != k.session.GetAgentId() || st.GetSession().GetBootEpoch() != k.session.GetBootEpoch() {
		return fmt.Errorf("started again, State says %s, which was never applied", describe(st))
	}
	b := &pb.Begin{
		Session: k.session, Base: st.GetGeneration(), Generation: st.GetGeneration(), Digest: st.GetDigest(), Completeness: pb.Completeness_COMPLETENESS_EXCHANGED,
	}
	if _, err := k.reconcile(ctx, b); err != nil {
		return failf("State says generation %d, but an unchanged tick with it: %w", st.GetGeneration(), err)
	}
	k.note("State says generation %d", st.GetGeneration())
	return k.seesIfCan(ctx, "a start in which State claims it", want)
}

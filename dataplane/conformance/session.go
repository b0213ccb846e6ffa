package conformance

import (
	"context"
	"fmt"

	"google.golang.org/grpc/codes"

	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
)

// sessionChecks are about who is obeyed.
func sessionChecks() []Check {
	return []Check{
		{
			ID: "session.opens-with-snapshot", Demand: "A new session opens with a snapshot: changes are answered with FAILED_PRECONDITION; its generations start anew.",
			Remedy: "compare generations within a session only", run: opensWithSnapshot,
		},
		{
			ID: "session.fenced", Demand: "A newer session of an agent fences the older ones: PERMISSION_DENIED.",
			Remedy: "compare boot_epoch for the same agent_id", run: fenced,
		},
		{
			ID: "session.fences-when-applied", Demand: "A new session fences the older ones when its first generation is applied, not before.",
			Remedy: "take over at the end of Commit", run: fencesWhenApplied,
		},
		{
			ID: "session.other-agent", Demand: "Another agent takes over with a snapshot, and the session that it took over from is fenced.",
			Remedy: "remember the sessions that are over, by agent id", run: otherAgent,
		},
	}
}

func opensWithSnapshot(ctx context.Context, k *kit) error {
	if err := k.open(ctx, several(1)); err != nil {
		return err
	}
	k.gen += 100
	if _, err := k.apply(ctx, k.begin(0), several(2)); err != nil {
		return err
	}
	old := k.last
	k.renew(k.session.GetAgentId())
	_, err := k.reconcile(ctx, k.begin(old.GetGeneration()), whole(3, 1))
	if err := refused("a new session that opens with changes", err, codes.FailedPrecondition); err != nil {
		return err
	}
	k.last = old
	if err := k.stays(ctx, "it"); err != nil {
		return err
	}
	k.last, k.gen = nil, 0
	if _, err := k.apply(ctx, k.begin(0), several(3)); err != nil {
		return fmt.Errorf("a new session that starts at generation 1: %w", err)
	}
	return k.stays(ctx, "the snapshot of a new session")
}

func fenced(ctx context.Context, k *kit) error {
	if err := k.open(ctx, several(2)); err != nil {
		return err
	}
	old, oldGen := k.session, k.gen
	k.renew(old.GetAgentId())
	if _, err := k.apply(ctx, k.begin(0), several(3)); err != nil {
		return err
	}
	return k.fencedOff(ctx, old, oldGen, expect(map[int]int{1: 2, 2: 2, 3: 2}))
}

// fencedOff demands that nothing of an old session is obeyed.
func (k *kit) fencedOff(ctx context.Context, old *pb.Session, gen uint64, want programmed) error {
	for _, base := range []uint64{0, gen} {
		_, err := k.reconcile(ctx, &pb.Begin{
			Session: old, Base: base, Generation: gen + 50, Digest: []byte("old"), Completeness: pb.Completeness_COMPLETENESS_EXCHANGED,
		}, whole(9, 1))
		if err := refused(fmt.Sprintf("generation %d of an old session, base %d,", gen+50, base), err, codes.PermissionDenied); err != nil {
			return err
		}
	}
	if err := k.stays(ctx, "an old session"); err != nil {
		return err
	}
	return k.seesIfCan(ctx, "an old session", want)
}

func fencesWhenApplied(ctx context.Context, k *kit) error {
	if err := k.open(ctx, several(2)); err != nil {
		return err
	}
	old, last, gen := k.session, k.last, k.gen
	k.renew(old.GetAgentId())
	if err := k.breakOff(ctx, k.begin(0), several(3)); err != nil {
		return err
	}
	k.session, k.last, k.gen = old, last, gen
	if _, err := k.apply(ctx, k.begin(gen), whole(4, 1)); err != nil {
		return fmt.Errorf("after a new session that broke off, the old one: %w", err)
	}
	return k.seesIfCan(ctx, "it", expect(map[int]int{1: 2, 2: 2, 4: 1}))
}

func otherAgent(ctx context.Context, k *kit) error {
	if err := k.open(ctx, several(2)); err != nil {
		return err
	}
	old, oldGen := k.session, k.gen
	k.renew("other-" + k.tag)
	if _, err := k.apply(ctx, k.begin(0), several(3)); err != nil {
		return fmt.Errorf("another agent: %w", err)
	}
	if err := k.fencedOff(ctx, old, oldGen, expect(map[int]int{1: 2, 2: 2, 3: 2})); err != nil {
		return err
	}
	// A restart of the first agent is a new session, and takes over in turn.
	k.renew(old.GetAgentId())
	if _, err := k.apply(ctx, k.begin(0), several(1)); err != nil {
		return fmt.Errorf("a new session of the first agent: %w", err)
	}
	return k.seesIfCan(ctx, "a new session of the first agent", expect(map[int]int{1: 2}))
}

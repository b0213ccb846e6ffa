package conformance

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
)

// maxUnchangedBytes bounds what a tick without change puts on the wire.
const maxUnchangedBytes = 200

// repeats is how often what has to be idempotent is repeated.
const repeats = 10

// reconcileChecks are about generations, whatever is in them.
func reconcileChecks() []Check {
	return []Check{
		{
			ID: "reconcile.not-configured", Demand: "Reconcile before Configure is answered with FAILED_PRECONDITION.",
			Remedy: "refuse Begin until Configure was accepted", Exec: true, fresh: true, run: notConfigured,
		},
		{
			ID: "reconcile.answer", Demand: "Reconcile answers the generation of its Begin, and State says session, generation, digest and completeness of it.",
			Remedy: "answer and keep what Begin said, not a number of your own", run: answersGeneration,
		},
		{
			ID: "reconcile.programs", Demand: "What is acknowledged is programmed.",
			Remedy: "answer after the work, and only for what was done", run: programsWhatItAcknowledges,
		},
		{
			ID: "reconcile.removes", Demand: "A removed endpoint or service is gone, whatever the reason of its removal.",
			Remedy: "act on removed_endpoints and removed_services of each Change", run: removes,
		},
		{
			ID: "reconcile.idempotent", Demand: "The same snapshot under a new generation makes no operation.",
			Remedy: "compare with what is programmed before acting", run: idempotent,
		},
		{
			ID: "reconcile.unchanged", Demand: "The applied generation with its digest, and no Change, does nothing: 0 operations.",
			Remedy: "answer it from memory", run: unchangedDoesNothing,
		},
		{
			ID: "reconcile.unchanged-size", Demand: "A tick without change takes at most 200 bytes.",
			Remedy: "answer only services that are not simply PROGRAMMED, not all", run: unchangedIsSmall,
		},
		{
			ID: "reconcile.told-again", Demand: "A generation that is told again, such as after an answer that was lost, is accepted and changes nothing.",
			Remedy: "take the same session, generation and digest as applied already", run: toldAgain,
		},
		{
			ID: "reconcile.before-commit", Demand: "Nothing is applied before Commit: a stream that breaks off, or ends without it, leaves State and system as before.",
			Remedy: "collect the changes, and act at Commit", run: nothingBeforeCommit,
		},
		{
			ID: "reconcile.begin-first", Demand: "Begin comes first: anything else is answered with INVALID_ARGUMENT and applies nothing.",
			Remedy: "check the first message of the stream", run: beginFirst,
		},
		{
			ID: "reconcile.base-mismatch", Demand: "Changes to a generation that is not applied are answered with FAILED_PRECONDITION; a snapshot helps.",
			Remedy: "compare Begin.base with what is applied", run: baseMismatch,
		},
		{
			ID: "reconcile.digest-mismatch", Demand: "The applied generation with another digest is answered with FAILED_PRECONDITION.",
			Remedy: "keep the digest beside the generation, and compare both", run: digestMismatch,
		},
		{
			ID: "reconcile.completeness", Demand: "Completeness changes with a new generation only: else it is answered with INVALID_ARGUMENT; an unknown one too.",
			Remedy: "keep the completeness beside the generation, and compare both", run: completenessIsKept,
		},
		{
			ID: "reconcile.gap", Demand: "Generations rise, by any step.",
			Remedy: "compare with <, not with +1", run: gap,
		},
		{
			ID: "reconcile.old-generation", Demand: "A generation below the applied one is refused with FAILED_PRECONDITION.",
			Remedy: "compare Begin.generation with what is applied in this session", run: oldGeneration,
		},
		{
			ID: "errors.reason", Demand: "Errors carry an ErrorInfo of domain dataplane.fairlead with their reason.",
			Remedy: "attach google.rpc.ErrorInfo to the status, see PROTOCOL.md", run: errorsCarryReason,
		},
	}
}

func notConfigured(ctx context.Context, k *kit) error {
	_, err := k.reconcile(ctx, k.begin(0), several(1))
	if err := refused("Reconcile before Configure", err, codes.FailedPrecondition); err != nil {
		return err
	}
	st, err := k.state(ctx)
	if err == nil && st.GetGeneration() != 0 {
		err = failf("State says %s, nobody told it anything", describe(st))
	}
	return err
}

func answersGeneration(ctx context.Context, k *kit) error {
	if err := k.configure(ctx); err != nil {
		return err
	}
	for n := 1; n <= 3; n++ {
		b := k.begin(k.last.GetGeneration())
		r, err := k.apply(ctx, b, whole(n, 2))
		if err != nil {
			return err
		}
		if r.GetGeneration() != b.GetGeneration() {
			return fmt.Errorf("generation %d was answered with %d", b.GetGeneration(), r.GetGeneration())
		}
		for _, st := range r.GetStatuses() {
			if st.GetStatus() != pb.Status_STATUS_PROGRAMMED && st.GetStatus() != pb.Status_STATUS_PARTIAL {
				return fmt.Errorf("a plain service with a TCP frontend is %s", statusText(st))
			}
		}
		st, err := k.state(ctx)
		if err != nil {
			return err
		}
		if !says(st, b) || !st.GetComplete() || st.GetInstanceId() != k.instance() {
			return failf("State says %s, complete %v, instance %q; want %s, complete, instance %q", describe(st), st.GetComplete(), st.GetInstanceId(), describe(b), k.instance())
		}
	}
	k.note("three generations")
	return nil
}

func programsWhatItAcknowledges(ctx context.Context, k *kit) error {
	if err := k.open(ctx); err != nil {
		return err
	}
	if err := k.sees(ctx, "an empty snapshot", programmed{}); err != nil {
		return err
	}
	if _, err := k.apply(ctx, k.begin(0), whole(1, 3), whole(2, 0)); err != nil {
		return err
	}
	if err := k.sees(ctx, "a snapshot", expect(map[int]int{1: 3, 2: 0})); err != nil {
		return err
	}
	if _, err := k.apply(ctx, k.begin(k.gen), &pb.Change{Endpoints: []*pb.EndpointGroup{endpoints(2, 7, 8)}}); err != nil {
		return err
	}
	return k.sees(ctx, "a delta", expect(map[int]int{1: 3, 2: 2}))
}

func removes(ctx context.Context, k *kit) error {
	if err := k.open(ctx, whole(1, 6), whole(2, 1), whole(3, 1)); err != nil {
		return err
	}
	c := &pb.Change{RemovedServices: []*pb.ServiceRemoval{{Service: 2}}}
	for id, reason := range []pb.RemovalReason{
		pb.RemovalReason_REMOVAL_REASON_DEAD, pb.RemovalReason_REMOVAL_REASON_LEFT, pb.RemovalReason_REMOVAL_REASON_FAILING,
		pb.RemovalReason_REMOVAL_REASON_DRAINED, pb.RemovalReason_REMOVAL_REASON_DEREGISTERED,
	} {
		c.RemovedEndpoints = append(c.RemovedEndpoints, &pb.EndpointRemoval{Service: 1, Id: uint64(id + 1), Reason: reason})
	}
	if _, err := k.apply(ctx, k.begin(k.gen), c); err != nil {
		return err
	}
	// A service that is gone has left its frontend to others.
	heir := service(4, func(s *pb.Service) { s.Frontends[0].Address = vip(2) })
	r, err := k.apply(ctx, k.begin(k.gen), &pb.Change{Services: []*pb.Service{heir}})
	if err != nil {
		return err
	}
	if st := statusOf(r, 4); st != nil && st.GetStatus() != pb.Status_STATUS_PROGRAMMED {
		return fmt.Errorf("a service with the frontend of a removed one is %s", statusText(st))
	}
	return k.seesIfCan(ctx, "the removals", expect(map[int]int{1: 1, 3: 1, 4: 0}))
}

func idempotent(ctx context.Context, k *kit) error {
	if err := k.open(ctx, several(5)); err != nil {
		return err
	}
	for n := range repeats {
		r, err := k.apply(ctx, k.begin(0), several(5))
		if err != nil {
			return err
		}
		if r.GetOperations() != 0 {
			return fmt.Errorf("repetition %d made %d operations", n+1, r.GetOperations())
		}
	}
	k.note("%d times no operation", repeats)
	return k.seesIfCan(ctx, "it", expect(map[int]int{1: 2, 2: 2, 3: 2, 4: 2, 5: 2}))
}

func unchangedDoesNothing(ctx context.Context, k *kit) error {
	if err := k.open(ctx, several(5)); err != nil {
		return err
	}
	start := time.Now()
	for range repeats {
		r, err := k.reconcile(ctx, k.unchanged())
		if err != nil {
			return fmt.Errorf("an unchanged tick: %w", err)
		}
		if r.GetGeneration() != k.gen || r.GetOperations() != 0 {
			return fmt.Errorf("an unchanged tick of generation %d was answered with generation %d, %d operations", k.gen, r.GetGeneration(), r.GetOperations())
		}
	}
	k.note("%v for each", (time.Since(start) / repeats).Round(time.Microsecond))
	return k.stays(ctx, "unchanged ticks")
}

func unchangedIsSmall(ctx context.Context, k *kit) error {
	n := k.few(50)
	if err := k.open(ctx, several(n)); err != nil {
		return err
	}
	b := k.unchanged()
	r, err := k.reconcile(ctx, b)
	if err != nil {
		return fmt.Errorf("an unchanged tick: %w", err)
	}
	size := proto.Size(beginStep(b)) + proto.Size(commitStep()) + proto.Size(r)
	k.note("%d bytes with %d services", size, n)
	if size > maxUnchangedBytes {
		return fmt.Errorf("an unchanged tick with %d good services took %d bytes, %d of them the answer", n, size, proto.Size(r))
	}
	return nil
}

func toldAgain(ctx context.Context, k *kit) error {
	if err := k.open(ctx, several(2)); err != nil {
		return err
	}
	b := k.begin(k.gen)
	for range 2 {
		if _, err := k.apply(ctx, b, whole(3, 2)); err != nil {
			return err
		}
	}
	r, err := k.apply(ctx, b, whole(3, 2))
	if err != nil {
		return err
	}
	if r.GetOperations() != 0 {
		return fmt.Errorf("told a third time it made %d operations", r.GetOperations())
	}
	return k.seesIfCan(ctx, "it", expect(map[int]int{1: 2, 2: 2, 3: 2}))
}

func nothingBeforeCommit(ctx context.Context, k *kit) error {
	if err := k.open(ctx, several(2)); err != nil {
		return err
	}
	was := expect(map[int]int{1: 2, 2: 2})
	gone := &pb.Change{RemovedServices: []*pb.ServiceRemoval{{Service: 1}}}
	for _, c := range []struct {
		how  string
		base uint64
	}{{"a delta that broke off", k.gen}, {"a snapshot that broke off", 0}} {
		changes := []*pb.Change{whole(3, 2)}
		if c.base != 0 {
			changes = append(changes, gone)
		}
		if err := k.breakOff(ctx, k.begin(c.base), changes...); err != nil {
			return err
		}
		if err := k.stays(ctx, c.how); err != nil {
			return err
		}
		if err := k.seesIfCan(ctx, c.how, was); err != nil {
			return err
		}
	}
	_, err := k.steps(ctx, beginStep(k.begin(k.last.GetGeneration())), changeStep(whole(3, 2)))
	if err := refused("a generation without Commit", err, codes.InvalidArgument); err != nil {
		return err
	}
	if err := k.stays(ctx, "a generation without Commit"); err != nil {
		return err
	}
	return k.seesIfCan(ctx, "a generation without Commit", was)
}

func beginFirst(ctx context.Context, k *kit) error {
	if err := k.open(ctx, several(1)); err != nil {
		return err
	}
	for what, steps := range inOrder(map[string][]*pb.ReconcileRequest{
		"Change first":    {changeStep(whole(2, 1)), commitStep()},
		"Commit first":    {commitStep()},
		"Begin twice":     {beginStep(k.begin(1)), beginStep(k.begin(1)), commitStep()},
		"an empty stream": {},
		"an empty step":   {{}, commitStep()},
		"no session":      {beginStep(&pb.Begin{Generation: 9, Completeness: pb.Completeness_COMPLETENESS_ALONE}), commitStep()},
	}) {
		_, err := k.steps(ctx, steps...)
		if err := refused(what, err, codes.InvalidArgument); err != nil {
			return err
		}
	}
	return k.stays(ctx, "streams without Begin")
}

package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/grpc/codes"

	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
)

func cleanupChecks() []Check {
	return []Check{
		{
			ID: "cleanup.dry-run", Demand: "A dry run of Cleanup removes nothing, and says WOULD_REMOVE.",
			Remedy: "look and report; leave the system and State alone", run: cleanupDryRun,
		},
		{
			ID: "cleanup.others", Demand: "Cleanup(OWNED) touches no object of another instance id.",
			Remedy: "tag each object with the instance id, and compare it", run: cleanupOthers,
		},
		{
			ID: "cleanup.owned", Demand: "Cleanup(OWNED) removes all of the instance, State says so, and the next snapshot programs all again.",
			Remedy: "remove the objects, then forget what was applied", run: cleanupOwned,
		},
		{
			ID: "cleanup.idempotent", Demand: "Cleanup is idempotent: when nothing is left it succeeds and removes nothing.",
			Remedy: "what is not there is not an error", run: cleanupIdempotent,
		},
		{
			ID: "cleanup.linger", Demand: "Cleanup with linger leaves PENDING objects at most, and without it those go, too.",
			Remedy: "let stay only what connections under way need, and remove it when linger is not set", run: cleanupLinger,
		},
		{
			ID: "cleanup.unknown", Demand: "An unknown CleanupScope or ShutdownPolicy is answered with INVALID_ARGUMENT, and does nothing.",
			Remedy: "refuse what you do not know: a guess removes something", run: cleanupUnknown,
		},
		{
			ID: "cleanup.unconfigured", Demand: "Cleanup works without Configure, after a crash, by the instance id alone.",
			Remedy: "find objects by their tag, not by what is in memory or in files", Exec: true, fresh: true, run: cleanupUnconfigured,
		},
		{
			ID: "cleanup.all-known", Demand: "Cleanup(ALL_KNOWN) works before Configure and without an instance id, and finds what any instance left.",
			Remedy: "look for your own mark on the objects, whatever instance id is beside it", Exec: true, fresh: true, run: cleanupAllKnown,
		},
		{
			ID: "shutdown.keep", Demand: "Shutdown(KEEP) succeeds; the process ends when it is asked to.", Exec: true, spent: true,
			Remedy: "let what is programmed stay, and answer before the process ends", run: shutdownKeep,
		},
	}
}

func (k *kit) cleanup(ctx context.Context, r *pb.CleanupRequest) ([]*pb.CleanupItem, error) {
	m, err := k.client().Cleanup(ctx, r)
	if err != nil {
		return nil, failf("Cleanup(%v): %w", r, err)
	}
	for _, i := range m.GetItems() {
		if _, known := pb.CleanupResult_name[int32(i.GetResult())]; !known || i.GetResult() == 0 || i.GetObject() == "" {
			return nil, failf("Cleanup answered object %q with %v", i.GetObject(), i.GetResult())
		}
		if i.GetResult() == pb.CleanupResult_CLEANUP_RESULT_FAILED {
			return nil, failf("Cleanup of %s failed: %s", i.GetObject(), i.GetMessage())
		}
	}
	return m.GetItems(), nil
}

func (k *kit) owned() *pb.CleanupRequest {
	return &pb.CleanupRequest{Scope: pb.CleanupScope_CLEANUP_SCOPE_OWNED, InstanceId: k.instance()}
}

// leftovers lists what Cleanup(OWNED) would remove.
func (k *kit) leftovers(ctx context.Context) ([]string, error) {
	r := k.owned()
	r.DryRun = true
	items, err := k.cleanup(ctx, r)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, i := range items {
		switch i.GetResult() {
		case pb.CleanupResult_CLEANUP_RESULT_REMOVED:
			return nil, fmt.Errorf("a dry run of Cleanup says that it removed %s", i.GetObject())
		case pb.CleanupResult_CLEANUP_RESULT_WOULD_REMOVE:
			names = append(names, i.GetObject())
		}
	}
	slices.Sort(names)
	return names, nil
}

func cleanupDryRun(ctx context.Context, k *kit) error {
	if err := k.open(ctx, several(3)); err != nil {
		return err
	}
	first, err := k.leftovers(ctx)
	if err != nil {
		return err
	}
	second, err := k.leftovers(ctx)
	if err != nil {
		return err
	}
	if !slices.Equal(first, second) {
		return fmt.Errorf("a dry run of Cleanup named %q, a second one %q", first, second)
	}
	k.note("%d objects would be removed", len(first))
	if err := k.stays(ctx, "a dry run of Cleanup"); err != nil {
		return err
	}
	if err := k.seesIfCan(ctx, "a dry run of Cleanup", expect(map[int]int{1: 2, 2: 2, 3: 2})); err != nil {
		return err
	}
	_, err = k.apply(ctx, k.begin(k.gen), whole(4, 1))
	return err
}

func cleanupOthers(ctx context.Context, k *kit) error {
	if err := k.open(ctx, several(3)); err != nil {
		return err
	}
	r := k.owned()
	r.InstanceId += "-other"
	items, err := k.cleanup(ctx, r)
	if err != nil {
		return err
	}
	for _, i := range items {
		if i.GetResult() == pb.CleanupResult_CLEANUP_RESULT_REMOVED {
			return failf("Cleanup of an instance that has nothing removed %s", i.GetObject())
		}
	}
	if err := k.stays(ctx, "the Cleanup of another instance"); err != nil {
		return err
	}
	return k.seesIfCan(ctx, "the Cleanup of another instance", expect(map[int]int{1: 2, 2: 2, 3: 2}))
}

func cleanupOwned(ctx context.Context, k *kit) error {
	if err := k.open(ctx, several(3)); err != nil {
		return err
	}
	items, err := k.cleanup(ctx, k.owned())
	if err != nil {
		return err
	}
	k.note("%d objects", len(items))
	if err := k.cleaned(ctx); err != nil {
		return err
	}
	r, err := k.apply(ctx, k.begin(0), several(3))
	if err != nil {
		return fmt.Errorf("the snapshot after Cleanup: %w", err)
	}
	for n := 1; n <= 3; n++ {
		if err := isGood(r, n); err != nil {
			return err
		}
	}
	return k.seesIfCan(ctx, "the next snapshot", expect(map[int]int{1: 2, 2: 2, 3: 2}))
}

// cleaned demands that nothing is left, and that State does not claim it.
func (k *kit) cleaned(ctx context.Context) error {
	st, err := k.state(ctx)
	if err != nil {
		return err
	}
	if st.GetGeneration() != 0 {
		return fmt.Errorf("after Cleanup State says %s", describe(st))
	}
	left, err := k.leftovers(ctx)
	if err != nil {
		return err
	}
	if len(left) > 0 {
		return fmt.Errorf("after Cleanup %q are left", left)
	}
	return k.seesIfCan(ctx, "Cleanup", programmed{})
}

func cleanupIdempotent(ctx context.Context, k *kit) error {
	if err := k.open(ctx, several(2)); err != nil {
		return err
	}
	for n := range 3 {
		items, err := k.cleanup(ctx, k.owned())
		if err != nil {
			return err
		}
		for _, i := range items {
			if n > 0 && i.GetResult() == pb.CleanupResult_CLEANUP_RESULT_REMOVED {
				return failf("Cleanup number %d removed %s once more", n+1, i.GetObject())
			}
		}
	}
	return k.cleaned(ctx)
}

func cleanupLinger(ctx context.Context, k *kit) error {
	if err := k.open(ctx, several(3)); err != nil {
		return err
	}
	r := k.owned()
	r.Linger = true
	items, err := k.cleanup(ctx, r)
	if err != nil {
		return err
	}
	pending := 0
	for _, i := range items {
		if i.GetResult() != pb.CleanupResult_CLEANUP_RESULT_PENDING {
			continue
		}
		if pending++; i.GetMessage() == "" {
			return failf("Cleanup leaves %s for now, and does not say what it waits for", i.GetObject())
		}
	}
	k.note("%d objects stay for connections", pending)
	if err := k.seesIfCan(ctx, "Cleanup with linger", programmed{}); err != nil {
		return err
	}
	if items, err = k.cleanup(ctx, k.owned()); err != nil {
		return err
	}
	for _, i := range items {
		if i.GetResult() == pb.CleanupResult_CLEANUP_RESULT_PENDING {
			return failf("Cleanup without linger leaves %s", i.GetObject())
		}
	}
	return k.cleaned(ctx)
}

func cleanupUnknown(ctx context.Context, k *kit) error {
	if err := k.open(ctx, several(2)); err != nil {
		return err
	}
	for _, scope := range []pb.CleanupScope{pb.CleanupScope_CLEANUP_SCOPE_UNSPECIFIED, 99} {
		r := k.owned()
		r.Scope = scope
		_, err := k.client().Cleanup(ctx, r)
		if err := refused(fmt.Sprintf("Cleanup of scope %v", scope), err, codes.InvalidArgument); err != nil {
			return err
		}
	}
	_, err := k.client().Shutdown(ctx, &pb.ShutdownRequest{Policy: 99})
	if err := refused("Shutdown of policy 99", err, codes.InvalidArgument); err != nil {
		return err
	}
	return k.seesIfCan(ctx, "it", expect(map[int]int{1: 2, 2: 2}))
}

func cleanupUnconfigured(ctx context.Context, k *kit) error {
	if _, err := k.cleanup(ctx, k.owned()); err != nil {
		return fmt.Errorf("in a fresh process: %w", err)
	}
	if err := k.open(ctx, several(3)); err != nil {
		return err
	}
	if err := k.crash(ctx); err != nil {
		return err
	}
	items, err := k.cleanup(ctx, k.owned())
	if err != nil {
		return fmt.Errorf("after a crash: %w", err)
	}
	k.note("after a crash it found %d objects", len(items))
	if err := k.configure(ctx); err != nil {
		return err
	}
	return k.cleaned(ctx)
}

// cleanupAllKnown removes only what is ours: a host may have other instances.
func cleanupAllKnown(ctx context.Context, k *kit) error {
	all := &pb.CleanupRequest{Scope: pb.CleanupScope_CLEANUP_SCOPE_ALL_KNOWN, DryRun: true}
	if _, err := k.cleanup(ctx, all); err != nil {
		return fmt.Errorf("in a fresh process: %w", err)
	}
	if err := k.open(ctx, several(3)); err != nil {
		return err
	}
	if err := k.crash(ctx); err != nil {
		return err
	}
	own, err := k.leftovers(ctx)
	if err != nil {
		return fmt.Errorf("after a crash: %w", err)
	}
	items, err := k.cleanup(ctx, all)
	if err != nil {
		return fmt.Errorf("after a crash: %w", err)
	}
	foreign := 0
	for _, i := range items {
		if i.GetResult() != pb.CleanupResult_CLEANUP_RESULT_WOULD_REMOVE {
			return failf("a dry run of Cleanup of all instances answered %s with %v", i.GetObject(), i.GetResult())
		}
		if at := slices.Index(own, i.GetObject()); at >= 0 {
			own = slices.Delete(own, at, at+1)
		}
		if i.GetInstanceId() != k.instance() {
			foreign++
		}
	}
	if len(own) > 0 {
		return fmt.Errorf("after a crash Cleanup of all instances misses %q, which Cleanup of the instance finds", own)
	}
	k.note("after a crash it found %d objects", len(items))
	if foreign > 0 {
		k.note("%d of them do not say that they are of this run, and nothing was removed", foreign)
		return nil
	}
	all.DryRun = false
	if _, err := k.cleanup(ctx, all); err != nil {
		return err
	}
	if err := k.configure(ctx); err != nil {
		return err
	}
	return k.cleaned(ctx)
}

func shutdownKeep(ctx context.Context, k *kit) error {
	if err := k.open(ctx, several(2)); err != nil {
		return err
	}
	if _, err := k.client().Shutdown(ctx, &pb.ShutdownRequest{Policy: pb.ShutdownPolicy_SHUTDOWN_POLICY_KEEP}); err != nil {
		return failf("Shutdown(KEEP): %w", err)
	}
	if !k.peer.proc.stop() {
		return fmt.Errorf("after Shutdown and SIGTERM the process runs after %v", stopTime)
	}
	if err := k.connect(ctx); err != nil {
		return errors.Join(errors.New("started again after Shutdown"), err)
	}
	if err := k.configure(ctx); err != nil {
		return err
	}
	return k.truth(ctx, map[uint64]programmed{k.gen: expect(map[int]int{1: 2, 2: 2})})
}

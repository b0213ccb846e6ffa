package conformance

import (
	"context"
	"fmt"

	"google.golang.org/grpc/codes"

	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
)

func baseMismatch(ctx context.Context, k *kit) error {
	if err := k.open(ctx, several(1)); err != nil {
		return err
	}
	k.gen += 5
	b := k.begin(k.gen - 3)
	_, err := k.reconcile(ctx, b, whole(2, 1))
	if err := refused(fmt.Sprintf("a change to generation %d while %d is applied", b.GetBase(), k.last.GetGeneration()), err, codes.FailedPrecondition); err != nil {
		return err
	}
	if err := k.stays(ctx, "a base mismatch"); err != nil {
		return err
	}
	// The base fits, but the change speaks of what is not in it.
	_, err = k.reconcile(ctx, k.begin(k.last.GetGeneration()), &pb.Change{RemovedServices: []*pb.ServiceRemoval{{Service: 77}}})
	if err := refused("the removal of a service that the base lacks", err, codes.FailedPrecondition); err != nil {
		return err
	}
	if _, err := k.apply(ctx, k.begin(0), several(2)); err != nil {
		return fmt.Errorf("a snapshot after a base mismatch: %w", err)
	}
	return k.seesIfCan(ctx, "the snapshot", expect(map[int]int{1: 2, 2: 2}))
}

func digestMismatch(ctx context.Context, k *kit) error {
	if err := k.open(ctx, several(1)); err != nil {
		return err
	}
	b := k.unchanged()
	b.Digest = []byte("other")
	_, err := k.reconcile(ctx, b)
	if err := refused("the applied generation with another digest", err, codes.FailedPrecondition); err != nil {
		return err
	}
	return k.stays(ctx, "another digest")
}

func completenessIsKept(ctx context.Context, k *kit) error {
	if err := k.open(ctx, several(1)); err != nil {
		return err
	}
	b := k.unchanged()
	b.Completeness = pb.Completeness_COMPLETENESS_INCOMPLETE
	_, err := k.reconcile(ctx, b)
	if err := refused("the applied generation, now incomplete,", err, codes.InvalidArgument); err != nil {
		return err
	}
	for _, c := range []pb.Completeness{pb.Completeness_COMPLETENESS_UNSPECIFIED, 99} {
		b := k.begin(0)
		b.Completeness = c
		_, err := k.reconcile(ctx, b, several(2))
		if err := refused(fmt.Sprintf("completeness %v", c), err, codes.InvalidArgument); err != nil {
			return err
		}
	}
	return k.stays(ctx, "them")
}

func gap(ctx context.Context, k *kit) error {
	if err := k.open(ctx, several(1)); err != nil {
		return err
	}
	base := k.gen
	k.gen += 1 << 40
	if _, err := k.apply(ctx, k.begin(base), whole(2, 1)); err != nil {
		return err
	}
	return k.stays(ctx, "a step of 2^40 generations")
}

func oldGeneration(ctx context.Context, k *kit) error {
	if err := k.open(ctx, several(1)); err != nil {
		return err
	}
	old := k.begin(0)
	if _, err := k.apply(ctx, k.begin(0), several(3)); err != nil {
		return err
	}
	_, err := k.reconcile(ctx, old, several(2))
	if err := refused(fmt.Sprintf("generation %d while %d is applied", old.GetGeneration(), k.gen), err, codes.FailedPrecondition); err != nil {
		return err
	}
	if err := k.stays(ctx, "an old generation"); err != nil {
		return err
	}
	return k.seesIfCan(ctx, "an old generation", expect(map[int]int{1: 2, 2: 2, 3: 2}))
}

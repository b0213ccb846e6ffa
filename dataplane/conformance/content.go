package conformance

import (
	"context"
	"fmt"

	"google.golang.org/grpc/codes"

	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
)

// contentChecks are about how changes add up.
func contentChecks() []Check {
	return []Check{
		{
			ID: "content.order", Demand: "The order of services, of endpoints and of chunks does not matter, as long as a service comes before its endpoints.",
			Remedy: "collect by handle, and act at Commit", run: order,
		},
		{
			ID: "content.duplicate", Demand: "Of two versions of a service or endpoint in one generation the last counts.",
			Remedy: "collect into maps by handle and endpoint id", run: duplicates,
		},
		{
			ID: "content.keeps-endpoints", Demand: "An upsert replaces the definition of a service and keeps its endpoints.",
			Remedy: "store definition and endpoints apart", run: keepsEndpoints,
		},
		{
			ID: "content.state-only", Demand: "A known endpoint that comes without an address gets the new state and keeps all else.",
			Remedy: "an empty address in an upsert of a known endpoint means: as before", run: stateOnly,
		},
		{
			ID: "content.incomplete-adds", Demand: "An incomplete snapshot only adds: what it lacks stays.",
			Remedy: "remove what a snapshot lacks only if its completeness is EXCHANGED, ALONE or TIMEOUT", run: incompleteAdds,
		},
		{
			ID: "content.incomplete-removal", Demand: "What a delta removes by name is gone, also while the host is incomplete.",
			Remedy: "keep apart what a snapshot lacks and what a removal names", run: incompleteRemoval,
		},
		{
			ID: "content.delta-completes", Demand: "The first complete generation, a delta too, ends what was kept and not stated since.",
			Remedy: "remember which services and endpoints the host has stated in this session", run: deltaCompletes,
		},
		{
			ID: "content.complete-purges", Demand: "A complete snapshot is the whole: what it lacks is removed.",
			Remedy: "compare what is programmed with the snapshot, and remove the rest", run: completePurges,
		},
		{
			ID: "content.empty-needs-flag", Demand: "A whole snapshot without services is refused with INVALID_ARGUMENT unless allow_empty is set.",
			Remedy: "check for it at Commit, before removing anything", run: emptyNeedsFlag,
		},
	}
}

func order(ctx context.Context, k *kit) error {
	if err := k.open(ctx); err != nil {
		return err
	}
	want := expect(map[int]int{1: 3, 2: 2, 3: 1})
	for n, changes := range [][]*pb.Change{
		{{Services: []*pb.Service{service(3), service(1), service(2)}}, {Endpoints: []*pb.EndpointGroup{endpoints(2, 2, 1), endpoints(1, 3), endpoints(3, 1), endpoints(1, 1, 2)}}},
		{{Services: []*pb.Service{service(2)}, Endpoints: []*pb.EndpointGroup{endpoints(2, 1)}}, {}, whole(3, 1), {Endpoints: []*pb.EndpointGroup{endpoints(2, 2)}}, whole(1, 3)},
	} {
		r, err := k.apply(ctx, k.begin(0), changes...)
		if err != nil {
			return err
		}
		for svc := 1; svc <= 3; svc++ {
			if err := isGood(r, svc); err != nil {
				return fmt.Errorf("in order %d, %w", n+1, err)
			}
		}
		if n > 0 && r.GetOperations() != 0 {
			return fmt.Errorf("the same content in another order made %d operations", r.GetOperations())
		}
		if err := k.seesIfCan(ctx, fmt.Sprintf("order %d", n+1), want); err != nil {
			return err
		}
	}
	_, err := k.reconcile(ctx, k.begin(0), &pb.Change{Endpoints: []*pb.EndpointGroup{endpoints(9, 1)}}, whole(9, 1))
	return refused("endpoints before their service", err, codes.InvalidArgument)
}

func duplicates(ctx context.Context, k *kit) error {
	if err := k.open(ctx); err != nil {
		return err
	}
	other := service(1, func(s *pb.Service) { s.Frontends[0].Address = vip(5) })
	twice := &pb.Change{Services: []*pb.Service{other, service(1)}, Endpoints: []*pb.EndpointGroup{endpoints(1, 1, 1, 2), endpoints(1, 2)}}
	heir := &pb.Change{Services: []*pb.Service{service(5)}} // takes the frontend that service 1 had in its first version
	r, err := k.apply(ctx, k.begin(0), twice, twice, heir)
	if err != nil {
		return err
	}
	for _, n := range []int{1, 5} {
		if err := isGood(r, n); err != nil {
			return err
		}
	}
	return k.seesIfCan(ctx, "duplicates", expect(map[int]int{1: 2, 5: 0}))
}

func keepsEndpoints(ctx context.Context, k *kit) error {
	if err := k.open(ctx, several(2)); err != nil {
		return err
	}
	moved := service(1, func(s *pb.Service) { s.Frontends[0].Address = vip(9) })
	if _, err := k.apply(ctx, k.begin(k.gen), &pb.Change{Services: []*pb.Service{moved}}); err != nil {
		return err
	}
	return k.sees(ctx, "an upsert of a definition", expect(map[int]int{1: 2, 2: 2}))
}

func stateOnly(ctx context.Context, k *kit) error {
	if err := k.open(ctx, several(2)); err != nil {
		return err
	}
	suspect := pb.EndpointState_ENDPOINT_STATE_SUSPECT
	c := &pb.Change{Endpoints: []*pb.EndpointGroup{{Service: 1, Endpoints: []*pb.Endpoint{{Id: 2, State: suspect}}}}}
	r, err := k.apply(ctx, k.begin(k.gen), c)
	if err != nil {
		return err
	}
	if err := isGood(r, 1); err != nil {
		return err
	}
	// Said in full, it is the same.
	full := several(2)
	full.Endpoints[0].Endpoints[1].State = suspect
	if r, err = k.apply(ctx, k.begin(0), full); err != nil {
		return err
	}
	if r.GetOperations() != 0 {
		return fmt.Errorf("a snapshot that says the same in full made %d operations", r.GetOperations())
	}
	// And back: whether a suspect is in the system or not, its address is.
	ready := &pb.Change{Endpoints: []*pb.EndpointGroup{{Service: 1, Endpoints: []*pb.Endpoint{{Id: 2}}}}}
	if _, err = k.apply(ctx, k.begin(k.gen), ready); err != nil {
		return err
	}
	if err := k.seesIfCan(ctx, "a suspicion that was withdrawn", expect(map[int]int{1: 2, 2: 2})); err != nil {
		return err
	}
	// An endpoint that is not known needs its address.
	c = &pb.Change{Endpoints: []*pb.EndpointGroup{{Service: 2, Endpoints: []*pb.Endpoint{{Id: 9, State: suspect}}}}}
	if r, err = k.apply(ctx, k.begin(k.gen), c); err != nil {
		return err
	}
	return isRefused(r, 2, "a new endpoint without an address", pb.Status_STATUS_REJECTED)
}

// restarted applies what is there to be kept, and opens an incomplete session.
func (k *kit) restarted(ctx context.Context, said ...*pb.Change) error {
	if err := k.open(ctx, several(3)); err != nil {
		return err
	}
	k.renew(k.session.GetAgentId()) // as after a restart of the agent
	b := k.begin(0)
	b.Completeness = pb.Completeness_COMPLETENESS_INCOMPLETE
	_, err := k.apply(ctx, b, said...)
	return err
}

func incompleteRemoval(ctx context.Context, k *kit) error {
	if err := k.restarted(ctx, several(2)); err != nil {
		return err
	}
	b := k.begin(k.gen)
	b.Completeness = pb.Completeness_COMPLETENESS_INCOMPLETE
	c := &pb.Change{
		RemovedServices:  []*pb.ServiceRemoval{{Service: 1}},
		RemovedEndpoints: []*pb.EndpointRemoval{{Service: 2, Id: 1, Reason: pb.RemovalReason_REMOVAL_REASON_DEAD}},
	}
	if _, err := k.apply(ctx, b, c); err != nil {
		return err
	}
	return k.sees(ctx, "removals while incomplete", expect(map[int]int{2: 1, 3: 2}))
}

func deltaCompletes(ctx context.Context, k *kit) error {
	if err := k.restarted(ctx, whole(2, 1)); err != nil {
		return err
	}
	if err := k.sees(ctx, "an incomplete snapshot", expect(map[int]int{1: 2, 2: 2, 3: 2})); err != nil {
		return err
	}
	if _, err := k.apply(ctx, k.begin(k.gen), whole(4, 1)); err != nil {
		return err
	}
	return k.sees(ctx, "a complete delta", expect(map[int]int{2: 1, 4: 1}))
}

func incompleteAdds(ctx context.Context, k *kit) error {
	if err := k.open(ctx, several(2)); err != nil {
		return err
	}
	k.renew(k.session.GetAgentId()) // as after a restart of the agent
	b := k.begin(0)
	b.Completeness = pb.Completeness_COMPLETENESS_INCOMPLETE
	only := &pb.Change{Services: []*pb.Service{service(2), service(3)}, Endpoints: []*pb.EndpointGroup{endpoints(2, 3), endpoints(3, 1)}}
	if _, err := k.apply(ctx, b, only); err != nil {
		return err
	}
	if err := k.seesIfCan(ctx, "an incomplete snapshot", expect(map[int]int{1: 2, 2: 3, 3: 1})); err != nil {
		return err
	}
	st, err := k.state(ctx)
	if err != nil {
		return err
	}
	if st.GetComplete() {
		return failf("State says that an incomplete snapshot was complete")
	}
	// Nobody needs to see the system for this: what stays still has its frontend.
	b = k.begin(k.gen)
	b.Completeness = pb.Completeness_COMPLETENESS_INCOMPLETE
	r, err := k.apply(ctx, b, &pb.Change{Services: []*pb.Service{service(4, func(s *pb.Service) { s.Frontends[0].Address = vip(1) })}})
	if err != nil {
		return err
	}
	return isRefused(r, 4, "a newcomer with the frontend of a service that an incomplete snapshot lacked", pb.Status_STATUS_REJECTED)
}

func completePurges(ctx context.Context, k *kit) error {
	if err := k.open(ctx, several(3)); err != nil {
		return err
	}
	k.renew(k.session.GetAgentId())
	b := k.begin(0)
	b.Completeness = pb.Completeness_COMPLETENESS_INCOMPLETE
	if _, err := k.apply(ctx, b, whole(3, 1)); err != nil {
		return err
	}
	heir := &pb.Change{Services: []*pb.Service{service(4, func(s *pb.Service) { s.Frontends[0].Address = vip(1) })}}
	r, err := k.apply(ctx, k.begin(0), whole(3, 1), heir)
	if err != nil {
		return err
	}
	if err := isGood(r, 4); err != nil {
		return fmt.Errorf("with the frontend of a service that a complete snapshot lacks, %w", err)
	}
	return k.seesIfCan(ctx, "a complete snapshot", expect(map[int]int{3: 1, 4: 0}))
}

func emptyNeedsFlag(ctx context.Context, k *kit) error {
	if err := k.open(ctx, several(2)); err != nil {
		return err
	}
	b := k.begin(0)
	b.AllowEmpty = false
	_, err := k.reconcile(ctx, b)
	if err := refused("an empty snapshot without allow_empty", err, codes.InvalidArgument); err != nil {
		return err
	}
	if err := k.stays(ctx, "it"); err != nil {
		return err
	}
	if err := k.seesIfCan(ctx, "it", expect(map[int]int{1: 2, 2: 2})); err != nil {
		return err
	}
	if _, err := k.apply(ctx, k.begin(0)); err != nil {
		return fmt.Errorf("an empty snapshot with allow_empty: %w", err)
	}
	return k.seesIfCan(ctx, "an empty snapshot with allow_empty", programmed{})
}

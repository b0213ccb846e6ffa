package conformance

import (
	"context"
	"fmt"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
	"github.com/fairlead/fairlead/dataplane/transfer"
)

func codeOf(err error) codes.Code { return status.Code(err) }

// refusalChecks are about services that cannot be programmed.
func refusalChecks() []Check {
	return []Check{
		{
			ID: "service.bad-alone", Demand: "A service that cannot be programmed is named with a status and a reason, and blocks no other.",
			Remedy: "go on with the others, and put the bad one into statuses instead of failing the call", run: badAlone,
		},
		{
			ID: "service.keeps-old", Demand: "A service is all or old: one that becomes bad keeps what it had, until it is good again.",
			Remedy: "check all of a service before changing any of it", run: badKeepsOld,
		},
		{
			ID: "service.duplicate-frontend", Demand: "Of two services with one frontend one is programmed and the other is REJECTED.",
			Remedy: "keep a table of who has which frontend; reason duplicate-frontend", run: duplicateFrontend,
		},
		{
			ID: "service.older-wins", Demand: "Of two services that are new to one frontend the one with the smaller since_unix_ms has it.",
			Remedy: "order services by since_unix_ms, then by key, where nobody has the frontend yet", run: olderWins,
		},
		{
			ID: "service.swap", Demand: "Services may swap frontends in one generation.",
			Remedy: "release frontends before claiming them", run: swap,
		},
		{
			ID: "service.loop", Demand: "A service with an endpoint that is a frontend is REJECTED: connections would go in a circle.",
			Remedy: "compare endpoint addresses with all frontends; reason loop", run: loop,
		},
		{
			ID: "service.unknown-enum", Demand: "An unknown value of an enum means not supported: the service is UNSUPPORTED, the others are programmed.",
			Remedy: "treat every value that you do not know as a feature that you lack, not as the default", run: unknownEnum,
		},
		{
			ID: "service.malformed", Demand: "A malformed address makes its service REJECTED, never the call fail or the process end.",
			Remedy: "an address is 4 or 16 bytes of IP and 2 of port; refuse all else for the service", run: malformed,
		},
		{
			ID: "service.families", Demand: "IPv4, IPv6 and UDP are programmed or answered as UNSUPPORTED, never dropped in silence.",
			Remedy: "answer what you lack with STATUS_UNSUPPORTED", run: families,
		},
	}
}

// statusOf is how service n fared; nil: PROGRAMMED, nothing to say.
func statusOf(r *pb.ReconcileResponse, n int) *pb.ServiceStatus {
	for _, st := range r.GetStatuses() {
		if transfer.DecodeKey(st.GetService()) == key(n) {
			return st
		}
	}
	return nil
}

func statusText(st *pb.ServiceStatus) string {
	if st == nil {
		return "PROGRAMMED"
	}
	return fmt.Sprintf("%v, reason %q: %s", st.GetStatus(), st.GetReason(), st.GetMessage())
}

// isRefused demands that service n has one of these statuses, with a reason.
func isRefused(r *pb.ReconcileResponse, n int, what string, want ...pb.Status) error {
	st := statusOf(r, n)
	for _, w := range want {
		if st.GetStatus() == w {
			if st.GetReason() == "" || st.GetMessage() == "" {
				return fmt.Errorf("%s is %v without a reason and a message", what, w)
			}
			return nil
		}
	}
	return fmt.Errorf("%s is %s, want %v", what, statusText(st), want)
}

// isGood demands that service n is PROGRAMMED or PARTIAL.
func isGood(r *pb.ReconcileResponse, n int) error {
	if st := statusOf(r, n); st != nil && st.GetStatus() != pb.Status_STATUS_PROGRAMMED && st.GetStatus() != pb.Status_STATUS_PARTIAL {
		return fmt.Errorf("the good service %s is %s", key(n), statusText(st))
	}
	return nil
}

// unfit applies a snapshot of the good services 1 and 3 and what is in changes,
// in which service 2 is bad, and demands that 2 alone is refused.
func (k *kit) unfit(ctx context.Context, what string, bad *pb.Change, want ...pb.Status) (*pb.ReconcileResponse, error) {
	r, err := k.apply(ctx, k.begin(0), whole(1, 2), bad, whole(3, 2))
	if err != nil {
		return nil, fmt.Errorf("a snapshot with %s: %w", what, err)
	}
	if err := isRefused(r, 2, what, want...); err != nil {
		return nil, err
	}
	for _, n := range []int{1, 3} {
		if err := isGood(r, n); err != nil {
			return nil, fmt.Errorf("beside %s, %w", what, err)
		}
	}
	return r, k.seesIfCan(ctx, what, expect(map[int]int{1: 2, 3: 2}))
}

func badAlone(ctx context.Context, k *kit) error {
	if err := k.open(ctx); err != nil {
		return err
	}
	bad := &pb.Change{Services: []*pb.Service{service(2, func(s *pb.Service) { s.Frontends[0].Address = []byte{1, 2, 3} })}}
	if _, err := k.unfit(ctx, "a service with a frontend of 3 bytes", bad, pb.Status_STATUS_REJECTED, pb.Status_STATUS_UNSUPPORTED); err != nil {
		return err
	}
	// It stays named while it stays bad.
	r, err := k.apply(ctx, k.begin(k.gen), whole(4, 1))
	if err != nil {
		return err
	}
	return isRefused(r, 2, "a service that is still bad", pb.Status_STATUS_REJECTED, pb.Status_STATUS_UNSUPPORTED)
}

func badKeepsOld(ctx context.Context, k *kit) error {
	if err := k.open(ctx, several(2)); err != nil {
		return err
	}
	bad := &pb.Change{Endpoints: []*pb.EndpointGroup{{Service: 2, Endpoints: []*pb.Endpoint{{Id: 9, Address: []byte{1}}}}}}
	r, err := k.apply(ctx, k.begin(k.gen), bad, whole(1, 3))
	if err != nil {
		return err
	}
	if err := isRefused(r, 2, "a service with an endpoint of 1 byte", pb.Status_STATUS_REJECTED, pb.Status_STATUS_UNSUPPORTED); err != nil {
		return err
	}
	if err := k.seesIfCan(ctx, "it", expect(map[int]int{1: 3, 2: 2})); err != nil {
		return err
	}
	gone := &pb.Change{RemovedEndpoints: []*pb.EndpointRemoval{{Service: 2, Id: 9, Reason: pb.RemovalReason_REMOVAL_REASON_DEREGISTERED}}}
	if r, err = k.apply(ctx, k.begin(k.gen), gone); err != nil {
		return err
	}
	if err := isGood(r, 2); err != nil {
		return fmt.Errorf("after the bad endpoint is gone, %w", err)
	}
	return k.seesIfCan(ctx, "the bad endpoint is gone", expect(map[int]int{1: 3, 2: 2}))
}

func duplicateFrontend(ctx context.Context, k *kit) error {
	if err := k.open(ctx, whole(1, 2)); err != nil {
		return err
	}
	thief := &pb.Change{Services: []*pb.Service{service(2, func(s *pb.Service) { s.Frontends[0].Address = vip(1) })}}
	r, err := k.apply(ctx, k.begin(k.gen), thief, whole(3, 2))
	if err != nil {
		return err
	}
	if err := isRefused(r, 2, "a newcomer with the frontend of another service", pb.Status_STATUS_REJECTED); err != nil {
		return err
	}
	if err := isGood(r, 1); err != nil {
		return err
	}
	if err := k.seesIfCan(ctx, "a duplicate frontend", expect(map[int]int{1: 2, 3: 2})); err != nil {
		return err
	}
	// With the other gone, the frontend is free.
	if r, err = k.apply(ctx, k.begin(k.gen), &pb.Change{RemovedServices: []*pb.ServiceRemoval{{Service: 1}}}); err != nil {
		return err
	}
	if err := isGood(r, 2); err != nil {
		return fmt.Errorf("after the other service is gone, %w", err)
	}
	return k.seesIfCan(ctx, "the other is gone", expect(map[int]int{2: 0, 3: 2}))
}

func olderWins(ctx context.Context, k *kit) error {
	if err := k.open(ctx); err != nil {
		return err
	}
	at := func(n int, since int64) *pb.Change {
		s := service(n, func(s *pb.Service) { s.Frontends[0].Address, s.SinceUnixMs = vip(1), since })
		return &pb.Change{Services: []*pb.Service{s}, Endpoints: []*pb.EndpointGroup{endpoints(n, 1)}}
	}
	// The one whose key comes later is older.
	young, old := at(1, 1_700_000_000_001), at(2, 1_700_000_000_000)
	for _, order := range [][]*pb.Change{{young, old}, {old, young}} {
		if _, err := k.apply(ctx, k.begin(0)); err != nil {
			return fmt.Errorf("an empty snapshot: %w", err)
		}
		r, err := k.apply(ctx, k.begin(0), order...)
		if err != nil {
			return err
		}
		if err := isGood(r, 2); err != nil {
			return fmt.Errorf("of two with one frontend, the first registered: %w", err)
		}
		if err := isRefused(r, 1, "a service whose frontend one has that was registered before", pb.Status_STATUS_REJECTED); err != nil {
			return err
		}
	}
	// While nothing restarts, who has it keeps it.
	r, err := k.apply(ctx, k.begin(k.gen), at(3, 1))
	if err != nil {
		return err
	}
	if err := isRefused(r, 3, "a newcomer with the frontend of another service", pb.Status_STATUS_REJECTED); err != nil {
		return err
	}
	if r, err = k.apply(ctx, k.begin(k.gen), &pb.Change{RemovedServices: []*pb.ServiceRemoval{{Service: 2}}}); err != nil {
		return err
	}
	if err := isGood(r, 3); err != nil {
		return fmt.Errorf("of two that wait for a frontend, the first registered: %w", err)
	}
	return k.seesIfCan(ctx, "the frontend is free", expect(map[int]int{3: 1}))
}

func swap(ctx context.Context, k *kit) error {
	if err := k.open(ctx, several(2)); err != nil {
		return err
	}
	at := func(n, frontend int) *pb.Service {
		return service(n, func(s *pb.Service) { s.Frontends[0].Address = vip(frontend) })
	}
	r, err := k.apply(ctx, k.begin(k.gen), &pb.Change{Services: []*pb.Service{at(1, 2), at(2, 1)}})
	if err != nil {
		return err
	}
	for n := 1; n <= 2; n++ {
		if err := isGood(r, n); err != nil {
			return fmt.Errorf("after a swap %w", err)
		}
	}
	return k.seesIfCan(ctx, "a swap", expect(map[int]int{1: 2, 2: 2}))
}

func loop(ctx context.Context, k *kit) error {
	if err := k.open(ctx); err != nil {
		return err
	}
	for what, at := range inOrder(map[string][]byte{
		"a service whose endpoint is its own frontend":       vip(2),
		"a service whose endpoint is the frontend of others": vip(1),
	}) {
		c := &pb.Change{Services: []*pb.Service{service(2)}, Endpoints: []*pb.EndpointGroup{{Service: 2, Endpoints: []*pb.Endpoint{{Id: 1, Address: at}}}}}
		if _, err := k.unfit(ctx, what, c, pb.Status_STATUS_REJECTED); err != nil {
			return err
		}
	}
	return nil
}

func unknownEnum(ctx context.Context, k *kit) error {
	if err := k.open(ctx); err != nil {
		return err
	}
	for what, edit := range inOrder(map[string]func(*pb.Service){
		"a service of protocol 99":      func(s *pb.Service) { s.Frontends[0].Protocol = 99 },
		"a service of frontend kind 99": func(s *pb.Service) { s.Frontends[0].Kind = 99 },
		"a service of on_empty 99":      func(s *pb.Service) { s.Frontends[0].OnEmpty = 99 },
		"a service of balance 99":       func(s *pb.Service) { s.Balance = 99 },
		"a service of affinity 99":      func(s *pb.Service) { s.Affinity = &pb.Affinity{Kind: 99} },
	}) {
		c := &pb.Change{Services: []*pb.Service{service(2, edit)}, Endpoints: []*pb.EndpointGroup{endpoints(2, 1)}}
		if _, err := k.unfit(ctx, what, c, pb.Status_STATUS_UNSUPPORTED); err != nil {
			return err
		}
	}
	return nil
}

func malformed(ctx context.Context, k *kit) error {
	if err := k.open(ctx); err != nil {
		return err
	}
	for what, at := range inOrder(map[string][]byte{
		"no address": nil, "an address of 4 bytes": vip(2)[:4], "an address of 7 bytes": append(vip(2), 0), "an address of 19 bytes": make([]byte, 19),
		"port 0": address(198, 18, 2, 0), "0.0.0.0": address(0, 0, 0, 80),
	}) {
		front := &pb.Change{Services: []*pb.Service{service(2, func(s *pb.Service) { s.Frontends[0].Address = at })}}
		if _, err := k.unfit(ctx, what+" for a frontend", front, pb.Status_STATUS_REJECTED, pb.Status_STATUS_UNSUPPORTED); err != nil {
			return err
		}
		back := &pb.Change{Services: []*pb.Service{service(2)}, Endpoints: []*pb.EndpointGroup{{Service: 2, Endpoints: []*pb.Endpoint{{Id: 1, Address: at}}}}}
		if _, err := k.unfit(ctx, what+" for an endpoint", back, pb.Status_STATUS_REJECTED, pb.Status_STATUS_UNSUPPORTED); err != nil {
			return err
		}
	}
	_, err := k.reconcile(ctx, k.begin(0), &pb.Change{Services: []*pb.Service{service(0)}})
	return refused("a service of handle 0", err, codes.InvalidArgument)
}

func families(ctx context.Context, k *kit) error {
	if err := k.open(ctx); err != nil {
		return err
	}
	v6 := func(s *pb.Service) { s.Frontends[0].Address = address6(2, 80) }
	udp := func(s *pb.Service) { s.Frontends[0].Protocol = pb.Protocol_PROTOCOL_UDP }
	intercept := func(s *pb.Service) { s.Frontends[0].Kind = pb.FrontendKind_FRONTEND_KIND_INTERCEPT }
	c := &pb.Change{
		Services: []*pb.Service{service(1), service(2, v6), service(3, udp), service(4, intercept)},
		Endpoints: []*pb.EndpointGroup{
			endpoints(1, 1), {Service: 2, Endpoints: []*pb.Endpoint{{Id: 1, Address: address6(1<<16, 8080)}}}, endpoints(3, 1), endpoints(4, 1),
		},
	}
	r, err := k.apply(ctx, k.begin(0), c)
	if err != nil {
		return err
	}
	want := make(programmed)
	for n, what := range []string{1: "IPv4", 2: "IPv6", 3: "UDP", 4: "intercept"} {
		switch st := statusOf(r, n); {
		case n == 0:
		case isGood(r, n) == nil:
			want[key(n)] = 1
		case st.GetStatus() == pb.Status_STATUS_UNSUPPORTED && st.GetReason() != "":
			k.note("%s is %s", what, statusText(st))
		default:
			return fmt.Errorf("%s is %s", what, statusText(st))
		}
	}
	return k.seesIfCan(ctx, "it", want)
}

func errorsCarryReason(ctx context.Context, k *kit) error {
	if err := k.open(ctx, several(1)); err != nil {
		return err
	}
	old := &pb.Session{AgentId: k.session.GetAgentId(), BootEpoch: k.session.GetBootEpoch() - 1}
	past := k.begin(0)
	past.Session = old
	_, invalid := k.steps(ctx, commitStep())
	_, mismatch := k.reconcile(ctx, k.begin(k.gen+7))
	_, session := k.reconcile(ctx, past)
	for _, c := range []struct {
		what, reason string
		err          error
	}{{"Commit without Begin", "INVALID", invalid}, {"a base mismatch", "BASE_MISMATCH", mismatch}, {"an old session", "OLD_SESSION", session}} {
		got := "none"
		for _, d := range status.Convert(c.err).Details() {
			if info, ok := d.(*errdetails.ErrorInfo); ok && info.GetDomain() == transfer.ErrorDomain {
				got = info.GetReason()
			}
		}
		if got != c.reason {
			return fmt.Errorf("%s was answered with %v, reason %s; want reason %s", c.what, codeOf(c.err), got, c.reason)
		}
	}
	k.note("three of three")
	return nil
}

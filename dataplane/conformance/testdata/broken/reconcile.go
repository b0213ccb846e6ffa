package main

import (
	"context"
	"fmt"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
)

type stream = grpc.ClientStreamingServer[pb.ReconcileRequest, pb.ReconcileResponse]

// meddler changes what goes in and out of Reconcile. It lives as long as the
// process.
type meddler struct {
	begin  func(*pb.Begin)
	change func(*pb.Change) error
	answer func(*pb.ReconcileResponse)
	refuse func(*pb.Begin) error
	commit bool // when the stream breaks off, take that for Commit
	begins bool // without Begin, make one up
	last   *pb.Begin
}

// tapped puts a meddler between the stream and the service.
func tapped(meddle func(*meddler)) func(pb.DataPlaneProviderServer) pb.DataPlaneProviderServer {
	return func(inner pb.DataPlaneProviderServer) pb.DataPlaneProviderServer {
		m := &meddler{
			begin: func(*pb.Begin) {}, refuse: func(*pb.Begin) error { return nil }, change: func(*pb.Change) error { return nil }, answer: func(*pb.ReconcileResponse) {}, last: &pb.Begin{},
		}
		meddle(m)
		return &tap{inner, m}
	}
}

type tap struct {
	pb.DataPlaneProviderServer
	*meddler
}

func (t *tap) Reconcile(s stream) error {
	return t.DataPlaneProviderServer.Reconcile(&tapStream{stream: s, meddler: t.meddler})
}

type tapStream struct {
	stream
	*meddler
	open, ended bool
	pending     *pb.ReconcileRequest
	own         *pb.Begin
}

func (s *tapStream) Context() context.Context {
	if s.meddler.commit {
		return context.WithoutCancel(s.stream.Context())
	}
	return s.stream.Context()
}

func (s *tapStream) Recv() (*pb.ReconcileRequest, error) {
	if m := s.pending; m != nil {
		s.pending = nil
		return m, nil
	}
	m, err := s.stream.Recv()
	if err == nil && s.begins && !s.open && m.GetBegin() == nil && s.last.GetSession() != nil {
		s.pending = m
		m = &pb.ReconcileRequest{Step: &pb.ReconcileRequest_Begin{Begin: &pb.Begin{
			Session: s.last.GetSession(), Base: s.last.GetGeneration(), Generation: s.last.GetGeneration() + 1, Completeness: pb.Completeness_COMPLETENESS_ALONE,
		}}}
	}
	if err != nil {
		if s.meddler.commit && s.open && !s.ended {
			s.ended = true
			return &pb.ReconcileRequest{Step: &pb.ReconcileRequest_Commit{Commit: &pb.Commit{}}}, nil
		}
		return nil, err
	}
	if b := m.GetBegin(); b.GetGeneration() > 0 && b.GetSession() != nil {
		if err := s.refuse(b); err != nil {
			return nil, err
		}
		s.meddler.begin(b)
		s.open, s.own = true, b
	}
	if c := m.GetChange(); c != nil {
		if err := s.meddler.change(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (s *tapStream) SendAndClose(r *pb.ReconcileResponse) error {
	s.meddler.last = s.own
	r = proto.CloneOf(r)
	s.meddler.answer(r)
	return s.stream.SendAndClose(r)
}

func appliesBeforeCommit(m *meddler) { m.commit = true }

func wrongGeneration(m *meddler) {
	m.answer = func(r *pb.ReconcileResponse) { r.Generation++ }
}

func acceptsOldGeneration(m *meddler) {
	m.begin = func(b *pb.Begin) {
		if proto.Equal(b.GetSession(), m.last.GetSession()) && b.GetGeneration() < m.last.GetGeneration() {
			b.Base, b.Generation = 0, m.last.GetGeneration()+1
		}
	}
}

func acceptsOldSession(m *meddler) {
	m.begin = func(b *pb.Begin) {
		if old := m.last.GetSession(); b.GetSession().GetAgentId() == old.GetAgentId() && b.GetSession().GetBootEpoch() < old.GetBootEpoch() {
			b.Session, b.Base, b.Generation = old, 0, m.last.GetGeneration()+1
		}
	}
}

func ignoresBaseMismatch(m *meddler) {
	m.begin = func(b *pb.Begin) {
		if b.GetBase() != 0 && proto.Equal(b.GetSession(), m.last.GetSession()) {
			b.Base = m.last.GetGeneration()
		}
	}
}

func startsAnywhere(m *meddler) { m.begins = true }

func ignoresDigest(m *meddler) {
	m.begin = func(b *pb.Begin) {
		if b.GetGeneration() == m.last.GetGeneration() {
			b.Digest = m.last.GetDigest()
		}
	}
}

func countsByOne(m *meddler) {
	m.refuse = func(b *pb.Begin) error {
		if b.GetBase() != 0 && b.GetGeneration() > m.last.GetGeneration()+1 {
			return status.Error(codes.FailedPrecondition, "a generation is missing")
		}
		return nil
	}
}

func continuesAnyway(m *meddler) {
	m.begin = func(b *pb.Begin) {
		if !proto.Equal(b.GetSession(), m.last.GetSession()) {
			b.Base = 0
		}
	}
}

func incompleteRemoves(m *meddler) {
	m.begin = func(b *pb.Begin) {
		if b.GetCompleteness() == pb.Completeness_COMPLETENESS_INCOMPLETE {
			b.Completeness = pb.Completeness_COMPLETENESS_EXCHANGED
		}
	}
}

func fencesTooSoon(m *meddler) {
	var epoch uint64
	m.begin = func(b *pb.Begin) {
		if s := b.GetSession(); s.GetBootEpoch() < epoch {
			b.Session = &pb.Session{AgentId: s.GetAgentId(), BootEpoch: 1}
		} else {
			epoch = s.GetBootEpoch()
		}
	}
}

// claimsBeforeRelease places one service after the other.
func claimsBeforeRelease(m *meddler) {
	at := make(map[string]string) // service by frontend, of the last definitions
	m.change = func(c *pb.Change) error {
		for _, s := range c.GetServices() {
			for _, f := range s.GetFrontends() {
				if other := at[string(f.GetAddress())]; len(c.GetServices()) == 2 && other != "" && other != s.GetKey().GetName() && len(c.GetEndpoints()) == 0 {
					f.Address = nil // taken
				} else {
					at[string(f.GetAddress())] = s.GetKey().GetName()
				}
			}
		}
		return nil
	}
}

func oneBadBlocksAll(m *meddler) {
	m.change = func(c *pb.Change) error {
		for _, s := range c.GetServices() {
			for _, f := range s.GetFrontends() {
				if n := len(f.GetAddress()); n != 6 && n != 18 {
					return status.Error(codes.InvalidArgument, "bad address")
				}
			}
		}
		return nil
	}
}

func emptyWithoutFlag(m *meddler) {
	m.begin = func(b *pb.Begin) { b.AllowEmpty = true }
}

func defaultForUnknown(m *meddler) {
	m.change = func(c *pb.Change) error {
		for _, s := range c.GetServices() {
			for _, f := range s.GetFrontends() {
				f.Protocol, f.Kind, f.OnEmpty = known(f.Protocol, 2), known(f.Kind, 2), known(f.OnEmpty, 2)
			}
			s.Balance, s.Affinity = known(s.Balance, 4), nil
		}
		return nil
	}
}

// known falls back to 1 for values above most.
func known[T ~int32](v, most T) T {
	if v > most {
		return 1
	}
	return v
}

func busyWhenIdle(m *meddler) {
	m.answer = func(r *pb.ReconcileResponse) { r.Operations++ }
}

func tellsAll(m *meddler) {
	all := make(map[string]*pb.ServiceKey)
	m.change = func(c *pb.Change) error {
		for _, s := range c.GetServices() {
			all[s.GetKey().GetName()] = s.GetKey()
		}
		return nil
	}
	m.answer = func(r *pb.ReconcileResponse) {
		if len(r.GetStatuses()) == 0 {
			for _, k := range all {
				r.Statuses = append(r.Statuses, &pb.ServiceStatus{Service: k, Status: pb.Status_STATUS_PROGRAMMED})
			}
		}
	}
}

// smallMessages plays a gRPC server that was left at a low limit.
func smallMessages(m *meddler) {
	m.change = func(c *pb.Change) error {
		if n := proto.Size(c); n > 10<<10 {
			return status.Error(codes.ResourceExhausted, fmt.Sprintf("grpc: received message larger than max (%d vs. %d)", n, 10<<10))
		}
		return nil
	}
}

// queue lets Reconciles wait for one another.
type queue struct {
	pb.DataPlaneProviderServer
	mu sync.Mutex
}

func queuesReconciles(inner pb.DataPlaneProviderServer) pb.DataPlaneProviderServer {
	return &queue{DataPlaneProviderServer: inner}
}

func (q *queue) Reconcile(s stream) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.DataPlaneProviderServer.Reconcile(s)
}

// selfish does not wait for its configuration.
type selfish struct {
	pb.DataPlaneProviderServer
	once sync.Once
}

func configuresItself(inner pb.DataPlaneProviderServer) pb.DataPlaneProviderServer {
	return &selfish{DataPlaneProviderServer: inner}
}

func (s *selfish) Configure(ctx context.Context, r *pb.ConfigureRequest) (*pb.ConfigureResponse, error) {
	s.once.Do(func() {})
	return s.DataPlaneProviderServer.Configure(ctx, r)
}

func (s *selfish) Reconcile(st stream) error {
	s.once.Do(func() {
		_, _ = s.DataPlaneProviderServer.Configure(st.Context(), &pb.ConfigureRequest{InstanceId: "default"})
	})
	return s.DataPlaneProviderServer.Reconcile(st)
}

// blocker has one lock for everything.
type blocker struct{ queue }

func blocksHealth(inner pb.DataPlaneProviderServer) pb.DataPlaneProviderServer {
	return &blocker{queue{DataPlaneProviderServer: inner}}
}

func (b *blocker) Reconcile(s stream) error {
	if !b.mu.TryLock() {
		return status.Error(codes.Aborted, "busy")
	}
	defer b.mu.Unlock()
	return b.DataPlaneProviderServer.Reconcile(s)
}

func (b *blocker) Health(ctx context.Context, r *pb.HealthRequest) (*pb.HealthResponse, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.DataPlaneProviderServer.Health(ctx, r)
}

// laconic says what went wrong, but not which of the errors it is.
type laconic struct{ pb.DataPlaneProviderServer }

func bareErrors(inner pb.DataPlaneProviderServer) pb.DataPlaneProviderServer { return laconic{inner} }

func (l laconic) Reconcile(s stream) error {
	if err := l.DataPlaneProviderServer.Reconcile(s); err != nil {
		return status.Error(status.Code(err), status.Convert(err).Message())
	}
	return nil
}

package etcd

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Backend answers the calls that come in at a Front: a Server, or a way to one.
type Backend interface {
	Face(Reach) Services
	// Stop ends all streams that would go on.
	Stop()
}

var _ Backend = (*Server)(nil)

// Front is where listeners find the services: gRPC knows them from its start on,
// while who answers may change. Calls under way stay with the one they came to.
type Front struct {
	mu        sync.Mutex
	backend   Backend
	why       string // there is none
	stopped   bool
	entrances []*entrance
}

// NewFront returns a front that nobody stands behind, for the reason given.
func NewFront(why string) *Front { return &Front{why: why} }

// Set puts a backend behind the front. The one before is not stopped.
func (f *Front) Set(b Backend) { f.change(b, "") }

// Unset makes the front answer UNAVAILABLE with a reason.
func (f *Front) Unset(why string) { f.change(nil, why) }

func (f *Front) change(b Backend, why string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stopped {
		return
	}
	f.backend, f.why = b, why
	for _, e := range f.entrances {
		e.set(b, why)
	}
}

// Stop stops the backend, and refuses what comes later.
func (f *Front) Stop() {
	f.mu.Lock()
	b := f.backend
	f.mu.Unlock()
	f.Unset("the agent stops")
	f.mu.Lock()
	f.stopped = true
	f.mu.Unlock()
	if b != nil {
		b.Stop()
	}
}

// Register adds the services to a gRPC server, or whatever registers them there.
func (f *Front) Register(g grpc.ServiceRegistrar, r Reach) {
	e := f.enter(r)
	for _, d := range descriptions() {
		g.RegisterService(e.indirect(d), e)
	}
}

func (f *Front) enter(r Reach) *entrance {
	f.mu.Lock()
	defer f.mu.Unlock()
	e := &entrance{reach: r}
	e.set(f.backend, f.why)
	f.entrances = append(f.entrances, e)
	return e
}

// entrance is a front as one listener has it.
type entrance struct {
	reach Reach
	now   atomic.Pointer[standing]
}

// standing is who answers, or why nobody does.
type standing struct {
	services Services
	why      string
}

func (e *entrance) set(b Backend, why string) {
	s := &standing{why: why}
	if b != nil {
		s.services = b.Face(e.reach)
	}
	e.now.Store(s)
}

func (e *entrance) services() (Services, error) {
	s := e.now.Load()
	if s.services == nil {
		return nil, Nobody(s.why)
	}
	return s.services, nil
}

// indirect returns the description of a service whose calls go to whoever stands
// behind the entrance when they come.
func (e *entrance) indirect(d grpc.ServiceDesc) *grpc.ServiceDesc {
	out := d
	out.HandlerType = (*any)(nil)
	out.Methods, out.Streams = nil, nil
	for _, m := range d.Methods {
		handler := m.Handler
		m.Handler = func(_ any, ctx context.Context, decode func(any) error, next grpc.UnaryServerInterceptor) (any, error) {
			s, err := e.services()
			if err != nil {
				return nil, err
			}
			return handler(s, ctx, decode, next)
		}
		out.Methods = append(out.Methods, m)
	}
	for _, m := range d.Streams {
		handler := m.Handler
		m.Handler = func(_ any, stream grpc.ServerStream) error {
			s, err := e.services()
			if err != nil {
				return err
			}
			return handler(s, stream)
		}
		out.Streams = append(out.Streams, m)
	}
	return &out
}

// nobody begins what a Front without a backend answers.
const nobody = "no store answers here: "

// Nobody is the answer of who has nobody to ask: surely nothing was done.
func Nobody(why string) error { return status.Error(codes.Unavailable, nobody+why) }

// NotDone reports whether an answer means that surely nothing was done, so that a
// call may be made again, elsewhere.
func NotDone(err error) bool {
	s := status.Convert(err)
	return s.Code() == codes.Unavailable && (s.Message() == rpctypes.ErrorDesc(rpctypes.ErrGRPCNoLeader) || strings.HasPrefix(s.Message(), nobody))
}

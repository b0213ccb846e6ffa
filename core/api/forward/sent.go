package forward

import (
	"context"
	"sync/atomic"

	"google.golang.org/grpc/stats"
)

// sent notes whether anything of a call went to a server. It is false only if
// surely nothing did.
type sent struct{ atomic.Bool }

type sentKey struct{}

func withSent(ctx context.Context) (context.Context, *sent) {
	s := &sent{}
	return context.WithValue(ctx, sentKey{}, s), s
}

// watchSent is the stats.Handler that gRPC tells of what it sends.
type watchSent struct{}

var _ stats.Handler = watchSent{}

// TagRPC implements stats.Handler.
func (watchSent) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// HandleRPC implements stats.Handler: the headers of a call are the first that is
// sent of it.
func (watchSent) HandleRPC(ctx context.Context, s stats.RPCStats) {
	if _, is := s.(*stats.OutHeader); !is {
		return
	}
	if f, ok := ctx.Value(sentKey{}).(*sent); ok {
		f.Store(true)
	}
}

// TagConn implements stats.Handler.
func (watchSent) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn implements stats.Handler.
func (watchSent) HandleConn(context.Context, stats.ConnStats) {}

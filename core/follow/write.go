package follow

import (
	"context"
	"errors"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/metadata"

	"github.com/fairlead/fairlead/core/api/etcd"
)

// Writer is where the system keyspace is written, and read as it is now: the
// counterpart of Source. Requests and answers are those of etcd, with keys as Source
// has them. Requests are not altered.
type Writer interface {
	Txn(context.Context, *pb.TxnRequest) (*pb.TxnResponse, error)
}

// NewWriter returns the writer of a store of agents: a server's own face, or that of
// a way to one, with etcd.ByMetadata.
func NewWriter(face pb.KVServer) Writer { return system{face} }

type system struct{ face pb.KVServer }

// Txn implements Writer.
func (s system) Txn(ctx context.Context, q *pb.TxnRequest) (*pb.TxnResponse, error) {
	return s.face.Txn(metadata.NewIncomingContext(ctx, metadata.Pairs(etcd.KeyspaceKey, "system")), q)
}

// ErrDeposed says that a fence does not hold any more, and that nothing was written.
var ErrDeposed = errors.New("follow: another leads since: nothing was written")

// Fence is what holds while somebody leads: the key that says so is the one that was
// written when it began.
type Fence struct {
	Key string
	// Modified is its mod_revision, or Created its create_revision; the other is 0.
	Modified, Created int64
}

func (f Fence) compare() *pb.Compare {
	if f.Created != 0 {
		return &pb.Compare{Key: []byte(f.Key), Target: pb.Compare_CREATE, Result: pb.Compare_EQUAL, TargetUnion: &pb.Compare_CreateRevision{CreateRevision: f.Created}}
	}
	return &pb.Compare{Key: []byte(f.Key), Target: pb.Compare_MOD, Result: pb.Compare_EQUAL, TargetUnion: &pb.Compare_ModRevision{ModRevision: f.Modified}}
}

// Fenced returns a writer that does nothing, and says ErrDeposed, once a fence does
// not hold. An answer that is lost may still have been carried out before.
func Fenced(w Writer, f Fence) Writer { return fenced{w, f} }

type fenced struct {
	to    Writer
	fence Fence
}

// Txn implements Writer.
func (w fenced) Txn(ctx context.Context, q *pb.TxnRequest) (*pb.TxnResponse, error) {
	if w.fence.Modified == 0 && w.fence.Created == 0 {
		return nil, ErrDeposed // it would hold where nobody leads
	}
	r, err := w.to.Txn(ctx, &pb.TxnRequest{
		Compare: []*pb.Compare{w.fence.compare()},
		Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestTxn{RequestTxn: q}}},
	})
	switch {
	case err != nil:
		return nil, err
	case !r.Succeeded:
		return nil, ErrDeposed
	case len(r.Responses) != 1 || r.Responses[0].GetResponseTxn() == nil:
		return nil, errors.New("follow: the answer to a transaction is none")
	}
	inner := r.Responses[0].GetResponseTxn()
	inner.Header = r.Header
	return inner, nil
}

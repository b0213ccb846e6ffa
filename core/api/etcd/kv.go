package etcd

import (
	"context"
	"errors"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/protobuf/proto"

	"github.com/fairlead/fairlead/core/store"
)

// Range implements pb.KVServer.
func (s *face) Range(ctx context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	k, err := s.enter(ctx)
	if err != nil {
		return nil, err
	}
	op, err := rangeOf(r)
	if err != nil {
		return nil, err
	}
	v, found, err := read(ctx, s, r.Serializable, func(v *store.View) (*store.RangeResult, error) { return v.Range(k, *op) })
	if err != nil {
		return nil, err
	}
	return rangeResponse(s.header(v.Stats(k).Revision), found), nil
}

// read reads from the state that a client wants. One that may be old is made newer
// if it does not have a revision yet which the client may have seen at another
// server, as transactions of clientv3 do; if there is no leader to ask, it has to do.
func read[T any](ctx context.Context, s *face, serializable bool, do func(*store.View) (T, error)) (*store.View, T, error) {
	v, err := s.view(ctx, serializable)
	if err != nil {
		var none T
		return nil, none, err
	}
	found, err := do(v)
	if serializable && errors.Is(err, store.ErrFutureRevision) && s.cfg.Store.Header().Leader != 0 {
		ctx, cancel := context.WithTimeout(ctx, catchUpTime)
		defer cancel()
		if newer, failed := s.cfg.Store.Read(ctx); failed == nil {
			v = newer
			found, err = do(v)
		}
	}
	return v, found, wireError(err)
}

// Put implements pb.KVServer.
func (s *face) Put(ctx context.Context, r *pb.PutRequest) (*pb.PutResponse, error) {
	done, err := s.operate(ctx, store.Op{Put: putOf(r)}, r)
	if err != nil {
		return nil, err
	}
	return putResponse(s.header(done.Revision), done.Op.Put), nil
}

// DeleteRange implements pb.KVServer.
func (s *face) DeleteRange(ctx context.Context, r *pb.DeleteRangeRequest) (*pb.DeleteRangeResponse, error) {
	done, err := s.operate(ctx, store.Op{Delete: deleteOf(r)}, r)
	if err != nil {
		return nil, err
	}
	return deleteResponse(s.header(done.Revision), done.Op.Delete), nil
}

// Txn implements pb.KVServer. One that only reads goes the way of a read.
func (s *face) Txn(ctx context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	txn, err := txnOf(r)
	if err != nil {
		return nil, err
	}
	op := store.Op{Txn: txn}
	if op.Writes() {
		done, err := s.operate(ctx, op, r)
		if err != nil {
			return nil, err
		}
		return txnResponse(s.header(done.Revision), done.Op.Txn), nil
	}
	k, err := s.enter(ctx)
	if err != nil {
		return nil, err
	}
	v, found, err := read(ctx, s, Serializable(r), func(v *store.View) (store.OpResult, error) { return v.Eval(k, op) })
	if err != nil {
		return nil, err
	}
	return txnResponse(s.header(v.Stats(k).Revision), found.Txn), nil
}

// OnlyReads reports whether a transaction writes nothing, whatever comes true.
func OnlyReads(r *pb.TxnRequest) bool {
	for _, branch := range [][]*pb.RequestOp{r.Success, r.Failure} {
		for _, o := range branch {
			inner := o.GetRequestTxn()
			if o.GetRequestRange() == nil && (inner == nil || !OnlyReads(inner)) {
				return false
			}
		}
	}
	return true
}

// Serializable reports whether all that a transaction reads may be old.
func Serializable(r *pb.TxnRequest) bool {
	for _, branch := range [][]*pb.RequestOp{r.Success, r.Failure} {
		for _, o := range branch {
			if inner := o.GetRequestTxn(); inner != nil && !Serializable(inner) {
				return false
			}
			if q := o.GetRequestRange(); q != nil && !q.Serializable {
				return false
			}
		}
	}
	return len(r.Success)+len(r.Failure) > 0
}

// Compact implements pb.KVServer. When it answers, the history is gone.
func (s *face) Compact(ctx context.Context, r *pb.CompactionRequest) (*pb.CompactionResponse, error) {
	k, err := s.enter(ctx)
	if err != nil {
		return nil, err
	}
	done, err := s.propose(ctx, store.Command{Space: k, Compact: &store.Compact{Revision: r.Revision}})
	if err != nil {
		return nil, err
	}
	return &pb.CompactionResponse{Header: s.header(done.Revision)}, nil
}

// operate has the operation of a request carried out.
func (s *face) operate(ctx context.Context, op store.Op, r proto.Message) (store.Result, error) {
	k, err := s.enter(ctx)
	if err != nil {
		return store.Result{}, err
	}
	c := store.Command{Space: k, Op: &op}
	// Only of a large one the size is looked at closely: as etcd does, to the byte.
	if c.Size() > maxRequestBytes/2 && proto.Size(r)+entryBytes > maxRequestBytes {
		return store.Result{}, rpctypes.ErrGRPCRequestTooLarge
	}
	return s.propose(ctx, c)
}

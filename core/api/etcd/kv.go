package etcd

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/fairlead/fairlead/core/store"
)

// Range implements pb.KVServer.
func (s *Server) Range(ctx context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	k, err := s.cfg.Keyspace(ctx)
	if err != nil {
		return nil, err
	}
	op, err := rangeOf(r)
	if err != nil {
		return nil, err
	}
	v, err := s.view(ctx, r.Serializable)
	if err != nil {
		return nil, err
	}
	found, err := v.Range(k, *op)
	if err != nil {
		return nil, wireError(err)
	}
	return rangeResponse(s.header(v.Stats(k).Revision), found), nil
}

// Put implements pb.KVServer.
func (s *Server) Put(ctx context.Context, r *pb.PutRequest) (*pb.PutResponse, error) {
	done, err := s.operate(ctx, store.Op{Put: putOf(r)})
	if err != nil {
		return nil, err
	}
	return putResponse(s.header(done.Revision), done.Op.Put), nil
}

// DeleteRange implements pb.KVServer.
func (s *Server) DeleteRange(ctx context.Context, r *pb.DeleteRangeRequest) (*pb.DeleteRangeResponse, error) {
	done, err := s.operate(ctx, store.Op{Delete: deleteOf(r)})
	if err != nil {
		return nil, err
	}
	return deleteResponse(s.header(done.Revision), done.Op.Delete), nil
}

// Txn implements pb.KVServer. One that only reads goes the way of a read.
func (s *Server) Txn(ctx context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	txn, err := txnOf(r)
	if err != nil {
		return nil, err
	}
	op := store.Op{Txn: txn}
	if op.Writes() {
		done, err := s.operate(ctx, op)
		if err != nil {
			return nil, err
		}
		return txnResponse(s.header(done.Revision), done.Op.Txn), nil
	}
	k, err := s.cfg.Keyspace(ctx)
	if err != nil {
		return nil, err
	}
	v, err := s.view(ctx, serializable(r))
	if err != nil {
		return nil, err
	}
	found, err := v.Eval(k, op)
	if err != nil {
		return nil, wireError(err)
	}
	return txnResponse(s.header(v.Stats(k).Revision), found.Txn), nil
}

// serializable reports whether all that a transaction reads may be old.
func serializable(r *pb.TxnRequest) bool {
	for _, branch := range [][]*pb.RequestOp{r.Success, r.Failure} {
		for _, o := range branch {
			if inner := o.GetRequestTxn(); inner != nil && !serializable(inner) {
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
func (s *Server) Compact(ctx context.Context, r *pb.CompactionRequest) (*pb.CompactionResponse, error) {
	k, err := s.cfg.Keyspace(ctx)
	if err != nil {
		return nil, err
	}
	done, err := s.propose(ctx, store.Command{Space: k, Compact: &store.Compact{Revision: r.Revision}})
	if err != nil {
		return nil, err
	}
	return &pb.CompactionResponse{Header: s.header(done.Revision)}, nil
}

func (s *Server) operate(ctx context.Context, op store.Op) (store.Result, error) {
	k, err := s.cfg.Keyspace(ctx)
	if err != nil {
		return store.Result{}, err
	}
	return s.propose(ctx, store.Command{Space: k, Op: &op})
}

package etcd

import (
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fairlead/fairlead/core/store"
)

func rangeOf(r *pb.RangeRequest) (*store.RangeOp, error) {
	if r.SortOrder < pb.RangeRequest_NONE || r.SortOrder > pb.RangeRequest_DESCEND || r.SortTarget < pb.RangeRequest_KEY || r.SortTarget > pb.RangeRequest_VALUE {
		return nil, rpctypes.ErrGRPCInvalidSortOption
	}
	return &store.RangeOp{
		Range: store.Range{Key: string(r.Key), End: string(r.RangeEnd)}, Revision: r.Revision, Limit: r.Limit,
		Order: store.Order(r.SortOrder), Target: store.Target(r.SortTarget), KeysOnly: r.KeysOnly, CountOnly: r.CountOnly,
		MinMod: r.MinModRevision, MaxMod: r.MaxModRevision, MinCreate: r.MinCreateRevision, MaxCreate: r.MaxCreateRevision,
	}, nil
}

func putOf(r *pb.PutRequest) *store.PutOp {
	return &store.PutOp{
		Key: string(r.Key), Value: r.Value, Lease: store.LeaseID(r.Lease), Prev: r.PrevKv, KeepValue: r.IgnoreValue, KeepLease: r.IgnoreLease,
	}
}

func deleteOf(r *pb.DeleteRangeRequest) *store.DeleteOp {
	return &store.DeleteOp{Range: store.Range{Key: string(r.Key), End: string(r.RangeEnd)}, Prev: r.PrevKv}
}

func txnOf(r *pb.TxnRequest) (*store.TxnOp, error) {
	out := &store.TxnOp{}
	for _, c := range r.Compare {
		compare, err := compareOf(c)
		if err != nil {
			return nil, err
		}
		out.Compares = append(out.Compares, compare)
	}
	for _, branch := range []struct {
		from []*pb.RequestOp
		to   *[]store.Op
	}{{r.Success, &out.Then}, {r.Failure, &out.Else}} {
		for _, o := range branch.from {
			op, err := opOf(o)
			if err != nil {
				return nil, err
			}
			*branch.to = append(*branch.to, op)
		}
	}
	return out, nil
}

func opOf(o *pb.RequestOp) (op store.Op, err error) {
	switch r := o.Request.(type) {
	case *pb.RequestOp_RequestRange:
		op.Range, err = rangeOf(r.RequestRange)
	case *pb.RequestOp_RequestPut:
		op.Put = putOf(r.RequestPut)
	case *pb.RequestOp_RequestDeleteRange:
		op.Delete = deleteOf(r.RequestDeleteRange)
	case *pb.RequestOp_RequestTxn:
		op.Txn, err = txnOf(r.RequestTxn)
	default:
		err = rpctypes.ErrGRPCKeyNotFound
	}
	return op, err
}

func compareOf(c *pb.Compare) (store.Compare, error) {
	out := store.Compare{Range: store.Range{Key: string(c.Key), End: string(c.RangeEnd)}}
	switch c.Result {
	case pb.Compare_EQUAL:
		out.Relation = store.Equal
	case pb.Compare_GREATER:
		out.Relation = store.Greater
	case pb.Compare_LESS:
		out.Relation = store.Less
	case pb.Compare_NOT_EQUAL:
		out.Relation = store.NotEqual
	default:
		return out, status.Errorf(codes.InvalidArgument, "etcdserver: unknown comparison %d", c.Result)
	}
	switch c.Target {
	case pb.Compare_VERSION:
		out.Target, out.Number = store.TargetVersion, c.GetVersion()
	case pb.Compare_CREATE:
		out.Target, out.Number = store.TargetCreate, c.GetCreateRevision()
	case pb.Compare_MOD:
		out.Target, out.Number = store.TargetMod, c.GetModRevision()
	case pb.Compare_VALUE:
		out.Target, out.Value = store.TargetValue, c.GetValue()
	case pb.Compare_LEASE:
		out.Target, out.Number = store.TargetLease, c.GetLease()
	default:
		return out, status.Errorf(codes.InvalidArgument, "etcdserver: unknown target %d of a comparison", c.Target)
	}
	return out, nil
}

func kvOf(kv store.KeyValue) *mvccpb.KeyValue {
	return &mvccpb.KeyValue{
		Key: []byte(kv.Key), Value: kv.Value, CreateRevision: kv.Create, ModRevision: kv.Mod, Version: kv.Version, Lease: int64(kv.Lease),
	}
}

func kvsOf(kvs []store.KeyValue) []*mvccpb.KeyValue {
	if len(kvs) == 0 {
		return nil
	}
	out := make([]*mvccpb.KeyValue, 0, len(kvs))
	for _, kv := range kvs {
		out = append(out, kvOf(kv))
	}
	return out
}

func prevOf(kv *store.KeyValue) *mvccpb.KeyValue {
	if kv == nil {
		return nil
	}
	return kvOf(*kv)
}

func rangeResponse(h *pb.ResponseHeader, r *store.RangeResult) *pb.RangeResponse {
	return &pb.RangeResponse{Header: h, Kvs: kvsOf(r.KVs), More: r.More, Count: r.Count}
}

func putResponse(h *pb.ResponseHeader, r *store.PutResult) *pb.PutResponse {
	return &pb.PutResponse{Header: h, PrevKv: prevOf(r.Prev)}
}

func deleteResponse(h *pb.ResponseHeader, r *store.DeleteResult) *pb.DeleteRangeResponse {
	return &pb.DeleteRangeResponse{Header: h, Deleted: r.Deleted, PrevKvs: kvsOf(r.Prev)}
}

func txnResponse(h *pb.ResponseHeader, r *store.TxnResult) *pb.TxnResponse {
	before := h.Revision
	if wrote(r) {
		before--
	}
	out := inside(&before, h.Revision, r)
	out.Header = h
	return out
}

// wrote reports whether anything was written.
func wrote(r *store.TxnResult) bool {
	return slices.ContainsFunc(r.Results, func(o store.OpResult) bool {
		return o.Put != nil || o.Delete != nil && o.Delete.Deleted > 0 || o.Txn != nil && wrote(o.Txn)
	})
}

// inside is the answer of a transaction, whose parts say the revision that is in
// force after them: now becomes after with the first write. Headers have nothing
// else, and those of inner transactions not even that, as etcd's.
func inside(now *int64, after int64, r *store.TxnResult) *pb.TxnResponse {
	out := &pb.TxnResponse{Header: &pb.ResponseHeader{}, Succeeded: r.Succeeded}
	for _, o := range r.Results {
		if o.Put != nil || o.Delete != nil && o.Delete.Deleted > 0 {
			*now = after
		}
		op := &pb.ResponseOp{}
		h := &pb.ResponseHeader{Revision: *now}
		switch {
		case o.Range != nil:
			op.Response = &pb.ResponseOp_ResponseRange{ResponseRange: rangeResponse(h, o.Range)}
		case o.Put != nil:
			op.Response = &pb.ResponseOp_ResponsePut{ResponsePut: putResponse(h, o.Put)}
		case o.Delete != nil:
			op.Response = &pb.ResponseOp_ResponseDeleteRange{ResponseDeleteRange: deleteResponse(h, o.Delete)}
		case o.Txn != nil:
			op.Response = &pb.ResponseOp_ResponseTxn{ResponseTxn: inside(now, after, o.Txn)}
		}
		out.Responses = append(out.Responses, op)
	}
	return out
}

package etcd

import (
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
	relation, ok := map[pb.Compare_CompareResult]store.Relation{
		pb.Compare_EQUAL: store.Equal, pb.Compare_GREATER: store.Greater, pb.Compare_LESS: store.Less, pb.Compare_NOT_EQUAL: store.NotEqual,
	}[c.Result]
	if !ok {
		return out, status.Errorf(codes.InvalidArgument, "etcdserver: unknown comparison %d", c.Result)
	}
	out.Relation = relation
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
	var out []*mvccpb.KeyValue
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
	out := &pb.TxnResponse{Header: h, Succeeded: r.Succeeded}
	// Headers of inner answers have the revision only, as etcd's.
	inner := &pb.ResponseHeader{Revision: h.Revision}
	for _, o := range r.Results {
		out.Responses = append(out.Responses, opResponse(inner, o))
	}
	return out
}

func opResponse(h *pb.ResponseHeader, o store.OpResult) *pb.ResponseOp {
	switch {
	case o.Range != nil:
		return &pb.ResponseOp{Response: &pb.ResponseOp_ResponseRange{ResponseRange: rangeResponse(h, o.Range)}}
	case o.Put != nil:
		return &pb.ResponseOp{Response: &pb.ResponseOp_ResponsePut{ResponsePut: putResponse(h, o.Put)}}
	case o.Delete != nil:
		return &pb.ResponseOp{Response: &pb.ResponseOp_ResponseDeleteRange{ResponseDeleteRange: deleteResponse(h, o.Delete)}}
	case o.Txn != nil:
		return &pb.ResponseOp{Response: &pb.ResponseOp_ResponseTxn{ResponseTxn: txnResponse(h, o.Txn)}}
	}
	return &pb.ResponseOp{}
}

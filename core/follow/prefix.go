package follow

import (
	"bytes"
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"github.com/fairlead/fairlead/core/store"
)

// NewPrefixed returns the writer of the keys of an etcd cluster that have a prefix:
// no request reaches another key.
func NewPrefixed(kv pb.KVServer, prefix string) Writer {
	return prefixed{kv, []byte(prefix), []byte(rangeOf(prefix).End)}
}

type prefixed struct {
	kv          pb.KVServer
	prefix, end []byte
}

// Txn implements Writer.
func (p prefixed) Txn(ctx context.Context, q *pb.TxnRequest) (*pb.TxnResponse, error) {
	q = proto.CloneOf(q)
	p.putTxn(q)
	r, err := p.kv.Txn(ctx, q)
	if err != nil {
		return nil, err
	}
	p.cutTxn(r)
	return r, nil
}

// put puts the prefix on a range.
func (p prefixed) put(key, end *[]byte) {
	*key = append(bytes.Clone(p.prefix), *key...)
	switch {
	case len(*end) == 0: // one key
	case string(*end) == store.FromKey:
		*end = p.end
	default:
		*end = append(bytes.Clone(p.prefix), *end...)
	}
}

func (p prefixed) putTxn(q *pb.TxnRequest) {
	for _, c := range q.Compare {
		p.put(&c.Key, &c.RangeEnd)
	}
	for _, ops := range [][]*pb.RequestOp{q.Success, q.Failure} {
		for _, op := range ops {
			switch r := op.Request.(type) {
			case *pb.RequestOp_RequestRange:
				p.put(&r.RequestRange.Key, &r.RequestRange.RangeEnd)
			case *pb.RequestOp_RequestPut:
				p.put(&r.RequestPut.Key, new([]byte))
			case *pb.RequestOp_RequestDeleteRange:
				p.put(&r.RequestDeleteRange.Key, &r.RequestDeleteRange.RangeEnd)
			case *pb.RequestOp_RequestTxn:
				p.putTxn(r.RequestTxn)
			}
		}
	}
}

// cut takes the prefix off.
func (p prefixed) cut(kvs ...*mvccpb.KeyValue) {
	for _, kv := range kvs {
		if kv != nil {
			kv.Key = bytes.TrimPrefix(kv.Key, p.prefix)
		}
	}
}

func (p prefixed) cutTxn(r *pb.TxnResponse) {
	for _, o := range r.GetResponses() {
		switch r := o.Response.(type) {
		case *pb.ResponseOp_ResponseRange:
			p.cut(r.ResponseRange.Kvs...)
		case *pb.ResponseOp_ResponsePut:
			p.cut(r.ResponsePut.PrevKv)
		case *pb.ResponseOp_ResponseDeleteRange:
			p.cut(r.ResponseDeleteRange.PrevKvs...)
		case *pb.ResponseOp_ResponseTxn:
			p.cutTxn(r.ResponseTxn)
		}
	}
}

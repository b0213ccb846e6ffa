package follow

import (
	"context"
	"errors"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/fairlead/fairlead/core/api/etcd"
)

func put(key, value string) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte(key), Value: []byte(value), PrevKv: true}}}
}

func get(key, end string) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: []byte(key), RangeEnd: []byte(end)}}}
}

func del(key, end string) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: &pb.DeleteRangeRequest{Key: []byte(key), RangeEnd: []byte(end), PrevKv: true}}}
}

func nested(q *pb.TxnRequest) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: q}}
}

func do(t *testing.T, w Writer, ops ...*pb.RequestOp) *pb.TxnResponse {
	t.Helper()
	r, err := w.Txn(t.Context(), &pb.TxnRequest{Success: ops})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// What a writer writes, a source has.
func TestWriter(t *testing.T) {
	n := newNode(t, 1, "n1")
	a := newAgent(t, n)
	a.start()
	w := NewWriter(n.store.API.Face(etcd.ByMetadata))
	a.reaches(do(t, w, put("k", "v")).Header.Revision)
	if kv, _ := a.State().Get("k"); string(kv.Value) != "v" {
		t.Errorf("%+v", kv)
	}
}

// A fence lets writes through while it holds, and none after.
func TestFence(t *testing.T) {
	n := newNode(t, 1, "n1")
	w := NewWriter(n.store.API.Face(etcd.ByMetadata))
	leads := do(t, w, put("boss", "n1")).Header.Revision
	for name, f := range map[string]Fence{"modified": {Key: "boss", Modified: leads}, "created": {Key: "other", Created: do(t, w, put("other", "x")).Header.Revision}} {
		r, err := Fenced(w, f).Txn(t.Context(), &pb.TxnRequest{
			Compare: []*pb.Compare{{Key: []byte("absent"), Target: pb.Compare_VERSION, Result: pb.Compare_EQUAL, TargetUnion: &pb.Compare_Version{Version: 1}}},
			Failure: []*pb.RequestOp{put(name, "v")},
		})
		// Whether its own comparison held is told as it is.
		if err != nil || r.Succeeded || len(r.Responses) != 1 || r.Header.GetRevision() == 0 {
			t.Errorf("%s: %v, %v", name, r, err)
		}
	}
	before := do(t, w, put("boss", "n2"), del("other", "")).Header.Revision
	do(t, w, put("other", "again"))
	for _, f := range []Fence{{Key: "boss", Modified: leads}, {Key: "other", Created: leads + 1}, {Key: "nobody", Modified: 5}, {Key: "nobody"}} {
		if _, err := Fenced(w, f).Txn(t.Context(), &pb.TxnRequest{Success: []*pb.RequestOp{put("k", "v")}}); !errors.Is(err, ErrDeposed) {
			t.Errorf("%+v: %v", f, err)
		}
	}
	if got := do(t, w, get("k", "")).Header.Revision; got != before+1 {
		t.Errorf("revision %d: something was written", got)
	}
	refusing := fakeWriter(func(*pb.TxnRequest) (*pb.TxnResponse, error) { return nil, status.Error(codes.Unavailable, "gone") })
	if _, err := Fenced(refusing, Fence{Key: "boss", Modified: 1}).Txn(t.Context(), &pb.TxnRequest{}); status.Code(err) != codes.Unavailable {
		t.Error(err)
	}
	odd := fakeWriter(func(*pb.TxnRequest) (*pb.TxnResponse, error) { return &pb.TxnResponse{Succeeded: true}, nil })
	if _, err := Fenced(odd, Fence{Key: "boss", Modified: 1}).Txn(t.Context(), &pb.TxnRequest{}); err == nil {
		t.Error("an answer without an answer was taken")
	}
}

type fakeWriter func(*pb.TxnRequest) (*pb.TxnResponse, error)

func (f fakeWriter) Txn(_ context.Context, q *pb.TxnRequest) (*pb.TxnResponse, error) { return f(q) }

// No request reaches a key without the prefix, in whatever part of a transaction,
// and no answer has the prefix.
func TestPrefix(t *testing.T) {
	n := newNode(t, 1, "n1")
	kv := n.store.API.Face(etcd.UserOnly)
	p := NewPrefixed(kv, "/f/prod/")
	all := func() (keys []string) {
		r, err := kv.Range(t.Context(), &pb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}})
		if err != nil {
			t.Fatal(err)
		}
		for _, kv := range r.Kvs {
			keys = append(keys, string(kv.Key))
		}
		return keys
	}
	for _, key := range []string{"/e", "/f/prod", "/f/prod0", "/g", "a", "b"} {
		if _, err := kv.Put(t.Context(), &pb.PutRequest{Key: []byte(key), Value: []byte("other")}); err != nil {
			t.Fatal(err)
		}
	}
	others := len(all())
	q := &pb.TxnRequest{
		Compare: []*pb.Compare{{Key: []byte("a"), Target: pb.Compare_CREATE, Result: pb.Compare_EQUAL, TargetUnion: &pb.Compare_CreateRevision{}}},
		Success: []*pb.RequestOp{put("a", "1"), nested(&pb.TxnRequest{Success: []*pb.RequestOp{put("b", "2"), get("a", "c")}}), put("c", "3")},
		Failure: []*pb.RequestOp{put("no", "")},
	}
	same := proto.CloneOf(q)
	r, err := p.Txn(t.Context(), q)
	if err != nil || !r.Succeeded {
		t.Fatalf("%v, %v", r, err)
	}
	if !proto.Equal(q, same) {
		t.Error("the request was altered")
	}
	if in := r.Responses[1].GetResponseTxn().Responses[1].GetResponseRange(); len(in.Kvs) != 2 || string(in.Kvs[0].Key) != "a" || string(in.Kvs[1].Key) != "b" {
		t.Errorf("%v", in)
	}
	if got := all(); len(got) != others+3 || got[2] != "/f/prod/a" {
		t.Errorf("%q", got)
	}
	r, err = p.Txn(t.Context(), &pb.TxnRequest{
		Compare: []*pb.Compare{{Key: []byte{0}, RangeEnd: []byte{0}, Target: pb.Compare_VERSION, Result: pb.Compare_EQUAL, TargetUnion: &pb.Compare_Version{Version: 1}}},
		Success: []*pb.RequestOp{get("\x00", "\x00"), put("a", "4"), del("b", "\x00")},
	})
	if err != nil || !r.Succeeded {
		t.Fatalf("%v, %v", r, err)
	}
	if in := r.Responses[0].GetResponseRange(); len(in.Kvs) != 3 || string(in.Kvs[2].Key) != "c" {
		t.Errorf("%v", in)
	}
	if prev := r.Responses[1].GetResponsePut().PrevKv; string(prev.GetKey()) != "a" {
		t.Errorf("%v", prev)
	}
	if prev := r.Responses[2].GetResponseDeleteRange().PrevKvs; len(prev) != 2 || string(prev[0].Key) != "b" {
		t.Errorf("%v", prev)
	}
	if got := all(); len(got) != others+1 {
		t.Errorf("%q", got)
	}
	refusing := NewPrefixed(pb.UnimplementedKVServer{}, "/f/")
	if _, err := refusing.Txn(t.Context(), &pb.TxnRequest{}); status.Code(err) != codes.Unimplemented {
		t.Error(err)
	}
}

package interop

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"github.com/fairlead/fairlead/test/await"
	"github.com/fairlead/fairlead/test/scale"
)

// dice draws calls that make sense, and that do not, of a few keys: most of them
// hit something. There are no more than 12, as etcd has those that are sorted and
// equal in any order from there on.
type dice struct {
	*rand.Rand
	revision int64 // the newest that was answered
	// compacted is at which revision the history was cut last.
	compacted int64
}

func (d *dice) of(n int) bool { return d.IntN(n) == 0 }

func (d *dice) key() []byte {
	switch {
	case d.of(40):
		return nil
	case d.of(40):
		return []byte{0}
	case d.of(20): // around others in the order of keys
		return [][]byte{[]byte("ka\x00"), []byte("k\xff")}[d.IntN(2)]
	}
	return []byte{'k', byte('a' + d.IntN(6))}
}

func (d *dice) end() []byte {
	switch d.IntN(6) {
	case 0:
		return []byte{0}
	case 1:
		return [][]byte{[]byte("l"), []byte("l"), {0, 0}, []byte("kb")}[d.IntN(4)]
	case 2:
		return d.key()
	}
	return nil
}

func (d *dice) value() []byte { return []byte(strings.Repeat(string(rune('p'+d.IntN(3))), d.IntN(3))) }

// bound is a revision, often none.
func (d *dice) bound() int64 {
	if !d.of(6) {
		return 0
	}
	return d.at()
}

func (d *dice) at() int64 {
	if d.of(20) {
		return d.revision + 5
	}
	return max(d.revision-d.Int64N(20), -1)
}

func (d *dice) lease() int64 {
	if !d.of(4) {
		return 0
	}
	return d.leaseID()
}

func (d *dice) leaseID() int64 {
	if d.of(20) {
		return []int64{-1, math.MinInt64, math.MaxInt64}[d.IntN(3)]
	}
	return 1 + d.Int64N(5)
}

func (d *dice) get() *pb.RangeRequest {
	return &pb.RangeRequest{
		Key: d.key(), RangeEnd: d.end(), Revision: d.bound(), Limit: d.Int64N(5) * d.Int64N(2),
		SortOrder: pb.RangeRequest_SortOrder(d.IntN(3)), SortTarget: pb.RangeRequest_SortTarget(d.IntN(5)),
		Serializable: d.of(4), KeysOnly: d.of(5) && os.Getenv(peerEnv) == "" /* 3.7 leaves the lease out */, CountOnly: d.of(6),
		MinModRevision: d.bound(), MaxModRevision: d.bound(), MinCreateRevision: d.bound(), MaxCreateRevision: d.bound(),
	}
}

func (d *dice) put() *pb.PutRequest {
	r := &pb.PutRequest{Key: d.key(), Value: d.value(), Lease: d.lease(), PrevKv: d.of(2), IgnoreValue: d.of(8), IgnoreLease: d.of(8)}
	if r.IgnoreValue && !d.of(8) {
		r.Value = nil
	}
	return r
}

func (d *dice) del() *pb.DeleteRangeRequest {
	return &pb.DeleteRangeRequest{Key: d.key(), RangeEnd: d.end(), PrevKv: d.of(2)}
}

// innerGet, innerPut and innerDel are of a transaction.
func (d *dice) innerGet() *pb.RangeRequest {
	r := d.get()
	r.Revision = 0 // etcd 3.4 looks at all writes first
	return r
}

func (d *dice) innerPut() *pb.PutRequest {
	r := d.put()
	if r.IgnoreValue || r.IgnoreLease {
		r.Lease = 0 // etcd 3.4 looks at the key first, newer ones at the lease
	}
	return r
}

// innerDel deletes nothing that is put beside it where etcd would not see that: to
// the end of all keys, and deeper within.
func (d *dice) innerDel(depth int) *pb.DeleteRangeRequest {
	r := d.del()
	switch {
	case depth > 0:
		r.Key, r.RangeEnd = d.outer(), nil
	case string(r.RangeEnd) == "\x00":
		r.RangeEnd = []byte("l")
	}
	return r
}

// outer is a key that no transaction puts.
func (d *dice) outer() []byte { return []byte{'k', byte('i' + d.IntN(2))} }

func (d *dice) compare() *pb.Compare {
	c := &pb.Compare{Key: d.key(), Result: pb.Compare_CompareResult(d.IntN(4)), Target: pb.Compare_CompareTarget(d.IntN(5))}
	if d.of(4) {
		c.RangeEnd = d.end()
	}
	switch c.Target {
	case pb.Compare_VERSION:
		c.TargetUnion = &pb.Compare_Version{Version: d.Int64N(4)}
	case pb.Compare_CREATE:
		c.TargetUnion = &pb.Compare_CreateRevision{CreateRevision: d.at()}
	case pb.Compare_MOD:
		c.TargetUnion = &pb.Compare_ModRevision{ModRevision: d.at()}
	case pb.Compare_VALUE:
		c.TargetUnion = &pb.Compare_Value{Value: d.value()}
	case pb.Compare_LEASE:
		c.TargetUnion = &pb.Compare_Lease{Lease: d.Int64N(4)}
	}
	return c
}

func (d *dice) op(depth int) *pb.RequestOp {
	switch n := d.IntN(20); {
	case n < 8:
		return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: d.innerPut()}}
	case n < 15:
		return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: d.innerGet()}}
	case n < 17 || depth > 3:
		return &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: d.innerDel(depth)}}
	}
	return opTxn(d.txn(depth + 1))
}

func (d *dice) txn(depth int) *pb.TxnRequest {
	return &pb.TxnRequest{
		Compare: times(d.IntN(3), func(int) *pb.Compare { return d.compare() }),
		Success: times(d.IntN(4), func(int) *pb.RequestOp { return d.op(depth) }),
		Failure: times(d.IntN(3), func(int) *pb.RequestOp { return d.op(depth) }),
	}
}

// call draws one.
func (d *dice) call() proto.Message {
	switch n := d.IntN(100); {
	case n < 30:
		r := d.put()
		if d.of(8) {
			r.Key = d.outer()
		}
		return r
	case n < 55:
		return d.get()
	case n < 60:
		return d.del()
	case n < 85:
		return d.txn(0)
	case n < 90:
		return &pb.TxnRequest{Compare: []*pb.Compare{d.compare()}, Success: times(d.IntN(4), func(int) *pb.RequestOp {
			r := d.get()
			r.Revision = max(r.Revision, 0)
			return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: r}}
		})}
	case n < 93:
		return &pb.CompactionRequest{Revision: max(d.at(), 1), Physical: d.of(2)} // etcd takes 0 the first time
	case n < 96:
		return &pb.LeaseGrantRequest{ID: d.leaseID(), TTL: 3600}
	case n < 97:
		return &pb.LeaseRevokeRequest{ID: d.leaseID()}
	case n < 98:
		return &pb.LeaseLeasesRequest{}
	case n < 99:
		return d.watch()
	}
	return &pb.LeaseTimeToLiveRequest{ID: d.leaseID(), Keys: d.of(2)}
}

// mark is a key that each watch which is drawn sees, and that nothing else writes.
const mark = "k\xff\xff"

// watch is one of some of what was written, to the newest.
func (d *dice) watch() *pb.WatchCreateRequest {
	r := &pb.WatchCreateRequest{Key: d.key(), RangeEnd: []byte("l"), StartRevision: d.at(), PrevKv: d.of(2), Fragment: d.of(2)}
	if d.of(2) {
		r.RangeEnd = []byte{0}
	}
	switch d.IntN(4) {
	case 0:
		r.Filters = []pb.WatchCreateRequest_FilterType{pb.WatchCreateRequest_NOPUT}
	case 1:
		r.Filters = []pb.WatchCreateRequest_FilterType{pb.WatchCreateRequest_NODELETE}
	}
	r.StartRevision = min(max(r.StartRevision, 0), d.revision) // etcd 3.4 and newer ones differ below that
	if r.StartRevision == d.compacted {                        // etcd 3.4 forgets what was deleted in that one, newer ones do not
		r.StartRevision = 0
	}
	return r
}

// sees makes a watch, and says what it is told until the mark is written and deleted.
func (w *wire) sees(r *pb.WatchCreateRequest) string {
	ctx, cancel := context.WithTimeout(w.ctx, await.Patience)
	defer cancel()
	stream, err := w.Watch(ctx)
	if err != nil {
		return said(nil, err)
	}
	if err := stream.Send(create(r)); err != nil {
		return said(nil, err)
	}
	if _, err := stream.Recv(); err != nil {
		return said(nil, err)
	}
	put, err := w.Put(w.ctx, &pb.PutRequest{Key: []byte(mark)})
	if err != nil {
		return said(nil, err)
	}
	end := put.Header.Revision
	if !slices.Contains(r.Filters, pb.WatchCreateRequest_NODELETE) {
		end++
	}
	all := []string{w.makes(&pb.DeleteRangeRequest{Key: []byte(mark)})}
	for {
		m, err := stream.Recv()
		if err != nil {
			return strings.Join(append(all, said(nil, err)), "\n")
		}
		if m.Canceled {
			return strings.Join(append(all, fmt.Sprint("compacted at ", m.CompactRevision)), "\n")
		}
		for _, e := range m.Events {
			all = append(all, text(e))
			if e.Kv.ModRevision >= end {
				return strings.Join(all, "\n")
			}
		}
	}
}

// makes carries out a call, and says all of the answer but who gave it.
func (w *wire) makes(call proto.Message) string {
	var m proto.Message
	var err error
	switch r := call.(type) {
	case *pb.PutRequest:
		m, err = w.Put(w.ctx, r)
	case *pb.RangeRequest:
		m, err = w.Range(w.ctx, r)
	case *pb.DeleteRangeRequest:
		m, err = w.DeleteRange(w.ctx, r)
	case *pb.TxnRequest:
		m, err = w.Txn(w.ctx, r)
	case *pb.CompactionRequest:
		m, err = w.Compact(w.ctx, r)
	case *pb.LeaseGrantRequest:
		m, err = w.LeaseGrant(w.ctx, r)
	case *pb.LeaseRevokeRequest:
		m, err = w.LeaseRevoke(w.ctx, r)
	case *pb.LeaseTimeToLiveRequest:
		left, failed := w.LeaseTimeToLive(w.ctx, r)
		slices.SortFunc(left.GetKeys(), bytes.Compare) // etcd has them in any order
		m, err = left, failed
	case *pb.LeaseLeasesRequest:
		list, failed := w.LeaseLeases(w.ctx, r)
		slices.SortFunc(list.GetLeases(), func(a, b *pb.LeaseStatus) int { return cmp.Compare(a.ID, b.ID) }) // etcd has them by their ends
		m, err = list, failed
	case *pb.WatchCreateRequest:
		return w.sees(r)
	}
	if err != nil {
		return said(nil, err)
	}
	text := strings.Join(strings.Fields(fmt.Sprint(m)), " ")
	text = regexp.MustCompile(`(cluster_id|member_id|raft_term):\d+ ?`).ReplaceAllString(text, "")
	return regexp.MustCompile(` TTL:3[0-5]\d\d`).ReplaceAllString(text, " TTL:3599") // time goes by
}

var revisionIn = regexp.MustCompile(`^header:\{revision:(\d+)`)

// TestRandom makes the same calls of etcd and of an agent, drawn at random, and
// compares the answers whole; and in the end what a watch has seen of it all.
func TestRandom(t *testing.T) {
	d := &dice{Rand: rand.New(rand.NewPCG(scale.Seed(t), 1)), revision: 1}
	theirs, ours := newWire(t, peer(t).endpoint()), newWire(t, own(t, startOne).endpoint())
	watches := []*followed{theirs.follow(t), ours.follow(t)}
	for i := range scale.N(10_000) {
		call := d.call()
		if _, is := call.(*pb.CompactionRequest); is {
			for _, f := range watches { // of what a watch comes to later the previous values may be gone
				await.Until(t, func() string {
					if at := f.newest.Load(); at < d.revision {
						return fmt.Sprintf("a watch is at revision %d of %d", at, d.revision)
					}
					return ""
				})
			}
		}
		want, got := theirs.makes(call), ours.makes(call)
		if want != got {
			t.Fatalf("call %d: %T %v\n%s\nwant %s", i, call, call, got, want)
		}
		if m := revisionIn.FindStringSubmatch(want); m != nil {
			d.revision, _ = strconv.ParseInt(m[1], 10, 64)
			if c, is := call.(*pb.CompactionRequest); is {
				d.compacted = c.Revision
			}
		}
	}
	want, got := watches[0].end(), watches[1].end()
	for i := range max(len(want), len(got)) {
		if i >= min(len(want), len(got)) || want[i] != got[i] {
			t.Fatalf("event %d of %d and %d: %v, want %v", i, len(got), len(want), got[min(i, len(got)):min(i+1, len(got))], want[min(i, len(want)):min(i+1, len(want))])
		}
	}
}

// followed is a watch of everything.
type followed struct {
	newest atomic.Int64    // revision that was seen
	end    func() []string // ends it, and returns all events
}

// follow watches everything.
func (w *wire) follow(t *testing.T) *followed {
	t.Helper()
	stream, err := w.Watch(w.ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(create(&pb.WatchCreateRequest{Key: []byte{0}, RangeEnd: []byte{0}, PrevKv: true})); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	const last = "last"
	type seen struct {
		events []string
		err    error
	}
	done := make(chan seen, 1)
	f := &followed{}
	f.newest.Store(1)
	go func() {
		var all seen
		for {
			r, err := stream.Recv()
			if err == nil && r.Canceled {
				err = errors.New(r.CancelReason)
			}
			if err != nil {
				done <- seen{err: err}
				return
			}
			for _, e := range r.Events {
				all.events = append(all.events, text(e))
				f.newest.Store(e.Kv.ModRevision)
				if string(e.Kv.Key) == last {
					done <- all
					return
				}
			}
		}
	}()
	f.end = func() []string {
		w.put(&pb.PutRequest{Key: []byte(last)})
		all := <-done
		if all.err != nil {
			t.Fatal(all.err)
		}
		return all.events
	}
	return f
}

func text(e *mvccpb.Event) string { return strings.Join(strings.Fields(fmt.Sprint(e)), " ") }

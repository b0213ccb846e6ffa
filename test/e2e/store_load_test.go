package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fairlead/fairlead/test/history"
	"github.com/fairlead/fairlead/test/scale"
)

// What the clients of a store are: as in etcd's own robustness tests.
const (
	storeClients = 8
	storeKeys    = 10
	callTimeout  = 200 * time.Millisecond
	storePrefix  = "load/"
)

// storeLoad is clients that read and write all the time, each at any server, and
// watches at every server. All that they are told is taken down.
type storeLoad struct {
	t        *testing.T
	f        *storeFleet
	recorder history.Recorder
	clients  context.Context // until it ends, clients call
	enough   context.CancelFunc
	watchers context.Context
	unwatch  context.CancelFunc
	calling  sync.WaitGroup
	watching sync.WaitGroup
	from     int64
	bookmark bool                // watches ask for bookmarks
	passOn   map[*storeNode]bool // see passesOn: a test may move the node meanwhile

	mu      sync.Mutex
	acks    []ack
	refused int
	failed  int
	// compactions that were done.
	compactions int
	odd         []error          // what no server should answer
	seen        map[string]int64 // when a key was modified last, as far as clients know
	reached     map[*storeNode]*history.Watching
}

// ack is a write that was acknowledged.
type ack struct{ began, ended time.Time }

// load starts clients that together make rate calls a second, of which some part
// writes.
func (f *storeFleet) load(rate int, writes float64) *storeLoad {
	f.t.Helper()
	l := &storeLoad{t: f.t, f: f, passOn: map[*storeNode]bool{}, seen: map[string]int64{}, reached: map[*storeNode]*history.Watching{}}
	for _, n := range f.nodes {
		l.passOn[n] = n.passesOn()
	}
	// Debian's etcd has bookmarks overtake events (etcd issue 15220).
	l.bookmark = f.kind == agents
	l.clients, l.enough = context.WithCancel(context.Background())
	l.watchers, l.unwatch = context.WithCancel(context.Background())
	f.t.Cleanup(func() {
		l.enough()
		l.unwatch()
		l.calling.Wait()
		l.watching.Wait()
	})
	eventually(f.t, 10*time.Second, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		r, err := f.nodes[0].kv().Range(ctx, &pb.RangeRequest{Key: []byte(storePrefix)})
		if err == nil {
			l.from = r.Header.Revision + 1
		}
		return err
	}, "the revision of the store")
	for _, n := range f.nodes {
		l.watching.Go(func() { l.follow(n) })
		l.watching.Go(func() { l.peek(n) })
	}
	for i := range storeClients {
		l.calling.Go(func() { l.client(i, time.Second*storeClients/time.Duration(rate), writes) })
	}
	return l
}

// client calls at its pace. Values are unique.
func (l *storeLoad) client(number int, pace time.Duration, writes float64) {
	r := rand.New(rand.NewPCG(uint64(number), uint64(time.Now().UnixNano())))
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-tick.C:
		case <-l.clients.Done():
			return
		}
		key := fmt.Sprintf("%sk%d", storePrefix, r.IntN(storeKeys))
		o := history.Operation{Kind: history.Get, Key: key}
		switch dice := r.Float64(); {
		case dice < writes*0.55:
			o.Kind = history.Put
		case dice < writes*0.65:
			o.Kind, o.Also = history.Put, key+"/also"
		case dice < writes*0.9:
			l.mu.Lock()
			o.Kind, o.Expect = history.Swap, l.seen[key]
			l.mu.Unlock()
		case dice < writes:
			o.Kind = history.Delete
		default:
			o.Stale = r.IntN(4) == 0
		}
		if o.Kind == history.Put || o.Kind == history.Swap {
			o.Value = fmt.Sprintf("%d-%d", number, i)
		}
		l.call(number, l.f.nodes[r.IntN(len(l.f.nodes))], o, l.f.timeout)
	}
}

// compacts has the store forget its history, but for the last few revisions, several
// times a second.
func (l *storeLoad) compacts() {
	l.calling.Go(func() {
		tick := time.NewTicker(300 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-tick.C:
			case <-l.clients.Done():
				return
			}
			newest := l.from
			l.mu.Lock()
			for _, w := range l.reached {
				newest = max(newest, w.Reached())
			}
			l.mu.Unlock()
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			// It may fail, as all else.
			if _, err := l.f.nodes[i%len(l.f.nodes)].kv().Compact(ctx, &pb.CompactionRequest{Revision: newest - 30}); err == nil {
				l.mu.Lock()
				l.compactions++
				l.mu.Unlock()
			}
			cancel()
		}
	})
}

// call makes a call and takes down what becomes of it.
func (l *storeLoad) call(client int, n *storeNode, o history.Operation, timeout time.Duration) (history.Answer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	life, began := n.life.Load(), time.Now()
	at := fmt.Sprintf("%s/%d", n.name, life)
	if o.Stale && l.passOn[n] { // each time to another server, maybe
		at = fmt.Sprintf("%s for client %d at %v", at, client, began)
	}
	call := l.recorder.Begin(client, at, o)
	a, err := n.do(ctx, o)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch code := status.Code(err); {
	case err == nil && o.Stale && n.life.Load() != life:
		call.Lost() // nobody knows which life answered
	case err == nil:
		call.End(a)
		if a.Done {
			l.acks = append(l.acks, ack{began, time.Now()})
			l.seen[o.Key] = max(l.seen[o.Key], a.Revision)
		} else {
			l.seen[o.Key] = a.Item.Modified
		}
	case code == codes.ResourceExhausted:
		l.refused++
		call.Refused()
	default:
		l.failed++
		call.Lost()
		expected := []codes.Code{codes.Unavailable, codes.DeadlineExceeded, codes.Canceled}
		if l.f.kind == etcds {
			expected = append(expected, codes.Unknown) // a deadline of a read, in Debian's
		}
		if !slices.Contains(expected, code) {
			l.odd = append(l.odd, fmt.Errorf("%v: %w", o, err))
		}
	}
	return a, err
}

// passesOn reports whether calls to the agent are answered by others.
func (n *storeNode) passesOn() bool { return slices.Contains(n.args, "--cluster.server=false") }

// do is one call on the wire.
func (n *storeNode) do(ctx context.Context, o history.Operation) (history.Answer, error) {
	put := func(key string) *pb.RequestOp {
		return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte(key), Value: []byte(o.Value)}}}
	}
	get := &pb.RangeRequest{Key: []byte(o.Key), Serializable: o.Stale}
	switch {
	case o.Kind == history.Get:
		r, err := n.kv().Range(ctx, get)
		if err != nil {
			return history.Answer{}, err
		}
		return history.Answer{Revision: r.Header.Revision, Item: first(r.Kvs)}, nil
	case o.Kind == history.Delete:
		r, err := n.kv().DeleteRange(ctx, &pb.DeleteRangeRequest{Key: []byte(o.Key)})
		if err != nil {
			return history.Answer{}, err
		}
		return history.Answer{Revision: r.Header.Revision, Done: r.Deleted > 0}, nil
	case o.Kind == history.Put && o.Also == "":
		r, err := n.kv().Put(ctx, put(o.Key).GetRequestPut())
		if err != nil {
			return history.Answer{}, err
		}
		return history.Answer{Revision: r.Header.Revision, Done: true}, nil
	}
	txn := &pb.TxnRequest{Success: []*pb.RequestOp{put(o.Key)}}
	if o.Kind == history.Put {
		txn.Success = append(txn.Success, put(o.Also))
	} else {
		txn.Compare = []*pb.Compare{{Key: []byte(o.Key), Target: pb.Compare_MOD, TargetUnion: &pb.Compare_ModRevision{ModRevision: o.Expect}}}
		txn.Failure = []*pb.RequestOp{{Request: &pb.RequestOp_RequestRange{RequestRange: get}}}
	}
	r, err := n.kv().Txn(ctx, txn)
	if err != nil {
		return history.Answer{}, err
	}
	a := history.Answer{Revision: r.Header.Revision, Done: r.Succeeded}
	if !a.Done {
		a.Item = first(r.Responses[0].GetResponseRange().Kvs)
	}
	return a, nil
}

func first(kvs []*mvccpb.KeyValue) history.Item {
	if len(kvs) == 0 {
		return history.Item{}
	}
	return itemOf(kvs[0])
}

func itemOf(kv *mvccpb.KeyValue) history.Item {
	if kv == nil {
		return history.Item{}
	}
	return history.Item{Value: string(kv.Value), Created: kv.CreateRevision, Modified: kv.ModRevision, Version: kv.Version}
}

// firstAck returns how long after a moment a write was acknowledged that was begun
// later; 0 if none was yet.
func (l *storeLoad) firstAck(since time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	took := time.Duration(0)
	for i := len(l.acks) - 1; i >= 0 && l.acks[i].ended.After(since); i-- {
		if a := l.acks[i]; a.began.After(since) && (took == 0 || a.ended.Sub(since) < took) {
			took = a.ended.Sub(since)
		}
	}
	return took
}

// writesOn waits for a write that is begun now to be acknowledged.
func (l *storeLoad) writesOn() time.Duration {
	l.t.Helper()
	since := time.Now()
	eventually(l.t, 30*time.Second, func() error {
		if l.firstAck(since) == 0 {
			return errors.New("no write is acknowledged")
		}
		return nil
	}, "writes go on")
	return l.firstAck(since)
}

// counts returns how many writes were acknowledged, calls refused and calls failed.
func (l *storeLoad) counts() (acks, refused, failed int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.acks), l.refused, l.failed
}

// end stops the clients and judges all that they were told.
func (l *storeLoad) end() history.History {
	l.t.Helper()
	h, err := l.judged()
	if err != nil {
		if text := err.Error(); len(text) > 8000 {
			err = errors.New(text[:8000] + "…")
		}
		l.t.Error(err)
	}
	return h
}

// judged stops the clients, has every watch see all there was, and returns what is
// wrong with the history and with the servers.
func (l *storeLoad) judged() (history.History, error) {
	l.t.Helper()
	l.enough()
	l.calling.Wait()
	revision := l.mark()
	l.f.eventually(30*time.Second, "the watches have shown all", func() error {
		l.mu.Lock()
		defer l.mu.Unlock()
		for n, w := range l.reached {
			if got := w.Reached(); got < revision {
				return fmt.Errorf("%s has shown up to revision %d of %d", n.name, got, revision)
			}
		}
		return nil
	})
	l.unwatch()
	l.watching.Wait()
	h := l.recorder.History()
	acks, refused, failed := l.counts()
	l.t.Logf("%d calls, %d writes acknowledged, %d refused, %d failed; %d watches, revision %d", len(h.Operations), acks, refused, failed, len(h.Streams), revision)
	errs := append([]error{h.Check(), l.f.same(revision)}, l.odd...)
	want, err := h.State(revision)
	errs = append(errs, err)
	for _, n := range l.f.nodes {
		errs = append(errs, n.holds(want, revision))
	}
	l.t.Logf("%d compactions", l.compactions)
	if acks < 5 {
		errs = append(errs, fmt.Errorf("only %d writes were acknowledged: that shows nothing", acks))
	}
	return h, errors.Join(errs...)
}

// mark writes a last value and returns its revision.
func (l *storeLoad) mark() int64 {
	l.t.Helper()
	var revision int64
	try := 0
	eventually(l.t, 30*time.Second, func() error {
		try++
		o := history.Operation{Kind: history.Put, Key: storePrefix + "end", Value: fmt.Sprint("end-", try)}
		a, err := l.call(storeClients, l.f.nodes[try%len(l.f.nodes)], o, 2*time.Second)
		revision = a.Revision
		return err
	}, "the last write")
	return revision
}

// same is nil when all servers have the same state at a revision.
func (f *storeFleet) same(revision int64) error {
	var of []uint32
	for _, n := range f.nodes {
		hash, err := n.hashAt(revision)
		if err != nil {
			return fmt.Errorf("%s: hash at %d: %w", n.name, revision, err)
		}
		if of = append(of, hash); hash != of[0] {
			return fmt.Errorf("servers differ at revision %d: %x", revision, of)
		}
	}
	return nil
}

// hashAt returns the hash of the server's state at a revision, once it has come to that:
// an agent that passes calls on may ask another server than the one its watches show.
func (n *storeNode) hashAt(revision int64) (uint32, error) {
	var r *pb.HashKVResponse
	err := n.answered(func(ctx context.Context) (err error) {
		r, err = pb.NewMaintenanceClient(n.conn).HashKV(ctx, &pb.HashKVRequest{Revision: revision})
		return err
	})
	return r.GetHash(), err
}

// answered makes a call until there is an answer: somebody may have to be elected first.
func (n *storeNode) answered(call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), scale.Bound(10*time.Second, 30*time.Second))
	defer cancel()
	for {
		err := call(ctx)
		future := rpctypes.ErrorDesc(err) == rpctypes.ErrorDesc(rpctypes.ErrGRPCFutureRev)
		if ctx.Err() != nil || !future && status.Code(err) != codes.Unavailable {
			return err
		}
		lasts(10 * time.Millisecond)
	}
}

// holds is nil when the server holds exactly a state.
func (n *storeNode) holds(want map[string]history.Item, revision int64) error {
	var r *pb.RangeResponse
	err := n.answered(func(ctx context.Context) (err error) {
		r, err = n.kv().Range(ctx, &pb.RangeRequest{Key: []byte(storePrefix), RangeEnd: []byte("load0"), Revision: revision})
		return err
	})
	if err != nil {
		return fmt.Errorf("%s: %w", n.name, err)
	}
	if len(r.Kvs) != len(want) {
		return fmt.Errorf("%s has %d keys, want %d", n.name, len(r.Kvs), len(want))
	}
	for _, kv := range r.Kvs {
		if got := itemOf(kv); got != want[string(kv.Key)] {
			return fmt.Errorf("%s: %s is %v, want %v", n.name, kv.Key, got, want[string(kv.Key)])
		}
	}
	return nil
}

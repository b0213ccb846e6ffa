package e2e

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/fairlead/fairlead/test/scale"
)

const (
	lockPrefix = "lock/"
	lockTTL    = 2 // seconds: the shortest that servers give
	doneFor    = "done/"
)

// TestClusterLocks: clients take a lock as etcd's own client does, and write what only
// its holder may, fenced by the revision of the lock, while leaders are killed, stand
// still and are cut off, and while clients themselves sleep for longer than their
// leases. No write of a holder comes after one of a later holder, and none that was
// acknowledged is missing.
func TestClusterLocks(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3, 2)
	ctx, stop := context.WithCancel(context.Background())
	w := &lockers{c: c, acked: map[string]int64{}}
	t.Cleanup(func() { stop(); w.running.Wait() })
	for i := range 6 {
		w.running.Go(func() { w.client(ctx, i, c.others[i%len(c.others)]) })
	}
	for i := range max(scale.N(30), 3) {
		w.goesOn()
		leader := c.leader(c.servers...)
		switch i % 3 {
		case 0:
			leader.kill()
			w.goesOn()
			leader.up()
		case 1:
			leader.proc.Stop()
			lasts(time.Second + c.draw.upTo(3*time.Second))
			leader.proc.Cont()
		case 2:
			c.topo.Isolate(leader.node)
			lasts(c.draw.upTo(4 * time.Second))
			c.topo.Heal()
		}
		c.eventually(30*time.Second, "all follow one", func() error { _, err := c.leads(c.servers...); return err })
	}
	c.eventually(90*time.Second, "somebody came too late", func() error {
		if w.fenced.Load() == 0 {
			return errNotYet
		}
		return nil
	})
	w.goesOn()
	stop()
	w.running.Wait()
	w.judge()
}

// lockers are clients that want one lock.
type lockers struct {
	c       *cluster
	running sync.WaitGroup
	fenced  atomic.Int64 // writes that came too late

	mu    sync.Mutex
	acked map[string]int64 // by key: the revision of the lock it was written under
}

// goesOn waits until some holder has written something.
func (w *lockers) goesOn() {
	w.c.t.Helper()
	count := func() int {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.acked)
	}
	before := count()
	w.c.eventually(60*time.Second, "holders write", func() error {
		if count() < before+5 {
			return errNotYet
		}
		return nil
	})
}

// client takes the lock again and again.
func (w *lockers) client(ctx context.Context, number int, n *storeNode) {
	for turn := 0; ctx.Err() == nil; turn++ {
		if err := w.turn(ctx, fmt.Sprintf("%d-%d", number, turn), n, turn%4 == 3); err != nil {
			lasts(50 * time.Millisecond) // nobody leads, maybe
		}
	}
}

// lockCall bounds a call of a client.
const lockCall = time.Second

// turn takes the lock once, writes, and lets it go. Who sleeps does so with the lock.
func (w *lockers) turn(ctx context.Context, name string, n *storeNode, sleeps bool) error {
	leases := pb.NewLeaseClient(n.conn)
	call, cancel := context.WithTimeout(ctx, lockCall)
	granted, err := leases.LeaseGrant(call, &pb.LeaseGrantRequest{TTL: lockTTL})
	cancel()
	if err != nil {
		return err
	}
	own := []byte(fmt.Sprintf("%s%x", lockPrefix, granted.ID))
	alive, end := context.WithCancel(ctx)
	var renewing sync.WaitGroup
	defer renewing.Wait()
	defer end()
	renewing.Go(func() { renew(alive, leases, granted.ID) })
	defer func() {
		call, cancel := context.WithTimeout(context.WithoutCancel(ctx), lockCall)
		defer cancel()
		_, _ = leases.LeaseRevoke(call, &pb.LeaseRevokeRequest{ID: granted.ID}) // or it ends by itself
	}()
	token, err := enter(ctx, n, own, granted.ID)
	if err != nil {
		return err
	}
	for i := range 6 {
		if sleeps && i == 3 {
			end()
			lasts((lockTTL + 2) * time.Second)
		}
		if err := w.write(ctx, n, own, token, fmt.Sprintf("%s%s-%d", doneFor, name, i)); err != nil {
			return err
		}
	}
	return nil
}

// renew keeps a lease alive.
func renew(ctx context.Context, leases pb.LeaseClient, id int64) {
	tick := time.NewTicker(lockTTL * time.Second / 4)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		call, cancel := context.WithTimeout(ctx, lockCall)
		if stream, err := leases.LeaseKeepAlive(call); err == nil && stream.Send(&pb.LeaseKeepAliveRequest{ID: id}) == nil {
			_, _ = stream.Recv() // without an answer it is tried again
		}
		cancel()
	}
}

// enter waits until the key is the oldest of all that want the lock, and returns the
// revision that it has it by.
func enter(ctx context.Context, n *storeNode, own []byte, lease int64) (int64, error) {
	for ctx.Err() == nil {
		call, cancel := context.WithTimeout(ctx, lockCall)
		_, err := n.kv().Txn(call, &pb.TxnRequest{ // if it is not there yet
			Compare: []*pb.Compare{{Key: own, Target: pb.Compare_CREATE, TargetUnion: &pb.Compare_CreateRevision{}}},
			Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: own, Lease: lease}}}},
		})
		if err == nil {
			var first *pb.RangeResponse
			first, err = n.kv().Range(call, &pb.RangeRequest{
				Key: []byte(lockPrefix), RangeEnd: []byte("lock0"), Limit: 1, SortTarget: pb.RangeRequest_CREATE, SortOrder: pb.RangeRequest_ASCEND,
			})
			if len(first.GetKvs()) == 1 && string(first.Kvs[0].Key) == string(own) {
				cancel()
				return first.Kvs[0].CreateRevision, nil
			}
		}
		cancel()
		if err != nil && strings.Contains(err.Error(), "lease not found") {
			return 0, err
		}
		lasts(30 * time.Millisecond)
	}
	return 0, ctx.Err()
}

var errFenced = errors.New("the lock is another's")

// write does what only the holder may: if the lock is still that of the revision.
func (w *lockers) write(ctx context.Context, n *storeNode, own []byte, token int64, key string) error {
	call, cancel := context.WithTimeout(ctx, lockCall)
	defer cancel()
	r, err := n.kv().Txn(call, &pb.TxnRequest{
		Compare: []*pb.Compare{{Key: own, Target: pb.Compare_CREATE, TargetUnion: &pb.Compare_CreateRevision{CreateRevision: token}}},
		Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte(key), Value: []byte(strconv.FormatInt(token, 10))}}}},
	})
	switch {
	case err != nil:
		return err
	case !r.Succeeded:
		w.fenced.Add(1)
		return errFenced
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.acked[key] = token
	return nil
}

// judge sees what is in the store.
func (w *lockers) judge() {
	t := w.c.t
	t.Helper()
	var r *pb.RangeResponse
	w.c.eventually(20*time.Second, "what was written", func() (err error) {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		r, err = w.c.others[0].kv().Range(ctx, &pb.RangeRequest{
			Key: []byte(doneFor), RangeEnd: []byte("done0"), SortTarget: pb.RangeRequest_MOD, SortOrder: pb.RangeRequest_ASCEND,
		})
		return err
	})
	holders, last := map[int64]bool{}, int64(0)
	for _, kv := range r.Kvs {
		token, err := strconv.ParseInt(string(kv.Value), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if token < last {
			t.Errorf("%s was written at revision %d by the holder of %d, after the holder of %d", kv.Key, kv.ModRevision, token, last)
		}
		last = max(last, token)
		holders[token] = true
		if kv.Version != 1 {
			t.Errorf("%s was written %d times", kv.Key, kv.Version)
		}
		if was, is := w.acked[string(kv.Key)]; is && was != token {
			t.Errorf("%s has the revision %d, want %d", kv.Key, token, was)
		}
		delete(w.acked, string(kv.Key))
	}
	for key := range w.acked {
		t.Errorf("%s was acknowledged and is not there", key)
	}
	t.Logf("%d writes of %d holders, %d came too late", len(r.Kvs), len(holders), w.fenced.Load())
	if len(holders) < 5 {
		t.Errorf("%d holders only: that shows nothing", len(holders))
	}
}

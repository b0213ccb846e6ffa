package interop

import (
	"crypto/sha256"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/clientv3util"
	"go.etcd.io/etcd/client/v3/leasing"
	"go.etcd.io/etcd/client/v3/mirror"
	"go.etcd.io/etcd/client/v3/namespace"
	"go.etcd.io/etcd/client/v3/ordering"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fairlead/fairlead/test/await"
)

// The library's namespace puts a prefix before all keys, in both directions.
func TestNamespace(t *testing.T) {
	everywhere(t, func(t *testing.T, endpoints []string) {
		ctx, c := soon(t), client(t, endpoints...)
		prefix := t.Name() + "/"
		kv, watcher, lease := namespace.NewKV(c, prefix), namespace.NewWatcher(c, prefix), namespace.NewLease(c, prefix)
		defer watcher.Close()
		granted, err := lease.Grant(ctx, 60)
		if err != nil {
			t.Fatal(err)
		}
		put, err := kv.Put(ctx, "a", "1", clientv3.WithLease(granted.ID))
		if err != nil {
			t.Fatal(err)
		}
		if r := <-watcher.Watch(ctx, "", clientv3.WithPrefix(), clientv3.WithRev(put.Header.Revision)); r.Err() != nil || string(r.Events[0].Kv.Key) != "a" {
			t.Errorf("%v, %v", r.Events, r.Err())
		}
		txn, err := kv.Txn(ctx).If(clientv3util.KeyExists("a"), clientv3util.KeyMissing("b")).
			Then(clientv3.OpTxn(nil, []clientv3.Op{clientv3.OpPut("b", "2")}, nil), clientv3.OpGet("", clientv3.WithPrefix())).Commit()
		if err != nil || !txn.Succeeded || len(txn.Responses[1].GetResponseRange().Kvs) != 2 {
			t.Errorf("%v, %v", txn, err)
		}
		if left, err := lease.TimeToLive(ctx, granted.ID, clientv3.WithAttachedKeys()); err != nil || len(left.Keys) != 1 || string(left.Keys[0]) != "a" {
			t.Errorf("%v, %v", left, err)
		}
		if r, err := c.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly()); err != nil || r.Count != 2 {
			t.Errorf("%v, %v", r, err)
		}
		if _, err := lease.Revoke(ctx, granted.ID); err != nil {
			t.Error(err)
		}
		if r, err := kv.Get(ctx, "a"); err != nil || r.Count != 0 {
			t.Errorf("after its lease ended: %v, %v", r, err)
		}
	})
}

// Old reads of any server never show less than what the client saw before.
func TestOrdering(t *testing.T) {
	everywhere(t, func(t *testing.T, endpoints []string) {
		ctx, c := soon(t), client(t, endpoints...)
		key := t.Name()
		for i := range 50 {
			kv := ordering.NewKV(c, ordering.NewOrderViolationSwitchEndpointClosure(c))
			if _, err := kv.Get(ctx, key); err != nil {
				t.Fatal(err)
			}
			put, err := c.Put(ctx, key, fmt.Sprint(i))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := kv.Get(ctx, key); err != nil { // linearizable: from here on the put counts
				t.Fatal(err)
			}
			r, err := kv.Get(ctx, key, clientv3.WithSerializable())
			if err != nil && strings.Contains(err.Error(), ordering.ErrNoGreaterRev.Error()) {
				continue // none of them had it yet, and the client says so
			}
			if err != nil || r.Header.Revision < put.Header.Revision {
				t.Errorf("%v after revision %d: %v", r, put.Header.Revision, err)
			}
		}
	})
}

// The library's leased cache is told of writes of others.
func TestLeasing(t *testing.T) {
	everywhere(t, func(t *testing.T, endpoints []string) {
		ctx, c := soon(t), client(t, endpoints...)
		one, end, err := leasing.NewKV(c, t.Name()+"/leases/")
		if err != nil {
			t.Fatal(err)
		}
		defer end()
		two, end, err := leasing.NewKV(client(t, endpoints...), t.Name()+"/leases/")
		if err != nil {
			t.Fatal(err)
		}
		defer end()
		for i := range 5 {
			if _, err := two.Put(ctx, t.Name(), fmt.Sprint(i)); err != nil {
				t.Fatal(err)
			}
			for range 2 { // the second is of its own cache
				if r, err := one.Get(ctx, t.Name()); err != nil || string(r.Kvs[0].Value) != fmt.Sprint(i) {
					t.Fatalf("%v, %v, want %d", r, err, i)
				}
			}
		}
	})
}

// The library's mirror copies what is there, and then what comes.
func TestMirror(t *testing.T) {
	everywhere(t, func(t *testing.T, endpoints []string) {
		ctx, c := soon(t), client(t, endpoints...)
		want, got := map[string]string{}, map[string]string{}
		put := func(i int) {
			key, value := fmt.Sprintf("%s/%d", t.Name(), i), fmt.Sprint(i)
			if _, err := c.Put(ctx, key, value); err != nil {
				t.Fatal(err)
			}
			want[key] = value
		}
		for i := range 20 {
			put(i)
		}
		syncer := mirror.NewSyncer(c, t.Name(), 0)
		base, failed := syncer.SyncBase(ctx)
		for r := range base {
			for _, kv := range r.Kvs {
				got[string(kv.Key)] = string(kv.Value)
			}
		}
		if err := <-failed; err != nil {
			t.Fatal(err)
		}
		for i := range 20 {
			put(i + 10)
		}
		updates := syncer.SyncUpdates(ctx)
		for seen := 0; seen < 20; {
			r := <-updates
			if r.Err() != nil {
				t.Fatal(r.Err())
			}
			for _, e := range r.Events {
				got[string(e.Kv.Key)] = string(e.Kv.Value)
				seen++
			}
		}
		if !maps.Equal(want, got) {
			t.Errorf("%v, want %v", got, want)
		}
	})
}

// Sync learns the endpoints of all servers from any agent.
func TestSync(t *testing.T) {
	set := sharing(t, "set", startSet)
	var want []string
	for _, endpoint := range set.endpoints[:3] {
		want = append(want, "http://"+endpoint)
	}
	slices.Sort(want)
	for _, endpoint := range set.endpoints {
		c := client(t, endpoint)
		await.Until(t, func() string { // each server says where it is when it gets to it
			if err := c.Sync(soon(t)); err != nil {
				t.Fatal(err)
			}
			got := c.Endpoints()
			if slices.Sort(got); !slices.Equal(got, want) {
				return fmt.Sprintf("by %s: %q, want %q", endpoint, got, want)
			}
			return ""
		})
		if _, err := c.Put(soon(t), t.Name(), endpoint); err != nil {
			t.Errorf("a write by those endpoints: %v", err)
		}
	}
}

// Maintenance by the library, and what there is not.
func TestMaintenance(t *testing.T) {
	everywhere(t, func(t *testing.T, endpoints []string) {
		ctx, c := soon(t), client(t, endpoints...)
		if _, err := c.Put(ctx, t.Name(), strings.Repeat("x", 1<<20)); err != nil {
			t.Fatal(err)
		}
		members, err := c.MemberList(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, endpoint := range endpoints {
			known := func(id uint64) bool {
				return slices.ContainsFunc(members.Members, func(m *pb.Member) bool { return m.ID == id })
			}
			await.Until(t, func() string { // one may be elected just now
				st, err := c.Status(ctx, endpoint)
				if err != nil {
					t.Fatal(err)
				}
				if !known(st.Header.MemberId) || !known(st.Leader) || st.RaftIndex < st.RaftAppliedIndex || st.RaftTerm == 0 || st.DbSize == 0 || st.IsLearner || len(st.Errors) > 0 {
					return fmt.Sprintf("status of %s: %v", endpoint, st)
				}
				return ""
			})
			if h, err := c.HashKV(ctx, endpoint, 0); err != nil || h.HashRevision < 2 {
				t.Errorf("%v, %v", h, err)
			}
		}
		if a, err := c.AlarmList(ctx); err != nil || len(a.Alarms) != 0 {
			t.Errorf("%v, %v", a, err)
		}
		blob, err := c.SnapshotWithVersion(ctx)
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(blob.Snapshot)
		if err != nil || len(data) < 1<<20 {
			t.Fatal(len(data), err)
		}
		body, sum := data[:len(data)-sha256.Size], data[len(data)-sha256.Size:]
		if got := sha256.Sum256(body); string(got[:]) != string(sum) {
			t.Error("a backup does not end in its hash")
		}
		_, add := c.MemberAdd(ctx, []string{"http://127.0.0.1:1"})
		_, remove := c.MemberRemove(ctx, 1)
		_, promote := c.MemberPromote(ctx, 1)
		_, auth := c.AuthStatus(ctx)
		_, user := c.UserAdd(ctx, "x", "y")
		_, downgrade := c.Downgrade(ctx, clientv3.DowngradeValidate, "3.5.0")
		for what, err := range map[string]error{"member add": add, "member remove": remove, "member promote": promote, "auth status": auth, "user add": user, "downgrade": downgrade} {
			if status.Code(err) != codes.Unimplemented {
				t.Errorf("%s: %v", what, err)
			}
		}
		if _, err := c.Delete(ctx, t.Name()); err != nil {
			t.Error(err)
		}
	})
}

// Watches go on where they were when the agent that serves them is killed and comes
// back, be it a server or one that passes on.
func TestWatchOverRestart(t *testing.T) {
	set := own(t, startSet)
	ctx := soon(t)
	writer := client(t, set.endpoints[:3]...)
	for _, i := range []int{0, 3} {
		a := set.agents[i]
		prefix := fmt.Sprintf("k%d/", i)
		seen := client(t, a.api).Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithCreatedNotify())
		if r := <-seen; !r.Created {
			t.Fatal(r)
		}
		var written atomic.Int64
		stop, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			for {
				select {
				case <-stop:
					return
				default:
				}
				// What fails while a leader is elected may have been done: the value says
				// which one it is.
				if _, err := writer.Put(ctx, fmt.Sprint(prefix, "x"), fmt.Sprint(written.Load())); err == nil {
					written.Add(1)
				} else if ctx.Err() != nil {
					t.Error(err)
					return
				}
			}
		}()
		next := 0
		read := func(until func() bool) {
			for !until() {
				r := <-seen
				if err := r.Err(); err != nil {
					t.Fatal(err)
				}
				for _, e := range r.Events {
					switch value := string(e.Kv.Value); value {
					case fmt.Sprint(next):
						next++
					case fmt.Sprint(next - 1): // it was tried again
					default:
						t.Fatalf("event %d is %s", next, value)
					}
				}
			}
		}
		read(func() bool { return next > 20 })
		a.end(syscall.SIGKILL)
		before := written.Load()
		await.For(t, "writes while an agent is away", func() bool { return written.Load() >= before+20 })
		if err := a.start(); err != nil {
			t.Fatal(err)
		}
		read(func() bool { return next > int(before)+40 })
		close(stop)
		<-done
		read(func() bool { return next == int(written.Load()) })
	}
}

// Leases are kept alive while another server comes to lead: by a client of all
// servers, and by one of an agent that is none.
func TestKeepAliveOverLeaderChange(t *testing.T) {
	set := own(t, startSet)
	ctx := soon(t)
	c := client(t, set.endpoints[:3]...)
	kept := map[string]<-chan *clientv3.LeaseKeepAliveResponse{}
	for name, c := range map[string]*clientv3.Client{"of three": c, "no server": client(t, set.endpoints[3])} {
		granted, err := c.Grant(ctx, 6) // the library gives it up when it has not heard of it for so long
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Put(ctx, name, "here", clientv3.WithLease(granted.ID)); err != nil {
			t.Fatal(err)
		}
		if kept[name], err = c.KeepAlive(ctx, granted.ID); err != nil {
			t.Fatal(err)
		}
		if <-kept[name] == nil {
			t.Fatal("it is not kept")
		}
	}
	leader := -1
	await.For(t, "somebody to lead", func() bool {
		for i, endpoint := range set.endpoints[:3] {
			if st, err := c.Status(ctx, endpoint); err == nil && st.Leader == st.Header.MemberId {
				leader = i
			}
		}
		return leader >= 0
	})
	set.agents[leader].end(syscall.SIGKILL)
	for name, kept := range kept {
		for range 6 { // one each two seconds: twice the lease's time
			if r := <-kept; r == nil {
				t.Fatalf("%s: the lease ended while another leader was elected", name)
			}
		}
		if r, err := c.Get(ctx, name); err != nil || r.Count != 1 {
			t.Errorf("%s: %v, %v", name, r, err)
		}
	}
}

// A client that takes fragments is given in one answer what is longer than any may
// be, as of etcd.
func TestFragmentsAreOneAnswer(t *testing.T) {
	test := func(t *testing.T, endpoints []string) {
		ctx := soon(t)
		c := client(t, endpoints...)
		const n = 6
		var first int64
		for i := range n {
			r, err := c.Put(ctx, fmt.Sprint(t.Name(), "/", i), strings.Repeat("x", 1<<20))
			if err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				first = r.Header.Revision
			}
		}
		for _, endpoint := range endpoints { // whichever is watched has all of it
			if r, err := client(t, endpoint).Get(ctx, t.Name()+"/", clientv3.WithPrefix(), clientv3.WithCountOnly()); err != nil || r.Count != n {
				t.Fatal(r, err)
			}
		}
		r := <-c.Watch(ctx, t.Name()+"/", clientv3.WithPrefix(), clientv3.WithRev(first), clientv3.WithFragment())
		if err := r.Err(); err != nil || len(r.Events) != n {
			t.Errorf("%d events, %v", len(r.Events), err)
		}
		if _, err := c.Delete(ctx, t.Name(), clientv3.WithPrefix()); err != nil {
			t.Error(err)
		}
	}
	everywhere(t, test)
	t.Run("etcd", func(t *testing.T) { test(t, peer(t).endpoints) })
}

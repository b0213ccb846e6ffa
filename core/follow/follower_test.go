package follow

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/fairlead/fairlead/core/api/etcd"
	"github.com/fairlead/fairlead/core/api/etcd/etcdtest"
	"github.com/fairlead/fairlead/core/store"
	"github.com/fairlead/fairlead/test/await"
)

// A copy is the whole keyspace, in more than a page, and then every change.
func TestFollows(t *testing.T) {
	n := newNode(t, 1, "n1")
	for i := range 2*pageKeys + 3 {
		n.put(fmt.Sprintf("k/%04d", i), "v")
	}
	a := newAgent(t, n)
	a.start()
	a.has(n)
	n.put("k/0001", "another")
	n.put("new", "v")
	n.delete("k/0002")
	a.has(n)
	if kv, ok := a.State().Get("k/0001"); !ok || string(kv.Value) != "another" || kv.Version != 2 || kv.Mod <= kv.Create {
		t.Errorf("%+v, %v", kv, ok)
	}
	if _, ok := a.State().Get("k/0002"); ok {
		t.Error("a deleted key is there")
	}
	if keys := slices.Collect(a.State().Range("k/000")); len(keys) != 9 || keys[0].Key != "k/0000" || keys[8].Key != "k/0009" {
		t.Errorf("%v", brief(keys))
	}
	for range a.State().Range("k/") {
		break
	}
	st := a.Follower.Status()
	if st.Cluster != 0xabcd || st.Revision != n.store.View().Stats(store.System).Revision || st.Keys != 2*pageKeys+4 || st.Server != "n1" || st.Address != n.Address || st.Problem != "" {
		t.Errorf("%+v", st)
	}
}

// What is here is the system keyspace, and nothing of the user's.
func TestFollowsTheSystemOnly(t *testing.T) {
	n := newNode(t, 1, "n1")
	if _, err := n.kv.Put(t.Context(), &pb.PutRequest{Key: []byte("user"), Value: []byte("v")}); err != nil {
		t.Fatal(err)
	}
	a := newAgent(t, n)
	a.start()
	a.reaches(n.put("system", "v"))
	if _, ok := a.State().Get("user"); ok {
		t.Error("a key of the user is there")
	}
}

// A state that was taken stays as it is.
func TestStatesStay(t *testing.T) {
	n := newNode(t, 1, "n1")
	first := n.put("k", "1")
	a := newAgent(t, n)
	a.start()
	a.reaches(first)
	old := a.State()
	revision := old.Revision()
	n.put("l", "1")
	a.reaches(n.put("k", "2"))
	if kv, _ := old.Get("k"); string(kv.Value) != "1" || old.Revision() != revision {
		t.Errorf("%+v at %d", kv, old.Revision())
	}
	if _, ok := old.Get("l"); ok {
		t.Error("a later key is there")
	}
}

// After a time away it goes on from where it was, without reading anew; and reads
// anew if the history is compacted.
func TestAway(t *testing.T) {
	n := newNode(t, 1, "n1")
	a := newAgent(t, n)
	a.start()
	a.reaches(n.put("gone", "v"))
	a.Stop()
	n.delete("gone")
	n.put("k", "v")
	a.start()
	a.has(n)
	if got := value(t, a, "fairlead_follow_reads_total", ""); got != 0 {
		t.Errorf("it read anew %v times", got)
	}
	a.Stop()
	n.delete("k")
	n.put("l", "v")
	n.compact(n.put("m", "v"))
	a.start()
	a.has(n)
	if got := value(t, a, "fairlead_follow_reads_total", ""); got != 1 {
		t.Errorf("it read anew %v times", got)
	}
	// And goes on.
	n.put("n", "v")
	a.has(n)
}

// A compaction while it reads makes it begin again.
func TestCompactedWhileReading(t *testing.T) {
	n := newNode(t, 1, "n1")
	for i := range 2 * pageKeys {
		n.put(fmt.Sprintf("k/%04d", i), "v")
	}
	var once atomic.Bool
	n.holding(func(method string, answer any) {
		if r, is := answer.(*pb.RangeResponse); is && r.More && once.CompareAndSwap(false, true) {
			_, err := n.store.Propose(n.ctx(), store.Command{Space: store.System, Op: &store.Op{Put: &store.PutOp{Key: "k/0000", Value: []byte("w")}}})
			if err == nil {
				_, err = n.store.Propose(n.ctx(), store.Command{Space: store.System, Compact: &store.Compact{Revision: n.store.View().Stats(store.System).Revision}})
			}
			if err != nil {
				t.Error(err)
			}
		}
	})
	a := newAgent(t, n)
	a.start()
	a.follows(n)
	if !once.Load() {
		t.Error("nothing was compacted")
	}
	a.has(n)
}

// What is written while it reads is in all pages or in none.
func TestWrittenWhileReading(t *testing.T) {
	n := newNode(t, 1, "n1")
	last := fmt.Sprintf("k/%04d", 2*pageKeys-1)
	for i := range 2 * pageKeys {
		n.put(fmt.Sprintf("k/%04d", i), "old")
	}
	var once atomic.Bool
	n.holding(func(_ string, answer any) {
		if r, is := answer.(*pb.RangeResponse); is && r.More && once.CompareAndSwap(false, true) {
			op := store.Op{Txn: &store.TxnOp{Then: []store.Op{
				{Put: &store.PutOp{Key: "k/0000", Value: []byte("new")}}, {Put: &store.PutOp{Key: last, Value: []byte("new")}},
			}}}
			if _, err := n.store.Propose(n.ctx(), store.Command{Space: store.System, Op: &op}); err != nil {
				t.Error(err)
			}
		}
	})
	a := newAgent(t, n)
	// The first state that there is is looked at, before the watch changes it.
	var first atomic.Pointer[string]
	a.cfg.Dial = func(s Server, o ...grpc.DialOption) (*grpc.ClientConn, error) {
		o = append(o, grpc.WithStreamInterceptor(func(ctx context.Context, d *grpc.StreamDesc, c *grpc.ClientConn, method string, next grpc.Streamer, o ...grpc.CallOption) (grpc.ClientStream, error) {
			one, _ := a.State().Get("k/0000")
			two, _ := a.State().Get(last)
			values := string(one.Value) + " " + string(two.Value)
			first.CompareAndSwap(nil, &values)
			return next(ctx, d, c, method, o...)
		}))
		return dial(s, o...)
	}
	ready := make(chan struct{})
	servers := a.cfg.Servers
	a.cfg.Servers = func() []Server { <-ready; return servers() }
	a.start()
	close(ready)
	a.follows(n)
	a.has(n)
	if got := first.Load(); got == nil || *got != "old old" {
		t.Errorf("the first state has %q", *got)
	}
}

// A server that comes back is followed again.
func TestServerRestarts(t *testing.T) {
	n := newNode(t, 1, "n1")
	a := newAgent(t, n)
	a.start()
	a.reaches(n.put("k", "v"))
	a.follows(n)
	n.kill()
	a.complains("n1")
	if _, ok := a.State().Get("k"); !ok {
		t.Error("what was known is forgotten")
	}
	n.listen()
	a.reaches(n.put("k", "w"))
	a.follows(n)
}

// One that loses its leader is left for another; without any, what is known stays.
func TestLeaderIsLost(t *testing.T) {
	b, c := newNode(t, 1, "n1"), newNode(t, 2, "n2")
	a := newAgent(t, b)
	a.start()
	a.follows(b)
	for c.put("k", "v") < b.store.View().Stats(store.System).Revision+1 {
	}
	a.know(b, c)
	b.store.HideLeader(true)
	a.follows(c)
	a.reaches(c.put("k", "v"))
	c.store.HideLeader(true)
	a.complains("no leader")
	none := func() int { return a.log.count("no server of the store can be followed") }
	await.For(t, "a word in the log", func() bool { return none() > 0 })
	if got := value(t, a, "fairlead_follow_left_total", leftLeaderless); got < 2 {
		t.Errorf("left %v times for want of a leader", got)
	}
	if _, ok := a.State().Get("k"); !ok {
		t.Error("what was known is forgotten")
	}
	c.store.HideLeader(false)
	a.follows(c)
	if got := none(); got != 1 {
		t.Errorf("it was said %d times that there is none", got)
	}
}

// While a server is good, no other is asked.
func TestStays(t *testing.T) {
	b, c := newNode(t, 1, "n1"), newNode(t, 2, "n2")
	var asked atomic.Int64
	c.holding(func(string, any) { asked.Add(1) })
	a := newAgent(t, b)
	a.start()
	a.follows(b)
	a.know(b, c)
	for i := range 5 {
		a.reaches(b.put("k", fmt.Sprint(i)))
	}
	a.know(c) // it is not known any more, but it answers
	a.reaches(b.put("k", "last"))
	if n := asked.Load(); n != 0 {
		t.Errorf("another server was asked %d times", n)
	}
}

// It never goes back: a server with a lower revision is left, and the next start
// knows it too.
func TestOlderServer(t *testing.T) {
	b, old := newNode(t, 1, "n1"), newNode(t, 2, "n2")
	a := newAgent(t, b)
	a.start()
	for range 5 {
		b.put("k", "new")
	}
	a.has(b)
	revision := a.State().Revision()
	a.know(old)
	b.kill()
	a.complains("revision")
	a.restart()
	a.complains("`fairlead raft follow 000000000000abcd` on this node")
	if kv, _ := a.State().Get("k"); string(kv.Value) != "new" || a.State().Revision() != revision {
		t.Errorf("it went back: %+v, %d", kv, a.State().Revision())
	}
	// Once it has caught up, it is as good as any.
	for old.put("k", "newer") <= revision {
	}
	a.follows(old)
	a.reaches(old.put("k", "newest"))
	if kv, _ := a.State().Get("k"); string(kv.Value) != "newest" {
		t.Errorf("%+v", kv)
	}
}

// Servers of another cluster are refused, until an operator takes the copy away.
func TestOtherCluster(t *testing.T) {
	b, other := newNode(t, 1, "n1"), newNode(t, 2, "n2")
	other.front.Set(etcd.New(etcd.Config{Store: foreign{other.store}, MinLease: time.Second}))
	a := newAgent(t, b)
	a.start()
	a.reaches(b.put("k", "v"))
	for range 10 {
		other.put("k", "foreign")
	}
	b.kill()
	a.know(other)
	a.complains("it is of cluster 0000000000000bad, and what is known here of cluster 000000000000abcd")
	a.complains("`fairlead raft follow 0000000000000bad` on this node")
	a.restart()
	a.complains("0bad")
	await.For(t, "a word in the log", func() bool { return a.log.count("of another cluster") >= 1 })
	if kv, _ := a.State().Get("k"); string(kv.Value) != "v" {
		t.Errorf("%+v", kv)
	}
	a.Stop()
	if err := os.Remove(a.cfg.File); err != nil {
		t.Fatal(err)
	}
	a.start()
	a.follows(other)
	if kv, _ := a.State().Get("k"); string(kv.Value) != "foreign" {
		t.Errorf("%+v", kv)
	}
}

// foreign is a server that says that it is of another cluster.
type foreign struct{ *etcdtest.Server }

func (f foreign) Header() etcd.Header {
	h := f.Server.Header()
	h.ClusterID = 0xbad
	return h
}

// A server that answers nothing any more is left.
func TestSilentServer(t *testing.T) {
	b, c := newNode(t, 1, "n1"), newNode(t, 2, "n2")
	for c.put("k", "v") < 5 {
	}
	a := newAgent(t, b)
	a.cfg.times.silent = 20
	a.start()
	a.follows(b)
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	b.holding(func(method string, _ any) {
		if method == pb.Watch_Watch_FullMethodName {
			<-release
		}
	})
	a.know(b, c)
	await.For(t, "the silent one is left", func() bool { return value(t, a, "fairlead_follow_left_total", leftSilent) >= 1 })
	a.follows(c)
}

// A slow server that answers is kept.
func TestSlowServer(t *testing.T) {
	n := newNode(t, 1, "n1")
	n.holding(func(string, any) { <-time.After(30 * time.Millisecond) })
	a := newAgent(t, n)
	a.start()
	for i := range 10 {
		n.put("k", fmt.Sprint(i))
	}
	a.has(n)
	a.follows(n)
	if got := value(t, a, "fairlead_follow_left_total", leftSilent) + value(t, a, "fairlead_follow_left_total", leftBroken); got != 0 {
		t.Errorf("it was left %v times", got)
	}
}

// Events of one revision are taken together, in as many pieces as they come.
func TestRevisionsAreWhole(t *testing.T) {
	n := newNode(t, 1, "n1")
	a := newAgent(t, n)
	large := func(value string) {
		txn := &pb.TxnRequest{}
		for i := range 4 {
			txn.Success = append(txn.Success, &pb.RequestOp{Request: &pb.RequestOp_RequestPut{
				RequestPut: &pb.PutRequest{Key: fmt.Appendf(nil, "large/%d", i), Value: bytes.Repeat([]byte(value), 300<<10)},
			}})
		}
		if _, err := n.kv.Txn(n.ctx(), txn); err != nil {
			t.Fatal(err)
		}
	}
	a.start()
	large("a")
	a.has(n)
	a.Stop()
	// Several revisions of more than a megabyte are sent at once.
	large("b")
	large("c")
	large("d")
	var pieces atomic.Int64
	n.holding(func(_ string, answer any) {
		if r, is := answer.(*pb.WatchResponse); is && r.Fragment {
			pieces.Add(1)
		}
	})
	a.start()
	for st, changed := a.State(), a.Changed(); ; st, changed = a.State(), a.Changed() {
		var values []byte
		for kv := range st.Range("large/") {
			values = append(values, kv.Value[0])
		}
		switch string(values) {
		case "aaaa", "bbbb", "cccc":
		case "dddd":
			a.has(n)
			if pieces.Load() == 0 {
				t.Error("it came in one piece")
			}
			return
		default:
			t.Fatalf("part of a revision is there: %s", values)
		}
		<-changed
	}
}

// Pieces of a revision are not the revision.
func TestPieces(t *testing.T) {
	n := newNode(t, 1, "n1")
	a := newAgent(t, n)
	n.holding(func(_ string, answer any) {
		if r, is := answer.(*pb.WatchResponse); is && len(r.Events) > 0 && string(r.Events[0].Kv.Key) == "half" {
			r.Fragment = true
		}
	})
	a.start()
	a.follows(n)
	before := n.store.View().Stats(store.System).Revision
	n.put("half", "v")
	// The answers to how far it is go on.
	asked := a.Follower.Status().Current
	await.For(t, "answers", func() bool { return a.Follower.Status().Current.After(asked.Add(50 * time.Millisecond)) })
	if r := a.State().Revision(); r != before {
		t.Errorf("revision %d is taken, though it is not whole", r)
	}
	n.put("rest", "v")
	a.has(n)
}

// The age is the time since a server said that this is all.
func TestAge(t *testing.T) {
	n := newNode(t, 1, "n1")
	a := newAgent(t, n)
	if _, known := (Status{}).Age(time.Now()); known {
		t.Error("the age of nothing is known")
	}
	a.start()
	a.follows(n)
	begun := time.Now()
	await.For(t, "a newer answer", func() bool { return a.Follower.Status().Current.After(begun) })
	n.kill()
	a.complains("n1")
	at := a.Follower.Status().Current
	a.restart()
	st := a.Follower.Status()
	if !st.Current.Equal(at) {
		t.Errorf("current %v after a restart, before %v", st.Current, at)
	}
	if age, known := st.Age(at.Add(time.Minute)); !known || age != time.Minute {
		t.Errorf("%v, %v", age, known)
	}
	if age, _ := st.Age(at.Add(-time.Minute)); age != 0 {
		t.Errorf("%v", age)
	}
	if got := value(t, a, "fairlead_follow_age_seconds", ""); got <= 0 {
		t.Errorf("the age is shown as %v", got)
	}
}

// Without a server, and without a file, nothing is known, and it says why.
func TestNobody(t *testing.T) {
	a := newAgent(t)
	a.cfg.Nobody = "name the servers in raft.peers"
	a.start()
	a.complains("raft.peers")
	if st := a.State(); st == nil || st.Revision() != 0 || st.Cluster() != 0 || len(slices.Collect(st.Range(""))) != 0 {
		t.Errorf("%+v", st)
	}
	if got := value(t, a, "fairlead_follow_age_seconds", ""); got != -1 {
		t.Errorf("the age of nothing is %v", got)
	}
	n := newNode(t, 1, "n1")
	a.know(n)
	a.follows(n)
	a.Stop()
	a.Stop()
	if got := a.Follower.Status().Problem; got != "this agent stops" {
		t.Error(got)
	}
}

// A dialer that fails is a server that cannot be reached.
func TestDialFails(t *testing.T) {
	n := newNode(t, 1, "n1")
	a := newAgent(t, n)
	a.cfg.Dial = func(Server, ...grpc.DialOption) (*grpc.ClientConn, error) { return nil, errors.New("no secret") }
	a.start()
	a.complains("server n1 at " + n.Address + ": no secret")
}

func TestConfigIsChecked(t *testing.T) {
	if _, err := Start(Config{}); err == nil || !strings.Contains(err.Error(), "required") {
		t.Error(err)
	}
	a := newAgent(t)
	a.start()
	if _, err := Start(a.cfg); err == nil {
		t.Error("metrics of two in one registry")
	}
}

// value returns a metric, that of a label value if one is given.
func value(t *testing.T, a *agent, name, label string) float64 {
	t.Helper()
	families, err := a.cfg.Metrics.(*prometheus.Registry).Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.Metric {
			if label == "" || m.Label[0].GetValue() == label {
				return m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	t.Fatalf("there is no %s{%s}", name, label)
	return 0
}

package follow

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/fairlead/fairlead/core/api/etcd"
	"github.com/fairlead/fairlead/test/await"
)

// begunAnew has an agent know one cluster, and refuse a server of another.
func begunAnew(t *testing.T) (a *agent, was, is *node) {
	t.Helper()
	was, is = newNode(t, 1, "n1"), newNode(t, 2, "n2")
	is.front.Set(etcd.New(etcd.Config{Store: foreign{is.store}, MinLease: time.Second}))
	a = newAgent(t, was)
	a.cfg.times.write = time.Minute // the file is behind
	a.start()
	await.For(t, "the file", func() bool { _, err := os.Stat(a.cfg.File); return err == nil })
	was.put("old", "v")
	for range 5 {
		was.put("k", "was")
	}
	a.has(was)
	is.put("k", "is")
	a.know(is)
	was.kill()
	a.complains("`fairlead raft follow 0000000000000bad`")
	return a, was, is
}

// accept is Accept, for a short time if that is to fail.
func (a *agent) accept(cluster uint64, wait time.Duration) (Accepted, error) {
	ctx, cancel := context.WithTimeout(a.t.Context(), wait)
	defer cancel()
	return a.Accept(ctx, cluster)
}

// An operator's word has servers followed that were begun anew. What was known before
// is kept, the next start has the new one, and the old ones are refused then.
func TestAccept(t *testing.T) {
	a, was, is := begunAnew(t)
	before := a.State()
	got, err := a.accept(0xbad, time.Minute)
	if err != nil || got.Was != before || got.Revision == 0 || got.Keys == 0 || got.KeptAs != a.cfg.File+".before" {
		t.Fatalf("%+v, %v", got, err)
	}
	if _, there := a.State().Get("old"); there || a.State().Cluster() != 0xbad {
		t.Errorf("a key of the old cluster is there: %v", brief(slices.Collect(a.State().Range(""))))
	}
	a.reaches(is.put("l", "v"))
	data, err := os.ReadFile(got.KeptAs)
	if err != nil {
		t.Fatal(err)
	}
	d, _, err := decode(a.cfg.Of, data)
	if err != nil || d.cluster != before.Cluster() {
		t.Fatalf("what is kept: %+v, %v", d, err)
	}
	if _, is := d.copy().Get("old"); !is {
		t.Error("what is kept lacks a key")
	}
	is.kill()
	a.restart()
	if a.State().Cluster() != 0xbad {
		t.Errorf("the next start has %x", a.State().Cluster())
	}
	was.listen()
	a.know(was)
	a.complains("`fairlead raft follow 000000000000abcd`")
}

// Only what is refused can be accepted, and only what answers.
func TestAcceptInVain(t *testing.T) {
	a, _, is := begunAnew(t)
	if _, err := a.accept(0xabcd, time.Minute); !errors.Is(err, ErrNotRefused) || !strings.Contains(err.Error(), "refused are: 0000000000000bad") {
		t.Errorf("%v", err)
	}
	before := a.State()
	is.kill()
	if _, err := a.accept(0xbad, 100*time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	is.listen()
	a.complains("`fairlead raft follow 0000000000000bad`") // the word was for then
	if a.State() != before {
		t.Errorf("%v", brief(slices.Collect(a.State().Range(""))))
	}
}

// Servers of the same cluster that lost what they had are followed by the same word.
func TestAcceptOlder(t *testing.T) {
	n, old := newNode(t, 1, "n1"), newNode(t, 2, "n2")
	a := newAgent(t, n)
	a.start()
	for range 5 {
		n.put("k", "new")
	}
	a.has(n)
	a.know(old)
	n.kill()
	a.complains("revision")
	old.put("k", "old")
	got, err := a.accept(0xabcd, time.Minute)
	if err != nil || got.Revision >= got.Was.Revision() {
		t.Errorf("%+v, %v", got, err)
	}
	a.reaches(old.put("l", "v"))
	if kv, _ := a.State().Get("k"); string(kv.Value) != "old" {
		t.Errorf("%+v", kv)
	}
}

// So is this agent's own server.
func TestAcceptOwn(t *testing.T) {
	n, other := newNode(t, 1, "n1"), newNode(t, 2, "n2")
	a := newAgent(t, n)
	a.start()
	a.reaches(n.put("k", "v"))
	n.kill()
	l := own(t, other, 0xbad)
	write(t, other, l, "k", "own")
	a.Serve(l)
	a.complains("this agent's own server: follow: the server is of another cluster")
	if got, err := a.accept(0xbad, time.Minute); err != nil || got.KeptAs == "" {
		t.Errorf("%+v, %v", got, err)
	}
	await.For(t, "the own server", func() bool { kv, _ := a.State().Get("k"); return string(kv.Value) == "own" })
}

// Who asks hears of what was asked, also if somebody else asks for another cluster
// meanwhile.
func TestAcceptOfTwo(t *testing.T) {
	a, _, is := begunAnew(t)
	is.kill()
	l := own(t, newNode(t, 3, "n3"), 0xbee)
	a.Serve(l)
	a.complains("`fairlead raft follow 0000000000000bee`")

	ctx, takeBack := context.WithCancel(t.Context())
	came := make(chan error, 1)
	go func() {
		_, err := a.Accept(ctx, 0xbad)
		came <- err
	}()
	await.For(t, "the first word", func() bool { return a.accepts(0xbad) })
	if got, err := a.accept(0xbee, 100*time.Millisecond); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "is being followed") {
		t.Errorf("the second came to %+v, %v", got, err)
	}
	takeBack()
	if err := <-came; !errors.Is(err, context.Canceled) {
		t.Errorf("the first came to %v", err)
	}
	if _, err := a.accept(0xbee, time.Minute); err != nil || a.State().Cluster() != 0xbee {
		t.Errorf("afterwards the second comes to %v", err)
	}
}

// A word that is taken back, as the answer does not come in time, changes nothing: the
// next server is compared with what is known.
func TestAcceptThatIsTakenBack(t *testing.T) {
	a, _, is := begunAnew(t)
	before := a.State()
	var ranges atomic.Int64
	late := make(chan struct{})
	letGo := sync.OnceFunc(func() { close(late) })
	t.Cleanup(letGo)
	is.mu.Lock()
	is.hold = func(_ string, answer any) {
		// First it is asked where it is, and then for everything.
		if r, ok := answer.(*pb.RangeResponse); ok && len(r.Kvs) > 0 {
			ranges.Add(1)
			<-late
		}
	}
	is.mu.Unlock()
	ctx, takeBack := context.WithCancel(t.Context())
	came := make(chan error, 1)
	go func() {
		_, err := a.Accept(ctx, 0xbad)
		came <- err
	}()
	await.For(t, "an answer that is late", func() bool { return ranges.Load() > 0 })
	takeBack()
	if err := <-came; !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	letGo()
	a.complains("`fairlead raft follow 0000000000000bad`")
	a.Stop()
	if a.State() != before || a.draft == nil || a.draft.cluster != before.Cluster() {
		t.Errorf("%v, %+v", brief(slices.Collect(a.State().Range(""))), a.draft)
	}
}

package follow

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/test/await"
)

// own returns the local source of a node, which is told of changes.
func own(t *testing.T, n *node, cluster uint64) *Local {
	t.Helper()
	l, err := NewLocal(LocalConfig{
		Name: n.Name, Cluster: cluster, View: n.store.View, Leader: func() bool { return n.store.Header().Leader != 0 }, Now: time.Now,
	})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// write writes a key, and tells the local source.
func write(t *testing.T, n *node, l *Local, key, value string) int64 {
	t.Helper()
	r := n.put(key, value)
	waitApplied(t, n.store, r)
	l.Applied()
	return r
}

// A node becomes a server and ceases to be one: there is one line of revisions.
func TestBecomesServer(t *testing.T) {
	n := newNode(t, 1, "n1")
	a := newAgent(t, n)
	a.start()
	a.reaches(n.put("k", "1"))
	a.follows(n)
	l := own(t, n, 0xabcd)
	a.Serve(l)
	await.For(t, "the own server", func() bool {
		_, is := a.State().(viewed)
		return is
	})
	a.reaches(write(t, n, l, "k", "2"))
	a.has(n)
	if st := a.Follower.Status(); st.Server != "n1" || st.Address != "" || st.Problem != "" || st.Keys != 2 || st.Cluster != 0xabcd {
		t.Errorf("%+v", st)
	}
	await.For(t, "the file is taken away", func() bool { _, err := os.Stat(a.cfg.File); return os.IsNotExist(err) })
	before := a.Follower.Status().Current
	await.For(t, "it stays current", func() bool { return a.Follower.Status().Current.After(before) })

	// While it has no leader, it ages, and says so; what is known stays.
	n.store.HideLeader(true)
	await.For(t, "a word of the leader", func() bool { return strings.Contains(a.Follower.Status().Problem, "no leader") })
	if kv, _ := a.State().Get("k"); string(kv.Value) != "2" {
		t.Errorf("%+v", kv)
	}
	n.store.HideLeader(false)

	reads := value(t, a, "fairlead_follow_reads_total", "")
	a.Serve(nil)
	a.reaches(n.put("k", "3"))
	a.follows(n)
	a.has(n)
	if got := value(t, a, "fairlead_follow_reads_total", ""); got != reads {
		t.Error("it read anew what it had")
	}
	await.For(t, "the file is there again", func() bool { _, err := os.Stat(a.cfg.File); return err == nil })
}

// An agent that stops as a server leaves no copy.
func TestStopsAsServer(t *testing.T) {
	n := newNode(t, 1, "n1")
	a := newAgent(t)
	l := own(t, n, 0xabcd)
	a.start()
	a.Serve(l)
	a.reaches(write(t, n, l, "k", "1"))
	a.Stop()
	if _, err := os.Stat(a.cfg.File); !os.IsNotExist(err) {
		t.Errorf("%v", err)
	}
}

// While the own server is behind what is known, others are followed.
func TestOwnServerIsBehind(t *testing.T) {
	n, late := newNode(t, 1, "n1"), newNode(t, 2, "n2")
	a := newAgent(t, n)
	a.start()
	for range 5 {
		n.put("k", "new")
	}
	a.has(n)
	l := own(t, late, 0xabcd)
	a.Serve(l)
	a.reaches(n.put("k", "newer"))
	a.follows(n)
	for {
		r := write(t, late, l, "k", "own")
		if r >= a.State().Revision() {
			break
		}
	}
	await.For(t, "the own server", func() bool { kv, _ := a.State().Get("k"); return string(kv.Value) == "own" })
	if st := a.Follower.Status(); st.Server != "n2" {
		t.Errorf("%+v", st)
	}
}

// A server of its own of another cluster is refused as any other, and others are
// followed.
func TestOwnServerOfAnotherCluster(t *testing.T) {
	n, other := newNode(t, 1, "n1"), newNode(t, 2, "n2")
	a := newAgent(t, n)
	a.start()
	a.reaches(n.put("k", "v"))
	l := own(t, other, 0xbad)
	a.Serve(l)
	for range 10 {
		write(t, other, l, "k", "foreign")
	}
	a.follows(n)
	a.reaches(n.put("l", "v"))
	n.kill()
	a.complains("this agent's own server: follow: the server is of another cluster")
	if kv, _ := a.State().Get("k"); string(kv.Value) != "v" {
		t.Errorf("%+v", kv)
	}
}

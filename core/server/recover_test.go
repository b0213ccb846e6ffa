package server

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/fairlead/fairlead/core/formation"
	"github.com/fairlead/fairlead/core/raft"
	"github.com/fairlead/fairlead/core/raft/replica"
	"github.com/fairlead/fairlead/test/await"
)

// Two of three are lost for good. The third goes on alone with all that it has, takes
// new servers in, and has nothing to do with an old one that comes back.
func TestRecoverQuorum(t *testing.T) {
	nodes := partNodes(t, 4, 3)
	nodes[3].Expect = 0
	for _, p := range nodes[:3] {
		p.start()
	}
	led(t, nodes).put("a")
	last := nodes[0]
	await.For(t, "it to have what was written", func() bool { return last.has("a") })
	was := last.Server().Identity()
	for _, p := range nodes[:3] {
		p.stop()
	}
	rc := RecoverConfig{Node: last.Node, Dir: last.Dir, Try: true}
	tried, err := Recover(rc)
	if err != nil || tried.Was.Cluster != was.Cluster || tried.Last == 0 || tried.Commit > tried.Last {
		t.Fatalf("to try it: %+v, %v", tried, err)
	}
	if id, _, _ := ReadIdentity(last.Dir); id.Cluster != was.Cluster {
		t.Error("to try it changed something")
	}
	rc.Try = false
	done, err := Recover(rc)
	if err != nil || done.Is.Cluster == was.Cluster || done.Is.Server == was.Server {
		t.Fatalf("%+v, %v", done, err)
	}
	if _, err := os.Stat(filepath.Join(done.Aside)); err != nil {
		t.Errorf("the old log: %v", err)
	}
	last.start()
	await.For(t, "it to lead alone", last.leads)
	if s := last.Server(); s.Identity().Cluster != done.Is.Cluster || len(s.Members().GetVoters()) != 1 || !last.has("a") {
		t.Errorf("it is %+v", s.Identity())
	}
	await.For(t, "it to note that the old group was given up", func() bool {
		rec, err := readFormation(last.Dir)
		return err == nil && slices.Contains(rec.Lost, formation.ClusterID(was.Cluster))
	})
	last.put("b")

	nodes[3].start()
	await.For(t, "a new server to wait for the new group", func() bool {
		s := nodes[3].Server()
		return s != nil && s.Identity().Cluster == done.Is.Cluster
	})
	change(t, nodes, replica.Change{AddLearners: []uint64{nodes[3].Server().ID()}})
	await.For(t, "it to have all", func() bool { return nodes[3].has("a") && nodes[3].has("b") })

	old := nodes[1]
	old.start()
	await.For(t, "the old one to say that there are two clusters", func() bool { return old.Awaits() != "" })
	if s := old.Server(); s == nil || s.Identity().Cluster != was.Cluster || old.has("b") {
		t.Error("an old server is in the new group")
	}
	if n := len(last.Server().Members().GetVoters()); n != 1 {
		t.Errorf("the new group has %d voters", n)
	}
}

// A crash in the middle of it is made up for by the next start.
func TestRecoverThatCrashed(t *testing.T) {
	for name, undo := range map[string]func(dir string, done Recovered) error{
		"before the old log was put aside": func(dir string, done Recovered) error {
			if err := os.Rename(filepath.Join(dir, raftDir), filepath.Join(dir, recoveredDir)); err != nil {
				return err
			}
			return os.Rename(done.Aside, filepath.Join(dir, raftDir))
		},
		"before the new log was put in its place": func(dir string, _ Recovered) error {
			return os.Rename(filepath.Join(dir, raftDir), filepath.Join(dir, recoveredDir))
		},
		"before that was noted": func(string, Recovered) error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			n := partNodes(t, 1, 1)[0]
			n.Alone = true
			n.start()
			n.put("a")
			n.stop()
			done, err := Recover(RecoverConfig{Node: n.Node, Dir: n.Dir})
			if err != nil {
				t.Fatal(err)
			}
			if err := undo(n.Dir, done); err != nil {
				t.Fatal(err)
			}
			id := done.Is
			id.Replaces = done.Was.Cluster
			if err := id.write(n.Dir); err != nil {
				t.Fatal(err)
			}
			n.start()
			await.For(t, "it to lead", n.leads)
			if !n.has("a") || n.Server().ID() != done.Is.Server {
				t.Errorf("it is %+v", n.Server().Identity())
			}
		})
	}
}

func TestRecoverRefuses(t *testing.T) {
	if _, err := Recover(RecoverConfig{Node: "n1", Dir: t.TempDir()}); !errors.Is(err, raft.ErrNothing) {
		t.Errorf("an empty directory: %v", err)
	}
	if _, err := Recover(RecoverConfig{Node: "n1", Dir: t.TempDir(), Set: []Peer{{Name: "n1"}}}); !errors.Is(err, ErrSet) {
		t.Errorf("a static set: %v", err)
	}
	waits := partNodes(t, 2, 1)
	waits[1].Expect = 0
	waits[0].start()
	waits[1].start()
	await.For(t, "the second to wait", func() bool { return waits[1].Server() != nil })
	waits[1].stop()
	if _, err := Recover(RecoverConfig{Node: "n2", Dir: waits[1].Dir}); !errors.Is(err, raft.ErrNothing) {
		t.Errorf("one that never was a member: %v", err)
	}
}

// A node gives the cluster up that it waits for, also after a restart, and forms
// another.
func TestGiveUp(t *testing.T) {
	nodes := partNodes(t, 2, 1)
	lost, n := nodes[0], nodes[1]
	lost.start()
	await.For(t, "a cluster", lost.leads)
	cluster := formation.ClusterID(lost.Server().Identity().Cluster)
	n.start()
	await.For(t, "the other one to wait for it", func() bool { return n.Server() != nil })
	if _, err := n.Recover(t.Context(), 0); !errors.Is(err, formation.ErrRefused) {
		t.Errorf("to give up what is alive: %v", err)
	}
	n.stop()
	n.start()
	lost.stop()
	var given formation.ClusterID
	await.For(t, "its loss to be known, and the cluster given up", func() bool {
		var err error
		given, err = n.Recover(t.Context(), 0)
		return err == nil
	})
	if given != cluster {
		t.Fatalf("gave up %v", given)
	}
	await.For(t, "it to form another", n.leads)
	if now := n.Server().Identity().Cluster; now == uint64(cluster) {
		t.Errorf("it leads cluster %x", now)
	}
	if _, err := n.Recover(t.Context(), 0); !errors.Is(err, ErrWaitsForNone) {
		t.Errorf("to give up again: %v", err)
	}

	// It stopped between the two steps of giving up.
	n.stop()
	own := Identity{Cluster: uint64(cluster), Server: 5, Node: n.Node}
	rec := formation.Record{Lost: []formation.ClusterID{cluster}}
	if err := errors.Join(own.write(n.Dir), writeFormation(n.Dir, rec)); err != nil {
		t.Fatal(err)
	}
	n.start()
	await.For(t, "it to form a third", n.leads)
}

func TestStandingOfAll(t *testing.T) {
	nodes := partNodes(t, 3, 3)
	for _, p := range nodes {
		p.Lacks = func() string { return "nothing but time" }
		p.ElectionTimeout = unhurried
		p.start()
	}
	led(t, nodes)
	for _, p := range nodes {
		await.For(t, p.Node+" to know how all stand", func() bool {
			st, err := p.Standing(t.Context())
			return err == nil && len(st.Members) == 3 && st.Lacks == "nothing but time" && st.Commit > 0 && st.LogBytes > 0 && st.Members[2].Match > 0
		})
	}
	for _, p := range nodes {
		if !p.leads() {
			if err := p.Transfer(t.Context(), p.Server().ID()); err != nil {
				t.Errorf("the leadership did not come: %v", err)
			}
			await.For(t, "it to know that it leads", p.leads) // the one before may know it first
			break
		}
	}
}

package e2e

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// TestStoreBackup: a backup that is made under load, by the agent of a follower, is
// of one revision. Other servers begin with it, have exactly what there was at that
// revision, and go on.
func TestStoreBackup(t *testing.T) {
	t.Parallel()
	f := startStore(t, ours(t))
	l := f.load(400, 0.8)
	l.writesOn()
	lasts(loadLasts() / 10)
	file := f.nodes[0].dir + ".backup"
	text, err := f.besides(f.leader())[0].run("snapshot", "save", file, "-o", "json")
	var backup struct {
		Keyspaces []struct {
			Name     string `json:"name"`
			Revision int64  `json:"revision"`
		} `json:"keyspaces"`
	}
	if err == nil {
		err = json.Unmarshal(text, &backup)
	}
	if err != nil || len(backup.Keyspaces) != 2 || backup.Keyspaces[0].Name != "user" {
		t.Fatalf("%v: %s", err, text)
	}
	revision := backup.Keyspaces[0].Revision
	lasts(loadLasts() / 10)
	h := l.end()
	want, err := h.State(revision)
	if err != nil {
		t.Fatal(err)
	}
	hash := f.nodes[0].hash(revision)

	fresh := newStore(t, agents)
	for _, n := range fresh.nodes {
		restore := exec.Command(fairlead, "snapshot", "restore", file, "--node.name", n.name, "--node.data_dir", n.dir, "--cluster.name", "e2e",
			"--cluster.secret_file", n.secretFile(), "--raft.peers", fresh.peers(), "--gossip.bind", n.node.Addr().String()+":7400",
			"--gossip.insecure=true", "--node.advertise", n.node.Addr().String(), "--api.socket", n.socket())
		restore.Env = []string{"PATH=" + os.Getenv("PATH")}
		if out, err := restore.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	fresh.upAll()
	t.Logf("the backup has %d keys at revision %d", len(want), revision)
	for _, n := range fresh.nodes {
		if err := n.holds(want, revision); err != nil {
			t.Error(err)
		}
		if got := n.hash(revision); got != hash {
			t.Errorf("%s has the hash %x at revision %d, where the backup is from it was %x", n.name, got, revision, hash)
		}
	}
	var r *pb.PutResponse
	tries := int64(0) // one that was not answered may be done
	fresh.eventually(20*time.Second, "a write", func() (err error) {
		tries++
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		r, err = fresh.nodes[0].kv().Put(ctx, &pb.PutRequest{Key: []byte(storePrefix + "k0"), Value: []byte("after")})
		return err
	})
	if got := r.Header.Revision; got <= revision || got > revision+tries {
		t.Errorf("the write has revision %d after %d tries, want %d", got, tries, revision+1)
	}
}

// hash is that of the server's state at a revision.
func (n *storeNode) hash(revision int64) uint32 {
	n.t.Helper()
	hash, err := n.hashAt(revision)
	if err != nil {
		n.t.Fatalf("%s: hash at %d: %v", n.name, revision, err)
	}
	return hash
}

package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/test/scale"
)

// ownDisk gives the server a file system of its own, of so many MiB. It is mounted
// in a mount namespace that ends with the server, so that nothing is left behind.
func (n *storeNode) ownDisk(mib int) {
	n.t.Helper()
	image := n.dir + ".img"
	f, err := os.Create(image)
	if err == nil {
		err = errors.Join(f.Truncate(int64(mib)<<20), f.Close())
	}
	if err != nil {
		n.t.Fatal(err)
	}
	if out, err := exec.Command("mkfs.ext4", "-q", "-m", "0", "-E", "lazy_itable_init=0", image).CombinedOutput(); err != nil {
		n.t.Fatalf("mkfs.ext4: %v: %s", err, out)
	}
	n.under = []string{"unshare", "-m", "--propagation", "private", "sh", "-c", `mount -o loop "$0" "$1" && shift && exec "$@"`, image, n.dir}
	out, err := exec.Command("unshare", "-m", "--propagation", "private", "mount", "-o", "loop", image, n.dir).CombinedOutput()
	if err != nil {
		n.t.Skipf("this machine cannot mount an image: %v: %s", err, out)
	}
}

// disk is the data directory as the server sees it.
func (n *storeNode) disk() string {
	return filepath.Join("/proc", fmt.Sprint(n.proc.Pid()), "root", n.dir)
}

// stalls has each write to the server's disk hang until the end of the returned
// function, or of this test.
func (n *storeNode) stalls() (goesOn func()) {
	n.t.Helper()
	// It thaws when its input ends, so also when this process is killed: nobody can
	// unmount what is frozen.
	cmd := exec.Command("sh", "-c", `fsfreeze -f "$0" && echo frozen && cat; fsfreeze -u "$0"`, n.disk())
	in, err := cmd.StdinPipe()
	if err != nil {
		n.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		n.t.Fatal(err)
	}
	goesOn = func() {
		in.Close()
		_ = cmd.Wait()
	}
	n.t.Cleanup(goesOn)
	said := make([]byte, len("frozen\n"))
	if _, err := io.ReadFull(out, said); err != nil {
		n.t.Fatalf("fsfreeze: %v", err)
	}
	return goesOn
}

// fill leaves so many MiB on the server's disk.
func (n *storeNode) fill(leave int64) {
	n.t.Helper()
	free, err := n.free()
	if err != nil {
		n.t.Fatal(err)
	}
	f, err := os.OpenFile(filepath.Join(n.disk(), "filler"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		n.t.Fatal(err)
	}
	defer f.Close()
	at, err := f.Seek(0, io.SeekEnd)
	if err == nil {
		err = unix.Fallocate(int(f.Fd()), 0, at, free-leave<<20)
	}
	// The last blocks are needed to say where the file is.
	if err != nil && !errors.Is(err, unix.ENOSPC) {
		n.t.Fatalf("fill %s of %d bytes: %v", n.disk(), free, err)
	}
	if left, err := n.free(); err != nil || left > (leave+8)<<20 {
		n.t.Fatalf("%d bytes of %d are left, want %d MiB: %v", left, free, leave, err)
	}
}

// free is how many bytes the server's disk has left.
func (n *storeNode) free() (int64, error) {
	var st unix.Statfs_t
	err := unix.Statfs(n.disk(), &st)
	return int64(st.Bavail) * st.Bsize, err
}

// empty undoes fill.
func (n *storeNode) empty() {
	n.t.Helper()
	if err := os.Remove(filepath.Join(n.disk(), "filler")); err != nil {
		n.t.Fatal(err)
	}
}

// TestStoreDiskStalls: the leader's disk hangs, though the leader itself does not.
// Another one leads within three election timeouts, leases that are kept alive
// meanwhile stay, and nothing is lost. It measures time, so it runs beside no other
// test.
func TestStoreDiskStalls(t *testing.T) {
	f := newStore(t, underTest())
	for _, n := range f.nodes {
		n.ownDisk(512)
	}
	f.upAll()
	l := f.load(300, 0.6)
	l.writesOn()
	leader := f.leader()
	others := f.besides(leader)
	ttl := scale.Bound(4*time.Second, 8*time.Second)
	lease := others[0].lease(int64(ttl.Seconds()))
	began := time.Now()
	goesOn := leader.stalls()
	took := time.Duration(0)
	eventually(t, 30*time.Second, func() error {
		now, err := f.leads(others...)
		if now != nil {
			took = time.Since(began)
		}
		return err
	}, "another one leads")
	t.Logf("another one leads after %v, a write is acknowledged after %v", took, l.writesOn())
	if most := scale.Bound(3*electionTimeout, 15*electionTimeout); took > most {
		t.Errorf("leadership moved after %v, want %v at most", took, most)
	}
	renewed := time.Now()
	for since := renewed; time.Since(since) < ttl+2*time.Second; lasts(500 * time.Millisecond) {
		err := lease.renew(others[1])
		switch {
		case err == nil:
			renewed = time.Now()
		case errors.Is(err, errGone) || scale.Factor() >= 1 || time.Since(renewed) > ttl:
			t.Errorf("%v after the disk stalled the lease is not renewed: %v", time.Since(began), err)
		default: // a busy machine may have another election
			t.Log(err)
		}
	}
	goesOn()
	f.eventually(30*time.Second, "all follow", f.led)
	// Debian's etcd revokes it then (etcd issue 15247).
	f.eventually(2*time.Second, "the lease is renewed at the one that stalled", func() error {
		err := lease.renew(leader)
		if f.kind != agents {
			return nil
		}
		if errors.Is(err, errGone) {
			t.Fatal(err)
		}
		return err
	})
	l.end()
}

// lease is one with a key.
type lease struct{ id int64 }

// lease grants one of so many seconds.
func (n *storeNode) lease(seconds int64) lease {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	r, err := pb.NewLeaseClient(n.conn).LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: seconds})
	if err == nil {
		_, err = n.kv().Put(ctx, &pb.PutRequest{Key: []byte("leased"), Lease: r.ID})
	}
	if err != nil {
		n.t.Fatal(err)
	}
	return lease{r.ID}
}

var errGone = errors.New("the lease is gone")

// renew asks a server for the whole time of the lease, and for its key.
func (l lease) renew(n *storeNode) error {
	ctx, cancel := context.WithTimeout(context.Background(), scale.Bound(2*time.Second, 3*time.Second))
	defer cancel()
	stream, err := pb.NewLeaseClient(n.conn).LeaseKeepAlive(ctx)
	if err != nil {
		return err
	}
	if err := stream.Send(&pb.LeaseKeepAliveRequest{ID: l.id}); err != nil {
		return err
	}
	r, err := stream.Recv()
	if err != nil {
		return fmt.Errorf("%s: renew: %w", n.name, err)
	}
	if r.TTL <= 0 {
		return fmt.Errorf("%s: %w", n.name, errGone)
	}
	got, err := n.kv().Range(ctx, &pb.RangeRequest{Key: []byte("leased")})
	if err == nil && len(got.Kvs) != 1 {
		err = fmt.Errorf("%s: its key: %w", n.name, errGone)
	}
	return err
}

// bulk writes so many MiB, at any server that takes them, outside of what is judged.
func (f *storeFleet) bulk(mib int, at ...*storeNode) {
	f.t.Helper()
	value := make([]byte, 1<<20)
	for i := range mib {
		eventually(f.t, 30*time.Second, func() error {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			_, err := at[i%len(at)].kv().Put(ctx, &pb.PutRequest{Key: []byte(fmt.Sprint("bulk/", i%8)), Value: value})
			return err
		}, "a MiB is written")
	}
}

// TestStoreSnapshotForced: a server hears nothing for so long that the log which it
// needs is gone. It is sent a snapshot while clients go on, its watches miss nothing,
// and it has what the others have.
func TestStoreSnapshotForced(t *testing.T) {
	t.Parallel()
	f := startStore(t, ours(t))
	l := f.load(100, 0.6)
	l.writesOn()
	leader := f.leader()
	behind := f.besides(leader)[0]
	f.topo.Isolate(behind.node)
	f.bulk(90, f.besides(behind)...) // a snapshot is made each 64 MiB, 16 MiB before it stay
	l.writesOn()
	f.topo.Heal()
	f.eventually(30*time.Second, "it follows", f.led)
	f.eventually(30*time.Second, "it has installed a snapshot", func() error {
		if !regexp.MustCompile(`fairlead_raft_snapshots_total\{event="installed"\} [1-9]`).MatchString(behind.metrics()) {
			return errNotYet
		}
		return nil
	})
	lasts(loadLasts() / 5)
	l.end()
	behind.kill()
	behind.up()
	f.eventually(30*time.Second, "it starts from the snapshot", f.led)
	revision := l.mark()
	f.eventually(10*time.Second, "all have the same", func() error { return f.same(revision) })
}

// TestStoreDiskFull: one server's disk is full. Its server half stops and names the
// cause; the agent stays a member, and the others write on. With room again it comes
// back.
func TestStoreDiskFull(t *testing.T) {
	t.Parallel()
	f := newStore(t, ours(t))
	full := f.nodes[0]
	full.ownDisk(512)
	f.upAll()
	l := f.load(100, 0.6)
	l.writesOn()
	full.fill(0)
	others := f.besides(full)
	f.bulk(80, others...) // what is laid out for the log is 64 MiB
	f.eventually(30*time.Second, "the server half says why it stopped", func() error {
		if !regexp.MustCompile(`msg="the server of the store stops.*/raft/.*no space left on device`).MatchString(full.proc.Output()) {
			return errNotYet
		}
		return nil
	})
	f.leader(others...)
	l.writesOn()
	f.eventually(10*time.Second, "it is a member", all(f.agents, func(a *agent) error {
		return a.sees(full.name, model.StateAlive, full.node.Addr())
	}))
	full.empty()
	full.kill()
	full.up()
	f.eventually(30*time.Second, "it is back", f.led)
	l.end()
}

// TestStoreMajorityFull: two of three disks are nearly full. Writes are refused as
// etcd refuses them, reads go on, nothing is lost, and writes go on once there is
// room.
func TestStoreMajorityFull(t *testing.T) {
	t.Parallel()
	f := newStore(t, ours(t))
	for _, n := range f.nodes[:2] {
		n.ownDisk(512)
	}
	f.upAll()
	l := f.load(200, 0.5)
	l.writesOn()
	for _, n := range f.nodes[:2] {
		n.fill(100)
	}
	f.eventually(30*time.Second, "writes are refused everywhere", func() error {
		for _, n := range f.nodes {
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
			_, err := n.kv().Put(ctx, &pb.PutRequest{Key: []byte("more")})
			cancel()
			if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "etcdserver: mvcc: database space exceeded") {
				return fmt.Errorf("%s: %w", n.name, errors.Join(errNotYet, err))
			}
		}
		return nil
	})
	for range 10 {
		for _, n := range f.nodes {
			f.eventually(2*time.Second, n.name+" answers a read", func() error {
				ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
				defer cancel()
				_, err := n.kv().Range(ctx, &pb.RangeRequest{Key: []byte(storePrefix + "k0")})
				return err
			})
		}
	}
	// A new leader takes some until it has heard of the others' disks.
	f.eventually(10*time.Second, "none of the clients' writes is taken", func() error {
		acks, refused, _ := l.counts()
		lasts(callTimeout)
		if now, more, _ := l.counts(); now > acks || more == refused {
			return errNotYet
		}
		return nil
	})
	for _, n := range f.nodes[:2] {
		n.empty()
	}
	l.writesOn()
	l.end()
}

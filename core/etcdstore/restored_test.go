package etcdstore

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/fairlead/fairlead/core/follow"
	"github.com/fairlead/fairlead/test/await"
)

// dir is where the etcd has its data.
func (p *peer) dir() string { return p.args[slices.Index(p.args, "--data-dir")+1] }

// refuses waits until the store says that it does not follow etcd.
func refuses(t *testing.T, s *Store, words string) {
	t.Helper()
	await.For(t, words, func() bool { st := s.Status(); return st.Server == "" && strings.Contains(st.Problem, words) })
}

// An etcd whose data is that of an earlier day has the same id. It is refused while it
// is behind, and when it got beyond what is known here, too: it has another history. An
// operator's word has it followed.
func TestRestored(t *testing.T) {
	p := newCluster(t, 1)[0]
	s := begin(t, config(t, p))
	put(t, s, "kept", "v")
	has(t, s, "kept", "v")
	p.kill()
	backup := filepath.Join(t.TempDir(), "backup")
	if err := os.CopyFS(backup, os.DirFS(p.dir())); err != nil {
		t.Fatal(err)
	}
	p.start()
	followed(t, s, "")
	answered(t, s)
	lost := put(t, s, "lost", "v")
	for lost < 20 {
		lost = put(t, s, "k", "v")
	}
	has(t, s, "lost", "v")
	p.kill()
	if err := errors.Join(os.RemoveAll(p.dir()), os.CopyFS(p.dir(), os.DirFS(backup)), os.Chmod(p.dir(), 0o700)); err != nil {
		t.Fatal(err)
	}
	p.start()
	refuses(t, s, "the server is behind")
	plain := p.clients(TLS{})
	for {
		r, err := plain.Put(t.Context(), &pb.PutRequest{Key: []byte(Prefix("prod") + "new"), Value: []byte("v")})
		if err != nil {
			t.Fatal(err)
		}
		if r.Header.Revision > lost+5 {
			break
		}
	}
	refuses(t, s, "the server has another history")
	if kv, _ := s.State().Get("lost"); string(kv.Value) != "v" {
		t.Errorf("it went back: %+v", kv)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := s.Accept(ctx, 1); !errors.Is(err, follow.ErrNotRefused) {
		t.Errorf("%v", err)
	}
	if got, err := s.Accept(ctx, s.Status().Cluster); err != nil || got.Revision <= lost {
		t.Fatalf("%+v, %v", got, err)
	}
	has(t, s, "lost", "")
	has(t, s, "kept", "v")
	answered(t, s)
	put(t, s, "new", "w")
	has(t, s, "new", "w")
}

// What others write beside, deletions and many keys make no other history.
func TestSameHistory(t *testing.T) {
	p := newCluster(t, 1)[0]
	s := begin(t, config(t, p))
	plain := p.clients(TLS{})
	for i := range 300 {
		put(t, s, "k/"+strings.Repeat("x", i), "v")
		if _, err := plain.Put(t.Context(), &pb.PutRequest{Key: []byte("beside"), Value: []byte("v")}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := plain.DeleteRange(t.Context(), &pb.DeleteRangeRequest{Key: []byte(Prefix("prod") + "k/x")}); err != nil {
		t.Fatal(err)
	}
	has(t, s, "k/x", "")
	for range 2 {
		p.kill()
		refuses(t, s, "")
		p.start()
		followed(t, s, "")
		answered(t, s)
		put(t, s, "again", time.Now().String())
	}
}

package e2e

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/fairlead/fairlead/test/scale"
)

// loadLasts is how long clients go on in a scenario.
func loadLasts() time.Duration { return time.Duration(scale.N(25_000)) * time.Millisecond }

// TestStoreChecksEtcd: the judges of these tests find nothing wrong with a store that
// is right, while its leader is killed, and while another one stands still.
func TestStoreChecksEtcd(t *testing.T) {
	t.Parallel()
	f := startStore(t, etcds)
	l := f.load(400, 0.6)
	killed := f.leader()
	killed.kill()
	l.writesOn()
	killed.up()
	stopped := f.leader()
	stopped.proc.Stop()
	l.writesOn()
	stopped.proc.Cont()
	lasts(loadLasts())
	l.end()
}

// TestStoreLiar: they find a server that answers reads with what it read once.
func TestStoreLiar(t *testing.T) {
	t.Parallel()
	f := newStore(t, underTest())
	f.timeout = scale.Bound(callTimeout, 10*callTimeout) // who is not answered is not lied to
	liar := &liar{said: map[string][]byte{}}
	f.nodes[0].dial(grpc.WithUnaryInterceptor(liar.call))
	f.upAll()
	l := f.load(400, 0.6)
	f.eventually(30*time.Second, "it has lied", func() error {
		if lies := liar.told.Load(); lies < 20 {
			return fmt.Errorf("%d times only", lies)
		}
		return nil
	})
	_, err := l.judged()
	if err == nil {
		t.Fatal("nothing is wrong")
	}
	for _, want := range []string{"revisions go back", "porcupine says Illegal"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("want %q in: %v", want, err)
		}
	}
}

// liar is a proxy that answers each third linearizable read with an old answer.
type liar struct {
	mu    sync.Mutex
	said  map[string][]byte
	reads int
	told  atomic.Int64 // answers that were no longer true
}

func (l *liar) call(ctx context.Context, method string, in, out any, conn *grpc.ClientConn, next grpc.UnaryInvoker, o ...grpc.CallOption) error {
	err := next(ctx, method, in, out, conn, o...)
	read, ok := in.(*pb.RangeRequest)
	if err != nil || !ok || read.Revision != 0 || read.Serializable {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reads++
	truth := out.(*pb.RangeResponse)
	old, known := l.said[string(read.Key)]
	switch {
	case !known:
		l.said[string(read.Key)], err = proto.Marshal(truth)
	case l.reads%3 == 0:
		now := first(truth.Kvs)
		if err = proto.Unmarshal(old, truth); first(truth.Kvs) != now {
			l.told.Add(1)
		}
	}
	return err
}

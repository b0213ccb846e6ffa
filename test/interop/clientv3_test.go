package interop

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/fairlead/fairlead/test/await"
)

func client(t *testing.T, endpoints ...string) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: endpoints, DialTimeout: 10 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// Locks of etcd's own library exclude each other, and end with their session.
func TestMutex(t *testing.T) {
	everywhere(t, func(t *testing.T, endpoints []string) {
		ctx := soon(t)
		var holders, most int
		var mu sync.Mutex
		var all sync.WaitGroup
		for i := range 5 {
			c := client(t, endpoints...)
			all.Go(func() {
				session, err := concurrency.NewSession(c, concurrency.WithTTL(10))
				if err != nil {
					t.Error(err)
					return
				}
				defer session.Close()
				lock := concurrency.NewMutex(session, "/lock/"+t.Name())
				for range 5 {
					if err := lock.Lock(ctx); err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					holders++
					most = max(most, holders)
					mu.Unlock()
					if _, err := c.Put(ctx, t.Name()+"/held", fmt.Sprint(i)); err != nil {
						t.Error(err)
					}
					mu.Lock()
					holders--
					mu.Unlock()
					if err := lock.Unlock(ctx); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		if most != 1 {
			t.Errorf("%d held the lock at once", most)
		}
	})
}

// An election of etcd's own library has one winner after the other.
func TestElection(t *testing.T) {
	everywhere(t, func(t *testing.T, endpoints []string) {
		ctx := soon(t)
		one, two := client(t, endpoints...), client(t, endpoints...)
		a, err := concurrency.NewSession(one)
		if err != nil {
			t.Fatal(err)
		}
		b, err := concurrency.NewSession(two)
		if err != nil {
			t.Fatal(err)
		}
		first, second := concurrency.NewElection(a, "/election/"+t.Name()), concurrency.NewElection(b, "/election/"+t.Name())
		if err := first.Campaign(ctx, "one"); err != nil {
			t.Fatal(err)
		}
		won := make(chan error, 1)
		go func() { won <- second.Campaign(ctx, "two") }()
		if l, err := second.Leader(ctx); err != nil || string(l.Kvs[0].Value) != "one" {
			t.Fatal(l, err)
		}
		if err := a.Close(); err != nil { // its lease goes, and its key with that
			t.Fatal(err)
		}
		if err := <-won; err != nil {
			t.Fatal(err)
		}
	})
}

// A software transaction of etcd's own library keeps a sum whole.
func TestTransfer(t *testing.T) {
	everywhere(t, func(t *testing.T, endpoints []string) {
		ctx := soon(t)
		c := client(t, endpoints...)
		const accounts, each = 4, 100
		for i := range accounts {
			if _, err := c.Put(ctx, fmt.Sprint(t.Name(), "/acc", i), fmt.Sprint(each)); err != nil {
				t.Fatal(err)
			}
		}
		var all sync.WaitGroup
		for w := range 4 {
			all.Go(func() {
				for i := range 20 {
					from, to := fmt.Sprint(t.Name(), "/acc", (w+i)%accounts), fmt.Sprint(t.Name(), "/acc", (w+i+1)%accounts)
					_, err := concurrency.NewSTM(c, func(s concurrency.STM) error {
						var a, b int
						if _, err := fmt.Sscan(s.Get(from), &a); err != nil {
							return err
						}
						if _, err := fmt.Sscan(s.Get(to), &b); err != nil {
							return err
						}
						s.Put(from, fmt.Sprint(a-1))
						s.Put(to, fmt.Sprint(b+1))
						return nil
					}, concurrency.WithIsolation(concurrency.SerializableSnapshot))
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		sum := 0
		r, err := c.Get(ctx, t.Name()+"/acc", clientv3.WithPrefix())
		if err != nil {
			t.Fatal(err)
		}
		for _, kv := range r.Kvs {
			n := 0
			if _, err := fmt.Sscan(string(kv.Value), &n); err != nil {
				t.Fatal(err)
			}
			sum += n
		}
		if sum != accounts*each {
			t.Errorf("the sum is %d", sum)
		}
	})
}

// A watch of the library goes on where it left off, and says what is compacted.
func TestWatch(t *testing.T) {
	everywhere(t, func(t *testing.T, endpoints []string) {
		ctx := soon(t)
		c := client(t, endpoints...)
		const n = 200
		now, err := c.Get(ctx, t.Name())
		if err != nil {
			t.Fatal(err)
		}
		first := now.Header.Revision + 1
		seen := c.Watch(clientv3.WithRequireLeader(ctx), t.Name()+"/k", clientv3.WithPrefix(), clientv3.WithRev(first), clientv3.WithPrevKV(), clientv3.WithFragment(), clientv3.WithProgressNotify())
		go func() {
			for i := range n {
				if _, err := c.Put(ctx, fmt.Sprint(t.Name(), "/k", i%7), fmt.Sprint(i)); err != nil {
					t.Error(err)
				}
			}
		}()
		next := 0
		for next < n {
			r := <-seen
			if err := r.Err(); err != nil {
				t.Fatal(err)
			}
			for _, e := range r.Events {
				if string(e.Kv.Value) != fmt.Sprint(next) {
					t.Fatalf("event %d is %s", next, e.Kv.Value)
				}
				next++
			}
		}
		if err := c.RequestProgress(ctx); err != nil {
			t.Error(err)
		}
		if _, err := c.Compact(ctx, first+100, clientv3.WithCompactPhysical()); err != nil {
			t.Fatal(err)
		}
		await.For(t, "the compaction of all servers", func() bool {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			r := <-c.Watch(ctx, t.Name()+"/k0", clientv3.WithRev(first+50))
			return errors.Is(r.Err(), rpctypes.ErrCompacted) && r.CompactRevision == first+100
		})
	})
}

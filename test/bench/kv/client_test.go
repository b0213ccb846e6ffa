package kv

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
)

// connections to each cluster, at most.
const connections = 63

// valueBytes is the size of a value, keySpace how many keys there are: a key is a number of eight
// digits.
const (
	valueBytes = 256
	keySpace   = 1_000_000
)

// conn is a connection to one member.
type conn struct {
	to          *member
	grpc        *grpc.ClientConn
	kv          etcdserverpb.KVClient
	watch       etcdserverpb.WatchClient
	maintenance etcdserverpb.MaintenanceClient
}

// dial connects when the connection is first used, and again soon when it is lost.
func dial(m *member) (*conn, error) {
	c, err := grpc.NewClient("passthrough:///"+m.client.String(), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDisableServiceConfig(),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 1, Jitter: 0.2, MaxDelay: 20 * time.Millisecond},
			MinConnectTimeout: time.Second,
		}))
	if err != nil {
		return nil, err
	}
	return &conn{m, c, etcdserverpb.NewKVClient(c), etcdserverpb.NewWatchClient(c), etcdserverpb.NewMaintenanceClient(c)}, nil
}

func (c *conn) close() { _ = c.grpc.Close() }

func (c *conn) put(ctx context.Context, key string, value []byte) error {
	_, err := c.kv.Put(ctx, &etcdserverpb.PutRequest{Key: []byte(key), Value: value})
	return err
}

// get reads one key; a value of so many bytes has to come, 0: any or none.
func (c *conn) get(ctx context.Context, key string, linearizable bool, want int) error {
	got, err := c.kv.Range(ctx, &etcdserverpb.RangeRequest{Key: []byte(key), Serializable: !linearizable})
	switch {
	case err != nil:
		return err
	case want == 0:
		return nil
	case len(got.Kvs) != 1:
		return fmt.Errorf("%d values of key %s", len(got.Kvs), key)
	case len(got.Kvs[0].Value) != want:
		return fmt.Errorf("a value of %d bytes, want %d", len(got.Kvs[0].Value), want)
	}
	return nil
}

// request is one that a client sends.
type request func(ctx context.Context, on *conn, r *rand.Rand) error

// puts writes one of the keys at random.
func puts(ctx context.Context, on *conn, r *rand.Rand) error {
	return on.put(ctx, key(r.IntN(keySpace)), value(r))
}

// gets reads one of the first keys at random, which have to be there.
func gets(linearizable bool, keys int) request {
	return func(ctx context.Context, on *conn, r *rand.Rand) error {
		return on.get(ctx, key(r.IntN(keys)), linearizable, valueBytes)
	}
}

func key(i int) string { return fmt.Sprintf("%08d", i) }

// value is noise: nothing that could be compressed.
func value(r *rand.Rand) []byte {
	v := make([]byte, valueBytes)
	for i := 0; i < len(v); i += 8 {
		x := r.Uint64()
		for k := range 8 {
			v[i+k] = byte(x >> (8 * k))
		}
	}
	return v
}

// fill puts the keys from 0 to n, by so many clients.
func (c *cluster) fill(n, clients int) error {
	ctx, cancel := context.WithCancel(c.t.Context())
	defer cancel()
	errs := make([]error, clients)
	done := make(chan struct{})
	until := time.Now().Add(patience)
	for i := range clients {
		go func() {
			defer func() { done <- struct{}{} }()
			r := rand.New(rand.NewPCG(uint64(i), 1))
			for k := i; k < n; k += clients {
				for try := 0; ; try++ {
					err := c.conns[(k+try)%len(c.conns)].put(ctx, key(k), value(r))
					if err == nil {
						break
					}
					if time.Now().After(until) && try > 100 || ctx.Err() != nil { // an election takes a few
						errs[i] = fmt.Errorf("key %d: %w", k, err)
						cancel()
						return
					}
					pause(50 * time.Millisecond)
				}
			}
		}()
	}
	for range clients {
		<-done
	}
	return errors.Join(errs...)
}

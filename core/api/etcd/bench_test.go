package etcd

import (
	"context"
	"fmt"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/fairlead/fairlead/core/raft/disk"
)

// BenchmarkServer calls a server of one, in memory, by gRPC on one connection.
func BenchmarkServer(b *testing.B) {
	w := newWorldOn(b, disk.NewMemory())
	value := make([]byte, 256)
	if _, err := w.kv.Put(b.Context(), &pb.PutRequest{Key: []byte("k"), Value: value}); err != nil {
		b.Fatal(err)
	}
	for _, c := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"put", func(ctx context.Context) error {
			_, err := w.kv.Put(ctx, &pb.PutRequest{Key: []byte("k"), Value: value})
			return err
		}},
		{"range", func(ctx context.Context) error {
			_, err := w.kv.Range(ctx, &pb.RangeRequest{Key: []byte("k")})
			return err
		}},
		{"serializable", func(ctx context.Context) error {
			_, err := w.kv.Range(ctx, &pb.RangeRequest{Key: []byte("k"), Serializable: true})
			return err
		}},
	} {
		for _, callers := range []int{1, 64} {
			b.Run(fmt.Sprintf("%s/callers=%d", c.name, callers), func(b *testing.B) {
				b.ReportAllocs()
				b.SetParallelism(callers)
				if callers == 1 {
					for b.Loop() {
						if err := c.do(b.Context()); err != nil {
							b.Fatal(err)
						}
					}
					return
				}
				b.RunParallel(func(p *testing.PB) {
					for p.Next() {
						if err := c.do(b.Context()); err != nil {
							b.Error(err)
							return
						}
					}
				})
			})
		}
	}
}

// BenchmarkHeader is what each answer pays to say whose it is.
func BenchmarkHeader(b *testing.B) {
	w := newWorldOn(b, disk.NewMemory())
	b.ReportAllocs()
	for b.Loop() {
		_ = w.server.header(1)
	}
}

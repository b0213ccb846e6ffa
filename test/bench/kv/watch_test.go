package kv

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
)

const (
	streams   = 10
	perStream = 100
	perSecond = 20 // puts to the watched key
	watched   = "watched"
)

// watching measures from put to event with 1,000 watchers of one key.
func (b *bench) watching(out *strings.Builder) {
	b.t.Helper()
	p50, p99 := &figure{name: "put to event, p50, ms", format: "%.2f"}, &figure{name: "put to event, p99, ms", format: "%.2f", bar: 1}
	server := &figure{name: "server CPU µs for each event", format: "%.1f"}
	client := &figure{name: "client CPU µs for each event", format: "%.1f"}
	wrong := &figure{name: "events lost, double or out of order, in all", format: "%.0f"}
	audiences := map[*cluster]*audience{}
	for _, c := range b.clusters() {
		a, err := c.watch()
		if err != nil {
			b.t.Fatalf("%s: %v", c.name, err)
		}
		defer a.close()
		audiences[c] = a
	}
	b.rounds(func(c *cluster) {
		a := audiences[c]
		h := &histogram{}
		a.latency.Store(h)
		us, own := c.cpu(), ownCPU()
		if err := a.show(b.plan.events); err != nil {
			b.t.Errorf("%s: %v", c.name, err)
		}
		events := float64(b.plan.events * streams * perStream)
		server.add(c.name, float64((c.cpu()-us).Nanoseconds())/1000/events)
		client.add(c.name, float64((ownCPU()-own).Nanoseconds())/1000/events)
		p50.add(c.name, h.quantile(0.5))
		p99.add(c.name, h.quantile(0.99))
	})
	for c, a := range audiences {
		n := a.wrong.Load() + a.missing()
		wrong.add(c.name, float64(n))
		if n != 0 {
			b.t.Errorf("%s: %d events lost, double or out of order", c.name, n)
		}
	}
	b.show(out, fmt.Sprintf("%d watchers, %d puts/s", streams*perStream, perSecond), p50, p99, server, client, wrong)
}

// audience is all watchers of a cluster.
type audience struct {
	c       *cluster
	cancel  context.CancelFunc
	conns   []*conn
	reading sync.WaitGroup
	latency atomic.Pointer[histogram]
	sent    []atomic.Int64 // when, unix ns, by number; the first is 1
	puts    int
	events  atomic.Int64
	wrong   atomic.Int64
}

// watch starts all watchers; when it returns, all of them watch.
func (c *cluster) watch() (*audience, error) {
	ctx, cancel := context.WithCancel(c.t.Context())
	a := &audience{c: c, cancel: cancel, sent: make([]atomic.Int64, 1<<20)}
	for i := range streams {
		conn, err := dial(c.members[i%servers])
		if err != nil {
			a.close()
			return nil, err
		}
		a.conns = append(a.conns, conn)
		stream, err := conn.watch.Watch(ctx)
		if err != nil {
			a.close()
			return nil, err
		}
		for range perStream {
			create := &etcdserverpb.WatchCreateRequest{Key: []byte(watched)}
			if err := stream.Send(&etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_CreateRequest{CreateRequest: create}}); err != nil {
				a.close()
				return nil, err
			}
		}
		seen := map[int64]uint64{} // the last number, by watcher
		for range perStream {
			resp, err := stream.Recv()
			if err == nil && !resp.Created {
				err = fmt.Errorf("answer to the creation of a watcher: %v", resp)
			}
			if err != nil {
				a.close()
				return nil, err
			}
			seen[resp.WatchId] = 0
		}
		if len(seen) != perStream {
			a.close()
			return nil, fmt.Errorf("%d watchers on a stream, want %d", len(seen), perStream)
		}
		a.reading.Go(func() { a.read(stream, seen) })
	}
	return a, nil
}

// read counts events until the stream ends.
func (a *audience) read(stream etcdserverpb.Watch_WatchClient, seen map[int64]uint64) {
	for {
		resp, err := stream.Recv()
		if err != nil {
			return
		}
		for _, e := range resp.Events {
			n := binary.BigEndian.Uint64(e.Kv.Value)
			if last, ok := seen[resp.WatchId]; !ok || n != last+1 {
				a.wrong.Add(1)
			}
			seen[resp.WatchId] = n
			a.latency.Load().add(time.Since(time.Unix(0, a.sent[n].Load())))
			a.events.Add(1)
		}
	}
}

// show puts the watched key so many times and waits until all have seen it.
func (a *audience) show(n int) error {
	r := rand.New(rand.NewPCG(1, uint64(a.puts)))
	begun := time.Now()
	for i := range n {
		if d := time.Until(begun.Add(time.Duration(i) * time.Second / perSecond)); d > 0 {
			pause(d)
		}
		a.puts++
		v := value(r)
		binary.BigEndian.PutUint64(v, uint64(a.puts))
		a.sent[a.puts].Store(time.Now().UnixNano())
		if err := a.c.conns[a.puts%servers].put(a.c.t.Context(), watched, v); err != nil {
			return fmt.Errorf("put %d: %w", a.puts, err)
		}
	}
	for deadline := time.Now().Add(patience); a.missing() > 0 && time.Now().Before(deadline); {
		pause(time.Millisecond)
	}
	return nil
}

func (a *audience) missing() int64 {
	return int64(a.puts)*streams*perStream - a.events.Load()
}

func (a *audience) close() {
	a.cancel()
	for _, c := range a.conns {
		c.close()
	}
	a.reading.Wait()
}

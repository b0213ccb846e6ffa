package interop

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/fairlead/fairlead/test/await"
	"github.com/fairlead/fairlead/test/scale"
)

// rss is the memory of the agent's process.
func (a *agent) rss(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", a.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.Atoi(strings.Fields(string(text))[1])
	if err != nil {
		t.Fatal(err)
	}
	return pages * os.Getpagesize()
}

// One stream has ten thousand watches, and each of them is told.
func TestManyWatchers(t *testing.T) {
	everywhere(t, func(t *testing.T, endpoints []string) {
		w := newWire(t, endpoints[0])
		stream, err := w.Watch(w.ctx)
		if err != nil {
			t.Fatal(err)
		}
		n := scale.N(10_000)
		go func() {
			for range n {
				_ = stream.Send(create(&pb.WatchCreateRequest{Key: []byte(t.Name())})) // what fails is received
			}
		}()
		ids := map[int64]bool{}
		for len(ids) < n {
			r, err := stream.Recv()
			if err != nil || !r.Created || r.Canceled || ids[r.WatchId] {
				t.Fatal(r, err)
			}
			ids[r.WatchId] = true
		}
		w.put(&pb.PutRequest{Key: []byte(t.Name()), Value: []byte("v")})
		for len(ids) > 0 {
			r, err := stream.Recv()
			if err != nil || len(r.Events) != 1 || !ids[r.WatchId] {
				t.Fatal(r, err)
			}
			delete(ids, r.WatchId)
		}
	})
}

// Many streams on one connection are served beside each other.
func TestManyStreams(t *testing.T) {
	everywhere(t, func(t *testing.T, endpoints []string) {
		w := newWire(t, endpoints[0])
		var streams []pb.Watch_WatchClient
		for range scale.N(5_000) {
			stream, err := w.Watch(w.ctx)
			if err == nil {
				err = stream.Send(create(&pb.WatchCreateRequest{Key: []byte(t.Name())}))
			}
			if err != nil {
				t.Fatal(err)
			}
			streams = append(streams, stream)
		}
		for _, s := range streams {
			if r, err := s.Recv(); err != nil || !r.Created {
				t.Fatal(r, err)
			}
		}
		w.put(&pb.PutRequest{Key: []byte(t.Name()), Value: []byte("v")})
		for _, s := range streams {
			if r, err := s.Recv(); err != nil || len(r.Events) != 1 {
				t.Fatal(r, err)
			}
		}
	})
}

// Watchers that never read cost the server what is on its way to them, and nobody
// else anything.
func TestWatchersThatDoNotRead(t *testing.T) {
	c := own(t, startOne)
	a, ctx := c.agents[0], soon(t)
	writer := client(t, a.api)
	value := strings.Repeat("v", 256<<10)
	others := writer.Watch(ctx, "k", clientv3.WithPrefix())
	before, rounds := 0, 20+scale.N(200)
	for i := range rounds {
		// Each begins at another time, on a connection of its own.
		if i >= 20 {
			stream, err := newWire(t, a.api).Watch(ctx)
			if err == nil {
				err = stream.Send(create(&pb.WatchCreateRequest{Key: []byte("k"), RangeEnd: []byte("l"), PrevKv: true}))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		var last int64
		for j := range 10 {
			r, err := writer.Put(ctx, fmt.Sprint("k", (10*i+j)%40), value) // 10 MiB of state
			if err != nil {
				t.Fatal(err)
			}
			last = r.Header.Revision
		}
		if _, err := writer.Compact(ctx, last); err != nil {
			t.Fatal(err)
		}
		for seen := 0; seen < 10; {
			select {
			case r := <-others:
				if r.Err() != nil {
					t.Fatal(r.Err())
				}
				seen += len(r.Events)
			case <-ctx.Done():
				t.Fatal("one that reads was not told")
			}
		}
		if i == 19 {
			before = a.rss(t)
		}
	}
	watchers, after := rounds-20, a.rss(t)
	t.Logf("%d MiB, with %d that do not read %d MiB", before>>20, watchers, after>>20)
	// Some answers of at most 1.5 MiB for each, twice that until it is collected.
	if most := before + 100<<20 + watchers*16<<20; after > most {
		t.Errorf("the agent has %d MiB, at most %d MiB are all right", after>>20, most>>20)
	}
}

// A deletion of much is sent in pieces to who takes them.
func TestLargeEvents(t *testing.T) {
	everywhere(t, func(t *testing.T, endpoints []string) {
		ctx, c := soon(t), client(t, endpoints...)
		const n = 6
		var next int64
		for i := range n {
			r, err := c.Put(ctx, fmt.Sprint(t.Name(), "/", i), strings.Repeat("v", 1<<20))
			if err != nil {
				t.Fatal(err)
			}
			next = r.Header.Revision + 1
		}
		whole := c.Watch(ctx, t.Name()+"/", clientv3.WithPrefix(), clientv3.WithPrevKV(), clientv3.WithRev(next))
		pieces := c.Watch(ctx, t.Name()+"/", clientv3.WithPrefix(), clientv3.WithPrevKV(), clientv3.WithRev(next), clientv3.WithFragment())
		w := newWire(t, endpoints[0])
		stream, err := w.Watch(w.ctx)
		if err == nil {
			err = stream.Send(create(&pb.WatchCreateRequest{Key: []byte(t.Name() + "/"), RangeEnd: []byte(t.Name() + "0"), PrevKv: true, Fragment: true, StartRevision: next}))
		}
		if err != nil {
			t.Fatal(err)
		}
		if r, err := stream.Recv(); err != nil || !r.Created {
			t.Fatal(r, err)
		}
		if r, err := c.Delete(ctx, t.Name()+"/", clientv3.WithPrefix(), clientv3.WithPrevKV()); err != nil || r.Deleted != n || len(r.PrevKvs) != n {
			t.Fatal(err)
		}
		for what, seen := range map[string]clientv3.WatchChan{"whole": whole, "in pieces": pieces} {
			if r := <-seen; r.Err() != nil || len(r.Events) != n || len(r.Events[n-1].PrevKv.Value) != 1<<20 {
				t.Errorf("%s: %d events, %v", what, len(r.Events), r.Err())
			}
		}
		events, last := 0, false
		for !last {
			r, err := stream.Recv()
			if err != nil || len(r.Events) > 1 {
				t.Fatal(len(r.GetEvents()), err)
			}
			events, last = events+len(r.Events), !r.Fragment
		}
		if events != n {
			t.Errorf("%d events in pieces", events)
		}
	})
}

// bytesCodec sends bytes as they are.
type bytesCodec struct{}

func (bytesCodec) Name() string { return "proto" }
func (bytesCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}
func (bytesCodec) Unmarshal(mem.BufferSlice, any) error { return nil }

// What is no request of any service is refused as gRPC does.
func TestNoSuchRequest(t *testing.T) {
	run := func(t *testing.T, endpoints []string) {
		conn, err := grpc.NewClient("passthrough:///"+endpoints[0], grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		for _, c := range []struct {
			method string
			body   []byte
			want   codes.Code
		}{
			{"/etcdserverpb.KV/Range", []byte("\xff\xff\xff"), codes.Internal},
			{"/etcdserverpb.KV/Put", []byte{0x0a, 0x7f, 'x'}, codes.Internal}, // a key that is longer than the request
			{"/etcdserverpb.KV/Nothing", nil, codes.Unimplemented},
			{"/v3lockpb.Lock/Nothing", nil, codes.Unimplemented},
			{"/nothing.Nothing/Nothing", nil, codes.Unimplemented},
		} {
			err := conn.Invoke(soon(t), c.method, c.body, new([]byte), grpc.ForceCodecV2(bytesCodec{}))
			if status.Code(err) != c.want {
				t.Errorf("%s with %q: %v, want %v", c.method, c.body, err, c.want)
			}
		}
	}
	everywhere(t, run)
	t.Run("etcd", func(t *testing.T) { run(t, peer(t).endpoints) })
}

// The metadata that names a keyspace opens nothing on the clients' port, however it
// is written, also by way of an agent that is no server.
func TestKeyspaceMetadata(t *testing.T) {
	const key = "fairlead-keyspace"
	set := sharing(t, "set", startSet)
	for _, a := range []*agent{sharing(t, "one", startOne).agents[0], set.agents[0], set.agents[3]} {
		for _, c := range []struct {
			pairs       []string
			tcp, socket string
		}{
			{nil, "user", "user"},
			{[]string{key, "user"}, "user", "user"},
			{[]string{key, ""}, "user", "user"},
			{[]string{key, "system"}, "PermissionDenied", "system"},
			{[]string{strings.ToUpper(key), "system"}, "PermissionDenied", "system"},
			{[]string{key, "user", key, "system"}, "PermissionDenied", "system"},
			{[]string{key, "system", key, "user"}, "user", "user"},
			{[]string{key, "SYSTEM"}, "InvalidArgument", "InvalidArgument"},
			{[]string{key, " system"}, "InvalidArgument", "InvalidArgument"},
			{[]string{key, "system,user"}, "InvalidArgument", "InvalidArgument"},
			{[]string{key + "-bin", "system"}, "user", "user"},
			{[]string{key + "-bin", "\x00\xff"}, "user", "user"},
		} {
			for target, want := range map[string]string{"passthrough:///" + a.api: c.tcp, "unix://" + a.socket(): c.socket} {
				conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()))
				if err != nil {
					t.Fatal(err)
				}
				ctx := metadata.NewOutgoingContext(soon(t), metadata.Pairs(c.pairs...))
				r, err := pb.NewKVClient(conn).Range(ctx, &pb.RangeRequest{Key: []byte("leader"), Serializable: true})
				got := status.Code(err).String()
				if err == nil {
					got = map[int64]string{0: "user", 1: "system"}[r.Count]
				}
				if got != want {
					t.Errorf("%s, %q: %s (%v), want %s", target, c.pairs, got, err, want)
				}
				// A stream is no other way in.
				stream, err := pb.NewWatchClient(conn).Watch(ctx)
				if err == nil {
					_ = stream.Send(create(&pb.WatchCreateRequest{Key: []byte("leader"), StartRevision: 1}))
					_, err = stream.Recv()
				}
				if code := status.Code(err).String(); code != want && (err != nil || want != "user" && want != "system") {
					t.Errorf("watch at %s, %q: %v, want %s", target, c.pairs, err, want)
				}
				conn.Close()
			}
		}
	}
}

// What is no gRPC does not stay.
func TestGarbage(t *testing.T) {
	everywhere(t, func(t *testing.T, endpoints []string) {
		t.Parallel()
		random := make([]byte, 4096)
		_, _ = rand.Read(random)
		const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
		all := map[string]string{
			"nothing":              "",
			"HTTP/1.1":             "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n",
			"TLS":                  "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + strings.Repeat("\x00", 508),
			"random":               string(random),
			"half a preface":       preface[:12],
			"a frame of 16 MiB":    preface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00" + "\xff\xff\xff\x00\x00\x00\x00\x00\x01",
			"headers without end":  preface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00" + "\x00\x00\x01\x01\x00\x00\x00\x00\x01\x82",
			"data of no stream":    preface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00" + "\x00\x00\x04\x00\x00\x00\x00\x00\x05abcd",
			"headers on stream 0":  preface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00" + "\x00\x00\x01\x01\x04\x00\x00\x00\x00\x82",
			"settings of 5 bytes":  preface + "\x00\x00\x05\x04\x00\x00\x00\x00\x00abcde",
			"a window of nothing":  preface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00" + "\x00\x00\x04\x08\x00\x00\x00\x00\x00\x00\x00\x00\x00",
			"a frame of no kind":   preface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00" + "\x00\x00\x01\xee\x00\x00\x00\x00\x00x",
			"headers that are bad": preface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00" + "\x00\x00\x02\x01\x05\x00\x00\x00\x01\xff\xff",
		}
		t.Run("all", func(t *testing.T) {
			for what, sent := range all {
				t.Run(what, func(t *testing.T) {
					t.Parallel()
					c, err := net.Dial("tcp", endpoints[0])
					if err != nil {
						t.Fatal(err)
					}
					defer c.Close()
					_, _ = io.WriteString(c, sent) // it may be closed before all of it is taken
					if strings.HasPrefix(sent, preface) {
						// It may be a client that goes on: only nothing else may come of it.
						_ = c.(*net.TCPConn).CloseWrite()
					}
					_ = c.SetReadDeadline(time.Now().Add(30 * time.Second))
					if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
						t.Error("the connection stays")
					}
				})
			}
		})
		if _, err := client(t, endpoints...).Put(soon(t), t.Name(), "v"); err != nil {
			t.Error(err)
		}
	})
}

// Connections that say nothing are closed, and keep nobody out meanwhile.
func TestConnectionFlood(t *testing.T) {
	everywhere(t, func(t *testing.T, endpoints []string) {
		t.Parallel()
		var all []net.Conn
		defer func() {
			for _, c := range all {
				c.Close()
			}
		}()
		for range scale.N(4_000) {
			c, err := net.Dial("tcp", endpoints[0])
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, c)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if _, err := client(t, endpoints...).Put(ctx, t.Name(), "v"); err != nil {
			t.Errorf("beside %d connections: %v", len(all), err)
		}
		await.For(t, "all of them to be closed", func() bool {
			for _, c := range all {
				_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
				if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
					return false
				}
			}
			return true
		})
	})
}

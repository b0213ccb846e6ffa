package api_test

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/fairlead/fairlead/core/api"
	"github.com/fairlead/fairlead/core/api/client"
	"github.com/fairlead/fairlead/core/api/etcd"
	"github.com/fairlead/fairlead/core/api/etcd/etcdtest"
	"github.com/fairlead/fairlead/core/api/fairleadv1"
)

func storeServer(t *testing.T, front *etcd.Front) *api.Server {
	t.Helper()
	f := &fake{events: twoEvents}
	server := api.NewServer(api.Backend{Identity: f, Members: f, Events: f, Leaver: f, Settings: f, Store: front}, slog.New(slog.DiscardHandler))
	t.Cleanup(func() { stopNow(server) })
	return server
}

func dial(t *testing.T, target string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+target, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, target string) (net.Conn, error) {
			network, address := client.Address(target)
			return (&net.Dialer{}).DialContext(ctx, network, address)
		}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func inKeyspace(ctx context.Context, name string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, etcd.KeyspaceKey, name)
}

// The socket reaches both keyspaces, TCP the user's.
func TestStoreOnListeners(t *testing.T) {
	s := etcdtest.Open(t, 1)
	front := etcd.NewFront("")
	front.Set(s.API)
	server := storeServer(t, front)
	ctx := t.Context()
	for _, c := range []struct {
		access api.Access
		system codes.Code
	}{{api.AccessAll, codes.OK}, {api.AccessRead, codes.PermissionDenied}} {
		kv := pb.NewKVClient(dial(t, listenOn(t, server, c.access)))
		if _, err := kv.Put(ctx, &pb.PutRequest{Key: []byte("k"), Value: make([]byte, 1400<<10)}); err != nil {
			t.Errorf("%v: 1,400 KiB: %v", c.access, err)
		}
		if _, err := kv.Put(ctx, &pb.PutRequest{Key: []byte("k"), Value: make([]byte, 1600<<10)}); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%v: 1,600 KiB: %v, want etcd's error", c.access, err)
		}
		if _, err := kv.Range(inKeyspace(ctx, "system"), &pb.RangeRequest{Key: []byte("leader")}); status.Code(err) != c.system {
			t.Errorf("%v: the system's keyspace: %v, want %v", c.access, err, c.system)
		}
		if _, err := kv.Range(inKeyspace(ctx, "users"), &pb.RangeRequest{Key: []byte("k")}); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%v: a keyspace that is none: %v", c.access, err)
		}
		if r, err := kv.DeleteRange(ctx, &pb.DeleteRangeRequest{Key: []byte{0}, RangeEnd: []byte{0}}); err != nil || r.Deleted != 1 {
			t.Errorf("%v: all keys: %v, %v", c.access, r, err)
		}
	}
}

func TestNoStoreSaysSo(t *testing.T) {
	kv := pb.NewKVClient(dial(t, listenOn(t, storeServer(t, nil), api.AccessRead)))
	if _, err := kv.Range(t.Context(), &pb.RangeRequest{Key: []byte("k")}); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "this agent has none") {
		t.Errorf("%v", err)
	}
}

// Requests of our own services stay as small as they were.
func TestOwnRequestsAreBounded(t *testing.T) {
	agent := fairleadv1.NewAgentClient(dial(t, listenOn(t, storeServer(t, nil), api.AccessAll)))
	_, err := agent.Register(t.Context(), &fairleadv1.RegisterRequest{Definition: strings.Repeat("x", 1<<20+1)})
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("%v", err)
	}
	stream, err := agent.Events(t.Context(), &fairleadv1.EventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Errorf("a small one: %v", err)
	}
}

// A graceful stop does not wait for watches and keep-alives.
func TestStopEndsStreamsOfTheStore(t *testing.T) {
	s := etcdtest.Open(t, 1)
	front := etcd.NewFront("")
	front.Set(s.API)
	server := storeServer(t, front)
	conn := dial(t, listenOn(t, server, api.AccessRead))
	watch, err := pb.NewWatchClient(conn).Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := watch.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{Key: []byte("k")}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := watch.Recv(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	server.Stop(ctx)
	if ctx.Err() != nil {
		t.Error("Stop waited for a watch")
	}
	if _, err := watch.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("the watch ended with %v", err)
	}
}

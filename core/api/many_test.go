package api_test

import (
	"context"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/fairlead/fairlead/core/api"
	"github.com/fairlead/fairlead/core/api/etcd"
	"github.com/fairlead/fairlead/core/api/etcd/etcdtest"
	"github.com/fairlead/fairlead/test/scale"
)

// Thousands of clients at a time are served, each with a connection of its own and
// a watch, and hundreds of watches on one.
func TestManyClients(t *testing.T) {
	s := etcdtest.Open(t, 1)
	front := etcd.NewFront("")
	front.Set(s.API)
	target := listenOn(t, storeServer(t, front), api.AccessRead)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()

	clients := scale.N(3000)
	var conns []*grpc.ClientConn
	defer func() {
		for _, c := range conns {
			_ = c.Close()
		}
	}()
	var streams []pb.Watch_WatchClient
	for i := range 2 * clients {
		if i <= clients { // the rest is on the last one
			conn, err := grpc.NewClient("passthrough:///"+target, grpc.WithTransportCredentials(insecure.NewCredentials()))
			if err != nil {
				t.Fatal(err)
			}
			conns = append(conns, conn)
		}
		w, err := pb.NewWatchClient(conns[len(conns)-1]).Watch(ctx)
		if err != nil {
			t.Fatal(err)
		}
		streams = append(streams, w)
	}
	var all sync.WaitGroup
	create := &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{Key: []byte("k")}}}
	for _, w := range streams {
		all.Go(func() {
			if err := w.Send(create); err != nil {
				t.Error(err)
				return
			}
			if _, err := w.Recv(); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if _, err := pb.NewKVClient(conns[0]).Put(ctx, &pb.PutRequest{Key: []byte("k")}); err != nil {
		t.Fatal(err)
	}
	for _, w := range streams {
		if r, err := w.Recv(); err != nil || len(r.Events) != 1 {
			t.Fatalf("%v, %v", r, err)
		}
	}
}

package raft_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/core/raft"
	"github.com/fairlead/fairlead/core/raft/disk"
	"github.com/fairlead/fairlead/core/store"
)

// Three servers hold one map. Whoever is asked writes and reads it, all have the
// same at all times, and one of them may stop, be it the leader.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	network := raft.NewNetwork()
	var servers []*raft.Host
	for id := uint64(1); id <= 3; id++ {
		h, err := raft.Open(raft.Config{
			ID: id, Cluster: "cafe", Voters: []uint64{1, 2, 3},
			Disk: disk.NewMemory(), Transport: network.Join(id),
			HeartbeatInterval: 20 * time.Millisecond, ElectionTimeout: 200 * time.Millisecond,
			Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(),
		})
		if err != nil {
			fmt.Println(err)
			return
		}
		defer h.Close()
		servers = append(servers, h)
	}

	set := func(key, value string) store.Op {
		return store.Op{Put: &store.PutOp{Key: key, Value: []byte(value)}}
	}
	del := func(key string) store.Op {
		return store.Op{Delete: &store.DeleteOp{Range: store.Range{Key: key}}}
	}
	for i, command := range []struct {
		text string
		op   store.Op
	}{
		{"SET x 1", set("x", "1")},
		{"SET y hello", set("y", "hello")},
		{"SET x 2", set("x", "2")},
		{"DEL y", del("y")},
	} {
		asked := servers[i%len(servers)]
		result, err := asked.Propose(ctx, store.Command{Space: store.User, Op: &command.op})
		if err != nil || result.Err != nil {
			fmt.Println(err, result.Err)
			return
		}
		fmt.Println(command.text)
		printMaps(ctx, servers)
	}

	i := leader(ctx, servers)
	servers[i].Close()
	servers = slices.Delete(servers, i, i+1)
	fmt.Println("the leader stops")
	printMaps(ctx, servers)

	// Output:
	// SET x 1
	//   map[x:1]
	//   map[x:1]
	//   map[x:1]
	// SET y hello
	//   map[x:1 y:hello]
	//   map[x:1 y:hello]
	//   map[x:1 y:hello]
	// SET x 2
	//   map[x:2 y:hello]
	//   map[x:2 y:hello]
	//   map[x:2 y:hello]
	// DEL y
	//   map[x:2]
	//   map[x:2]
	//   map[x:2]
	// the leader stops
	//   map[x:2]
	//   map[x:2]
}

// leader returns which of the servers leads, and waits until one does.
func leader(ctx context.Context, servers []*raft.Host) int {
	for ctx.Err() == nil {
		changed := servers[0].Changed()
		if i := slices.IndexFunc(servers, func(h *raft.Host) bool { return h.State().Leads() }); i >= 0 {
			return i
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
	return 0
}

// printMaps prints the map of each server, as a linearizable read finds it: with
// everything in it that was answered before.
func printMaps(ctx context.Context, servers []*raft.Host) {
	for _, h := range servers {
		view, err := h.Read(ctx)
		if err != nil {
			fmt.Println(err)
			return
		}
		all, err := view.Range(store.User, store.RangeOp{Range: store.Range{Key: "\x00", End: store.FromKey}})
		if err != nil {
			fmt.Println(err)
			return
		}
		values := map[string]string{}
		for _, kv := range all.KVs {
			values[kv.Key] = string(kv.Value)
		}
		fmt.Printf("  %v\n", values)
	}
}

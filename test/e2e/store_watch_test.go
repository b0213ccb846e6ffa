package e2e

import (
	"context"
	"math/rand/v2"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/fairlead/fairlead/test/history"
)

// follow watches at a server from the beginning, and goes on after the last revision
// that it was shown whenever the watch ends.
func (l *storeLoad) follow(n *storeNode) {
	from := l.from
	for l.watchers.Err() == nil {
		w := l.recorder.Watch(n.name, from)
		l.mu.Lock()
		l.reached[n] = w
		l.mu.Unlock()
		compacted := l.watch(l.watchers, n, w, from)
		from = max(from, w.Reached()+1, compacted)
		l.pause()
	}
}

// peek watches again and again for a while, from a revision of the past or of the
// future.
func (l *storeLoad) peek(n *storeNode) {
	for l.watchers.Err() == nil {
		l.mu.Lock()
		now := l.reached[n]
		l.mu.Unlock()
		if now != nil {
			from := max(l.from, now.Reached()-100+rand.Int64N(200))
			ctx, cancel := context.WithTimeout(l.watchers, time.Second)
			l.watch(ctx, n, l.recorder.Watch(n.name+"'s window", from), from)
			cancel()
		}
		l.pause()
	}
}

// pause keeps watches from being asked for too often of a server that is down.
func (l *storeLoad) pause() {
	timer := time.NewTimer(50 * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-l.watchers.Done():
	}
}

// watch takes down what one watch shows until it ends. If what it should begin with
// is compacted, it returns the first revision that is not.
func (l *storeLoad) watch(ctx context.Context, n *storeNode, w *history.Watching, from int64) int64 {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := pb.NewWatchClient(n.conn).Watch(ctx)
	if err != nil {
		return 0
	}
	err = stream.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{
		Key: []byte(storePrefix), RangeEnd: []byte("load0"), StartRevision: from, PrevKv: true, ProgressNotify: true,
	}}})
	if err != nil {
		return 0
	}
	asked := time.Now()
	for {
		r, err := stream.Recv()
		if err != nil || r.Canceled {
			return r.GetCompactRevision()
		}
		if r.Created {
			continue
		}
		b := history.Batch{Revision: r.Header.Revision}
		for _, e := range r.Events {
			b.Events = append(b.Events, eventOf(e))
		}
		w.Got(b)
		if l.bookmark && time.Since(asked) > 100*time.Millisecond {
			asked = time.Now()
			if stream.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}}) != nil {
				return 0
			}
		}
	}
}

func eventOf(e *mvccpb.Event) history.Event {
	out := history.Event{Key: string(e.Kv.Key), Item: itemOf(e.Kv), Deleted: e.Type == mvccpb.Event_DELETE}
	if out.Deleted {
		out.Item = history.Item{Modified: e.Kv.ModRevision}
	}
	// The value before may be compacted by now: then it is not told.
	if before := itemOf(e.PrevKv); e.PrevKv != nil || out.Item.Version == 1 {
		out.Before = &before
	}
	return out
}

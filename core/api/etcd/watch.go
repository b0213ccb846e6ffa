package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/fairlead/fairlead/core/store"
)

// watcher is one watch of a stream.
type watcher struct {
	id       int64
	keys     store.Range
	next     int64 // revision that is read next
	prev     bool
	fragment bool
	progress bool
	without  [2]bool // by event type
	quiet    time.Time
}

// watchStream is one stream; its goroutine owns it, but for requests, which a
// second one receives.
type watchStream struct {
	s        *face
	stream   pb.Watch_WatchServer
	space    store.Keyspace
	watchers []*watcher
	ids      map[int64]bool // of the watchers
	nextID   int64          // the lowest that may be given to a watch
	// reached is up to which revision all watchers were sent everything; behind says
	// that one begins further back.
	reached int64
	behind  bool
}

// Watch implements pb.WatchServer.
func (s *face) Watch(stream pb.Watch_WatchServer) error {
	k, err := s.enter(stream.Context())
	if err != nil {
		return err
	}
	w := &watchStream{s: s, stream: stream, space: k, ids: map[int64]bool{}, reached: -1}
	requests, failed := receive(stream)
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		newer := s.newer()
		if err := w.advance(); err != nil {
			return err
		}
		select {
		case r := <-requests:
			if err := w.request(r); err != nil {
				return err
			}
		case err := <-failed:
			return err
		case <-newer:
		case now := <-ticker.C:
			if w.forsaken(now) {
				return rpctypes.ErrGRPCNoLeader
			}
			if err := w.tell(now); err != nil {
				return err
			}
		case <-s.stop:
			return rpctypes.ErrGRPCStopped
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

// forsaken reports whether the stream has to end for want of a leader: a client
// may demand one, and the system's state must not be believed without one.
func (w *watchStream) forsaken(now time.Time) bool {
	if w.space != store.System && !wantsLeader(w.stream.Context()) {
		return false
	}
	return w.s.leaderless(now) > w.s.cfg.MinLease
}

func wantsLeader(ctx context.Context) bool {
	return slices.Contains(metadata.ValueFromIncomingContext(ctx, rpctypes.MetadataRequireLeaderKey), rpctypes.MetadataHasLeader)
}

// leaderless is for how long no leader was known.
func (s *Server) leaderless(now time.Time) time.Duration {
	leader := s.cfg.Store.Header().Leader
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case leader != 0:
		s.lostAt = time.Time{}
		return 0
	case s.lostAt.IsZero():
		s.lostAt = now
	}
	return now.Sub(s.lostAt)
}

func (w *watchStream) request(r *pb.WatchRequest) error {
	switch q := r.RequestUnion.(type) {
	case *pb.WatchRequest_CreateRequest:
		return w.create(q.CreateRequest)
	case *pb.WatchRequest_CancelRequest:
		return w.cancel(q.CancelRequest.WatchId)
	case *pb.WatchRequest_ProgressRequest:
		return w.synced()
	}
	return nil
}

// synced says up to which revision all watches of the stream have all events. While
// one of them waits for a revision to come, nothing is said: it would begin before
// that when it is resumed.
func (w *watchStream) synced() error {
	revision := w.view().Stats(w.space).Revision
	if err := w.advance(); err != nil {
		return err
	}
	for _, a := range w.watchers {
		if a.next > w.view().Stats(w.space).Revision+1 {
			return nil
		}
		revision = min(revision, a.next-1)
	}
	return w.stream.Send(&pb.WatchResponse{Header: w.header(revision), WatchId: -1})
}

func (w *watchStream) view() *store.View { return w.s.cfg.Store.View() }

func (w *watchStream) header(revision int64) *pb.ResponseHeader { return w.s.header(revision) }

func (w *watchStream) create(r *pb.WatchCreateRequest) error {
	now := w.view().Stats(w.space).Revision
	keys := store.Range{Key: string(r.Key), End: string(r.RangeEnd)}
	if keys.Key == "" {
		keys.Key = store.FromKey // the lowest key there can be
	}
	refuse := func(why string) error {
		return w.stream.Send(&pb.WatchResponse{Header: w.header(now), WatchId: -1, Created: true, Canceled: true, CancelReason: why})
	}
	if r.RangeEnd != nil && keys.End != store.FromKey && keys.End != "" && keys.End <= keys.Key {
		return refuse("mvcc: watcher range is empty")
	}
	if r.StartRevision < 0 {
		return refuse(rpctypes.ErrorDesc(rpctypes.ErrGRPCCompacted))
	}
	id := r.WatchId
	if id == 0 {
		for w.ids[w.nextID] {
			w.nextID++
		}
		id = w.nextID
		w.nextID++
	} else if w.ids[id] {
		return refuse("mvcc: duplicate watch ID provided on the WatchStream")
	}
	a := &watcher{
		id: id, keys: keys, next: r.StartRevision, prev: r.PrevKv, fragment: r.Fragment, progress: r.ProgressNotify, quiet: time.Now(),
	}
	for _, f := range r.Filters {
		switch f {
		case pb.WatchCreateRequest_NOPUT:
			a.without[mvccpb.PUT] = true
		case pb.WatchCreateRequest_NODELETE:
			a.without[mvccpb.DELETE] = true
		}
	}
	if a.next <= 0 {
		a.next = now + 1
	}
	w.watchers = append(w.watchers, a)
	w.ids[id] = true
	w.behind = w.behind || a.next <= now
	return w.stream.Send(&pb.WatchResponse{Header: w.header(now), WatchId: id, Created: true})
}

func (w *watchStream) find(id int64) int {
	return slices.IndexFunc(w.watchers, func(a *watcher) bool { return a.id == id })
}

// remove drops a watch.
func (w *watchStream) remove(id int64) {
	i := w.find(id)
	w.watchers = slices.Delete(w.watchers, i, i+1)
	delete(w.ids, id)
}

func (w *watchStream) cancel(id int64) error {
	if !w.ids[id] {
		return nil
	}
	w.remove(id)
	return w.stream.Send(&pb.WatchResponse{Header: w.header(w.view().Stats(w.space).Revision), WatchId: id, Canceled: true})
}

// advance sends what is new to every watch.
func (w *watchStream) advance() error {
	until := w.view().Stats(w.space).Revision
	if until == w.reached && !w.behind {
		return nil // a request costs nothing of what is watched already
	}
	w.reached, w.behind = until, false
	var compacted []*watcher
	for _, a := range w.watchers {
		err := w.catchUp(a, until)
		if errors.Is(err, store.ErrCompacted) {
			compacted = append(compacted, a)
			continue
		}
		if err != nil {
			return err
		}
	}
	for _, a := range compacted {
		now := w.view().Stats(w.space)
		w.remove(a.id)
		err := w.stream.Send(&pb.WatchResponse{
			Header: w.header(now.Revision), WatchId: a.id, Canceled: true, CompactRevision: now.Compacted,
			CancelReason: rpctypes.ErrorDesc(rpctypes.ErrGRPCCompacted),
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// catchUp sends a watch all up to a revision, bit by bit. No view is held while
// something is sent: one that a client does not read for long would keep in memory
// what is compacted since.
func (w *watchStream) catchUp(a *watcher, until int64) error {
	for a.next <= until {
		b, err := w.bit(a)
		if err != nil {
			return err
		}
		a.next = b.next
		if err := w.send(a, b.now, b.events); err != nil {
			return err
		}
	}
	return nil
}

// bit is what is read for a watch at a time.
type bit struct {
	events []*mvccpb.Event
	next   int64 // revision to go on from
	now    int64 // revision of the store
}

// bit reads what is new to a watch: whole revisions, of about as much as one answer
// has, or more of it for who puts the pieces together again.
func (w *watchStream) bit(a *watcher) (bit, error) {
	v := w.view()
	out := bit{now: v.Stats(w.space).Revision}
	out.next = out.now + 1
	size, limit := 0, maxRequestBytes
	if a.fragment {
		limit = maxFragmentsBytes
	}
	err := v.Since(w.space, a.keys, a.next, func(e store.Event) bool {
		if size > limit && e.KV.Mod != out.events[len(out.events)-1].Kv.ModRevision {
			out.next = e.KV.Mod
			return false
		}
		event := &mvccpb.Event{Type: mvccpb.PUT, Kv: kvOf(e.KV)}
		if e.KV.Deleted() {
			event.Type = mvccpb.DELETE
		}
		if a.without[event.Type] {
			return true
		}
		if a.prev {
			event.PrevKv = prevOf(e.Prev)
		}
		out.events = append(out.events, event)
		size += len(e.KV.Key) + len(e.KV.Value) + len(event.GetPrevKv().GetValue())
		return true
	})
	return out, err
}

// send sends events, in pieces if the watch takes them so. Events of one revision
// are in one answer otherwise.
func (w *watchStream) send(a *watcher, revision int64, events []*mvccpb.Event) error {
	if len(events) == 0 {
		return nil
	}
	a.quiet = time.Now()
	for len(events) > 0 {
		n := a.piece(events)
		r := &pb.WatchResponse{Header: w.header(revision), WatchId: a.id, Events: events[:n], Fragment: a.fragment && n < len(events)}
		if err := w.stream.Send(r); err != nil {
			return err
		}
		events = events[n:]
	}
	return nil
}

// piece returns how many of the events make one answer: about as many as a
// request may be large. Without fragments a revision is never cut.
func (a *watcher) piece(events []*mvccpb.Event) int {
	size := 0
	for i, e := range events {
		if size += proto.Size(e); size <= maxRequestBytes || i == 0 {
			continue
		}
		if a.fragment || events[i-1].Kv.ModRevision != e.Kv.ModRevision {
			return i
		}
	}
	return len(events)
}

// tell says to those that want it, and heard nothing for long, how far they are.
func (w *watchStream) tell(now time.Time) error {
	newest := w.view().Stats(w.space).Revision
	for _, a := range w.watchers {
		if !a.progress || now.Sub(a.quiet) < progressEvery || a.next > newest+1 {
			continue
		}
		a.quiet = now
		if err := w.stream.Send(&pb.WatchResponse{Header: w.header(a.next - 1), WatchId: a.id}); err != nil {
			return fmt.Errorf("etcd: progress: %w", err)
		}
	}
	return nil
}

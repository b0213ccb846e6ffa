package follow

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/fairlead/fairlead/core/api/etcd"
)

// session is the time at one server.
type session struct {
	*Follower
	server Server
	kv     pb.KVClient
	watch  pb.WatchClient
	// first and end are the range of all keys.
	first, end []byte
	since      time.Time // it watches; zero: not yet
}

// follow follows a server until there is a reason to leave it, which it returns, and
// for how long it was followed.
func (f *Follower) follow(ctx context.Context, server Server) (held time.Duration, err error) {
	conn, err := f.cfg.Dial(server, grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32)))
	if err != nil {
		return 0, err
	}
	defer conn.Close() //nolint:errcheck // it is closed in any case
	md := metadata.Pairs(rpctypes.MetadataRequireLeaderKey, rpctypes.MetadataHasLeader)
	if f.cfg.Prefix == "" {
		md.Set(etcd.KeyspaceKey, "system")
	}
	r := rangeOf(f.cfg.Prefix)
	s := &session{Follower: f, server: server, kv: pb.NewKVClient(conn), watch: pb.NewWatchClient(conn), first: []byte(r.Key), end: []byte(r.End)}
	err = s.run(metadata.NewOutgoingContext(ctx, md))
	if !s.since.IsZero() {
		held = time.Since(s.since)
	}
	return held, err
}

func (s *session) run(ctx context.Context) error {
	anew, err := s.compare(ctx)
	if err != nil {
		return err
	}
	if !anew {
		switch err := s.verify(ctx); {
		case errors.Is(err, errCompacted):
			s.draft = nil
		case err != nil:
			return err
		}
	}
	if anew || s.draft == nil {
		if err := s.read(ctx); err != nil {
			return err
		}
	}
	for {
		err := s.listen(ctx)
		if !errors.Is(err, errCompacted) {
			return err
		}
		s.cfg.Log.Info("the history since the copy is compacted: it is read anew", "server", s.server.Name, "revision", s.draft.revision)
		if err := s.read(ctx); err != nil {
			return err
		}
	}
}

// compare asks the server where it is, before anything of it is believed. That all is to
// be read anew, whatever is known, is an operator's word; until it is read the draft
// stays, as it is what the next server is compared with.
func (s *session) compare(ctx context.Context) (anew bool, err error) {
	asked := s.cfg.Now()
	ctx, cancel := context.WithTimeout(ctx, s.cfg.times.answer)
	defer cancel()
	r, err := s.kv.Range(ctx, &pb.RangeRequest{Key: s.first, KeysOnly: true})
	if err != nil {
		return false, s.late(ctx, err)
	}
	err = s.fits(r.Header)
	switch {
	case s.accepts(r.Header.GetClusterId()):
		return true, nil
	case err != nil:
		return false, err
	}
	if s.draft != nil && r.Header.Revision == s.draft.revision {
		s.wasCurrent(asked)
	}
	return false, nil
}

// late names the end of a call's time.
func (s *session) late(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("%w: no answer in time: %w", ErrSilent, err)
	}
	return err
}

// fits returns why an answer may not be believed.
func (s *session) fits(h *pb.ResponseHeader) error {
	if h == nil || h.ClusterId == 0 {
		return errors.New("its answer does not say which cluster it is of: is it etcd, or an agent?")
	}
	if err := s.cfg.compare(s.State(), h.ClusterId, h.Revision); err != nil {
		return s.refuse(h.ClusterId, err)
	}
	return nil
}

// read reads everything at one revision, and makes it the copy.
func (s *session) read(ctx context.Context) error {
	asked := s.cfg.Now()
	var d *draft
	q := &pb.RangeRequest{Key: s.first, RangeEnd: s.end, Limit: pageKeys}
	for {
		r, err := s.page(ctx, q)
		if err != nil {
			return err
		}
		if err := s.fits(r.Header); err != nil && !s.accepts(r.Header.GetClusterId()) {
			return err
		}
		if d == nil {
			d = newDraft(r.Header.ClusterId, r.Header.Revision)
			// What is read after the first page is there, at this server.
			q.Revision, q.Serializable = r.Header.Revision, true
		}
		for _, kv := range r.Kvs {
			d.put(s.cfg.Prefix, kv)
		}
		if !r.More || len(r.Kvs) == 0 {
			break
		}
		q.Key = append(r.Kvs[len(r.Kvs)-1].Key, 0)
	}
	s.metrics.reads.Inc()
	s.draft = d
	s.taken(d.cluster)
	s.publish()
	s.wasCurrent(asked)
	return nil
}

func (s *session) page(ctx context.Context, q *pb.RangeRequest) (*pb.RangeResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.times.page)
	defer cancel()
	r, err := s.kv.Range(ctx, q)
	if err != nil {
		return nil, s.late(ctx, err)
	}
	return r, nil
}

// listen watches from the revision after the copy's on.
func (s *session) listen(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := s.watch.Watch(ctx)
	if err != nil {
		return err
	}
	create := &pb.WatchCreateRequest{Key: s.first, RangeEnd: s.end, StartRevision: s.draft.revision + 1, ProgressNotify: true, Fragment: true}
	if err := send(stream, &pb.WatchRequest_CreateRequest{CreateRequest: create}); err != nil {
		return err
	}
	answers, failed := make(chan *pb.WatchResponse), make(chan error, 1)
	go func() {
		for {
			r, err := stream.Recv()
			if err != nil {
				failed <- err
				return
			}
			select {
			case answers <- r:
			case <-ctx.Done():
				failed <- ctx.Err()
				return
			}
		}
	}()
	err = s.heed(ctx, stream, answers, failed)
	cancel()
	for {
		select {
		case <-answers:
		case <-failed:
			return err
		}
	}
}

// heed takes what the watch says.
func (s *session) heed(ctx context.Context, stream pb.Watch_WatchClient, answers <-chan *pb.WatchResponse, failed chan error) error {
	ticker := time.NewTicker(s.cfg.times.ask)
	defer ticker.Stop()
	w := watching{session: s}
	for {
		select {
		case r := <-answers:
			w.silent = 0
			if err := w.take(r); err != nil {
				return err
			}
			if r.Created {
				s.since = time.Now()
				s.at(s.server, "")
				s.followed(s.draft.cluster)
				s.cfg.Log.Info("the system's keyspace is followed at a server", "server", s.server.Name, "address", s.server.Address, "revision", s.draft.revision)
				if err := w.ask(stream); err != nil {
					return err
				}
			}
		case err := <-failed:
			failed <- err // for listen
			return err
		case <-ticker.C:
			// Ticks are counted and not time: this process may have been stopped.
			if w.silent++; w.silent > s.cfg.times.silent {
				return fmt.Errorf("%w: nothing was heard for %v", ErrSilent, s.cfg.times.ask*time.Duration(w.silent))
			}
			if err := w.ask(stream); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// watching is what is known of a watch.
type watching struct {
	*session
	created bool
	id      int64
	pieces  []*mvccpb.Event // of revisions that are not whole yet
	silent  int
	asked   time.Time // since when there is no answer to how far it is; zero: there is one
}

// ask asks how far the watch is.
func (w *watching) ask(stream pb.Watch_WatchClient) error {
	if !w.created {
		return nil
	}
	if w.asked.IsZero() {
		w.asked = w.cfg.Now()
	}
	// Asked again without an answer: some versions of etcd give none while they
	// are still sending.
	return send(stream, &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}})
}

func (w *watching) take(r *pb.WatchResponse) error {
	if r.Created {
		w.id = r.WatchId
		if err := w.fits(r.Header); err != nil {
			return err
		}
	} else if r.Header.GetClusterId() != w.draft.cluster {
		return w.fits(r.Header)
	}
	switch {
	case r.Canceled && r.CompactRevision != 0:
		return errCompacted
	case r.Canceled:
		return fmt.Errorf("it ended the watch: %s", r.CancelReason)
	case r.Created:
		w.created = true
	case len(r.Events) > 0 || r.Fragment:
		w.pieces = append(w.pieces, r.Events...)
		if r.Fragment {
			return nil
		}
		before := w.draft.revision
		w.draft.apply(w.cfg.Prefix, w.pieces)
		w.metrics.events.Add(float64(len(w.pieces)))
		w.pieces = nil
		if w.draft.revision != before {
			w.publish()
		}
	case r.WatchId != w.id:
		// An answer to ask. Its revision is not taken for that of the copy: before
		// 3.4.25 and 3.5.8, etcd may send it ahead of events.
		if !w.asked.IsZero() {
			w.wasCurrent(w.asked)
			w.asked = time.Time{}
		}
	case r.Header.Revision > w.draft.revision:
		w.draft.revision = r.Header.Revision
		w.publish()
	}
	return nil
}

// send sends a request. The end of the stream is found by who receives.
func send(stream pb.Watch_WatchClient, request any) error {
	q := &pb.WatchRequest{}
	switch r := request.(type) {
	case *pb.WatchRequest_CreateRequest:
		q.RequestUnion = r
	case *pb.WatchRequest_ProgressRequest:
		q.RequestUnion = r
	}
	return stream.Send(q)
}

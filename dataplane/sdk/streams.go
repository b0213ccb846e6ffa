package sdk

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/fairlead/fairlead/dataplane"
	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
	"github.com/fairlead/fairlead/dataplane/transfer"
)

// statsBatch is how many counters go into one message.
const statsBatch = 512

// Watch streams events, health first. It ends when the provider's Watch fails
// and when the service ends.
func (s *Service) Watch(r *pb.WatchRequest, stream grpc.ServerStreamingServer[pb.WatchResponse]) error {
	ctx, cancel := s.join(stream.Context())
	defer cancel()
	flows := transfer.DecodeFlowOptions(r.GetFlows())
	w := newWatcher(s.instance, flows)
	h, err := s.health(ctx)
	if err != nil {
		return transfer.ToWire(err)
	}
	w.emit(dataplane.Event{Health: &h})
	if !s.hub.add(w) {
		return transfer.ToWire(fmt.Errorf("%w: %d calls of Watch are under way already", dataplane.ErrLimit, maxWatchers))
	}
	defer s.hub.remove(w)
	failed := s.watchProvider(ctx, flows, w)
	for {
		select {
		case m := <-w.events:
			if err := stream.Send(m); err != nil {
				return err
			}
		case err := <-failed:
			return transfer.ToWire(err)
		case <-s.done:
			return nil
		case <-ctx.Done():
			return transfer.ToWire(ctx.Err())
		}
	}
}

// watchProvider runs the provider's own Watch. Its error arrives on the channel.
func (s *Service) watchProvider(ctx context.Context, flows *dataplane.FlowOptions, w *watcher) <-chan error {
	p, ok := s.provider.(dataplane.Watcher)
	if !ok {
		return nil
	}
	failed := make(chan error, 1)
	go func() {
		if err := s.call("Watch", func() error { return p.Watch(ctx, flows, w.emit) }); err != nil && ctx.Err() == nil {
			failed <- err
		}
	}()
	return failed
}

// Stats streams the counters of a Counting provider.
func (s *Service) Stats(_ *pb.StatsRequest, stream grpc.ServerStreamingServer[pb.StatsResponse]) error {
	p, ok := s.provider.(dataplane.Counting)
	if !ok {
		return transfer.ToWire(fmt.Errorf("%w: %s does not count", dataplane.ErrUnsupported, s.info.Name))
	}
	ctx, cancel := s.join(stream.Context())
	defer cancel()
	batch := &pb.StatsResponse{InstanceId: s.instance()}
	var sent error
	send := func() bool {
		sent = stream.Send(batch)
		batch = &pb.StatsResponse{InstanceId: batch.InstanceId}
		return sent == nil
	}
	err := s.call("Stats", func() error {
		return p.Stats(ctx, func(c dataplane.Counter) bool {
			if ctx.Err() != nil {
				return false
			}
			batch.Counters = append(batch.Counters, transfer.EncodeCounter(c))
			return len(batch.Counters) < statsBatch || send()
		})
	})
	switch {
	case sent != nil:
		return sent
	case err != nil:
		return transfer.ToWire(err)
	case ctx.Err() != nil:
		return transfer.ToWire(ctx.Err())
	}
	return stream.Send(batch)
}

// Drain lets a Drainer end its connections. A host that reads slowly gets fewer
// reports, always including the last.
func (s *Service) Drain(r *pb.DrainRequest, stream grpc.ServerStreamingServer[pb.DrainResponse]) error {
	p, ok := s.provider.(dataplane.Drainer)
	if !ok {
		return transfer.ToWire(fmt.Errorf("%w: %s holds no connections", dataplane.ErrUnsupported, s.info.Name))
	}
	d := r.GetDeadline().AsDuration()
	if r.GetDeadline() == nil || d < 0 {
		return transfer.ToWire(fmt.Errorf("%w: Drain needs a deadline, 0 or more", dataplane.ErrInvalid))
	}
	ctx, cancel := s.join(stream.Context())
	defer cancel()
	latest := newLatest()
	ended := make(chan error, 1)
	go func() {
		ended <- s.call("Drain", func() error { return p.Drain(ctx, time.Now().Add(d), latest.put) })
	}()
	for {
		select {
		case <-latest.changed:
			if err := stream.Send(latest.get()); err != nil {
				return err
			}
		case err := <-ended:
			if err != nil {
				return transfer.ToWire(err)
			}
			return stream.Send(latest.get())
		case <-ctx.Done():
			return transfer.ToWire(errors.Join(errors.New("drain was cancelled"), ctx.Err()))
		}
	}
}

// latest holds the newest report of a drain.
type latest struct {
	changed chan struct{}
	mu      sync.Mutex
	report  dataplane.DrainProgress
}

func newLatest() *latest { return &latest{changed: make(chan struct{}, 1)} }

func (l *latest) put(p dataplane.DrainProgress) {
	l.mu.Lock()
	l.report = p
	l.mu.Unlock()
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

func (l *latest) get() *pb.DrainResponse {
	l.mu.Lock()
	defer l.mu.Unlock()
	return transfer.EncodeProgress(l.report)
}

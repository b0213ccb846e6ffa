package conformance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fairlead/fairlead/dataplane"
	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
	"github.com/fairlead/fairlead/dataplane/transfer"
)

// eventTime is how long an event is waited for that need not come.
const eventTime = 300 * time.Millisecond

func streamChecks() []Check {
	return []Check{
		{
			ID: "health.answers", Demand: "Health says STARTING, READY, DEGRADED or FAILED, with reasons unless it is READY.",
			Remedy: "check the data path, and say what is wrong with it", run: healthAnswers,
		},
		{
			ID: "watch.first", Demand: "The first message of Watch comes at once, with the instance id.",
			Remedy: "send the present health when Watch is called", run: watchFirst,
		},
		{
			ID: "watch.seq", Demand: "The numbers of the events rise by one.",
			Remedy: "number the events of each call of Watch; leave a number out only for an event that was dropped", run: watchSeq,
		},
		{
			ID: "watch.many", Demand: "A Watch that is given up leaves nothing: it may be called again and again.",
			Remedy: "end the stream, and forget the watcher, when its context ends", run: watchMany,
		},
		{
			ID: "stats.monotonic", Demand: "Counters only rise while the instance lives.",
			Remedy: "count from the start of the instance; numbers that fall are no counters, except for the gauges programmed_services and programmed_endpoints", run: statsRise,
		},
		{
			ID: "drain.ends", Demand: "Drain reports progress, ends by its deadline, and then no connection is open.",
			Remedy: "close at the deadline what is still open, and say how many that were", spent: true, run: drainEnds,
		},
	}
}

func healthAnswers(ctx context.Context, k *kit) error {
	if err := k.open(ctx, several(1)); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	h, err := k.client().Health(ctx, &pb.HealthRequest{})
	if err != nil {
		return failf("Health: %w", err)
	}
	_, known := pb.HealthState_name[int32(h.GetState())]
	switch {
	case !known || h.GetState() == pb.HealthState_HEALTH_STATE_UNSPECIFIED:
		return fmt.Errorf("state %v is not known", h.GetState())
	case h.GetState() != pb.HealthState_HEALTH_STATE_READY && len(h.GetReasons()) == 0:
		return fmt.Errorf("%v without a reason", h.GetState())
	case h.GetState() == pb.HealthState_HEALTH_STATE_FAILED:
		return fmt.Errorf("after a snapshot that was accepted Health is FAILED: %q", h.GetReasons())
	}
	k.note("%v %q", h.GetState(), h.GetReasons())
	return nil
}

// events are those of one call of Watch.
type events struct {
	got  chan *pb.WatchResponse
	end  chan error
	stop context.CancelFunc
}

func (k *kit) watch(ctx context.Context) (*events, error) {
	ctx, cancel := context.WithCancel(ctx)
	stream, err := k.client().Watch(ctx, &pb.WatchRequest{})
	if err != nil {
		cancel()
		return nil, failf("Watch: %w", err)
	}
	e := &events{got: make(chan *pb.WatchResponse, 64), end: make(chan error, 1), stop: cancel}
	go func() {
		for {
			m, err := stream.Recv()
			if err != nil {
				e.end <- err
				return
			}
			select {
			case e.got <- m:
			case <-ctx.Done():
				return
			}
		}
	}()
	return e, nil
}

// next returns the next event; nil if none comes in time.
func (e *events) next(patience time.Duration) (*pb.WatchResponse, error) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case m := <-e.got:
		return m, nil
	case err := <-e.end:
		return nil, failf("Watch ended: %w", err)
	case <-timer.C:
		return nil, nil
	}
}

// first demands the first event.
func (e *events) first() (*pb.WatchResponse, error) {
	start := time.Now()
	m, err := e.next(answerTime)
	if err == nil && m == nil {
		err = fmt.Errorf("no message in %v", time.Since(start).Round(time.Millisecond))
	}
	return m, err
}

func watchFirst(ctx context.Context, k *kit) error {
	if err := k.open(ctx, several(1)); err != nil {
		return err
	}
	start := time.Now()
	e, err := k.watch(ctx)
	if err != nil {
		return err
	}
	defer e.stop()
	m, err := e.first()
	if err != nil {
		return err
	}
	if m.GetEvent() == nil || m.GetInstanceId() != k.instance() {
		return fmt.Errorf("the first message is %v, want an event with instance id %q", m, k.instance())
	}
	k.note("%T after %v", m.GetEvent(), time.Since(start).Round(time.Microsecond))
	return nil
}

func watchSeq(ctx context.Context, k *kit) error {
	if err := k.open(ctx, several(1)); err != nil {
		return err
	}
	e, err := k.watch(ctx)
	if err != nil {
		return err
	}
	defer e.stop()
	first, err := e.first()
	if err != nil {
		return err
	}
	// Services that become bad and good again are something to tell.
	bad := service(1, func(s *pb.Service) { s.Frontends[0].Protocol = 99 })
	for _, s := range []*pb.Service{bad, service(1), bad} {
		if _, err := k.apply(ctx, k.begin(k.gen), &pb.Change{Services: []*pb.Service{s}}); err != nil {
			return err
		}
	}
	seq, n := first.GetSeq(), 0
	for n < 3 {
		m, err := e.next(eventTime)
		if err != nil {
			return err
		}
		if m == nil {
			break
		}
		if m.GetSeq() != seq+1 {
			return fmt.Errorf("an event numbered %d follows %d", m.GetSeq(), seq)
		}
		seq, n = m.GetSeq(), n+1
	}
	k.note("%d events after the first, from number %d", n, first.GetSeq())
	return nil
}

func watchMany(ctx context.Context, k *kit) error {
	if err := k.open(ctx, several(1)); err != nil {
		return err
	}
	const times = 40
	for n := range times {
		if err := k.watchOnce(ctx); err != nil {
			return fmt.Errorf("call %d of Watch: %w", n+1, err)
		}
	}
	k.note("%d calls, one after the other", times)
	return nil
}

func (k *kit) watchOnce(ctx context.Context) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	give := time.Now().Add(answerTime)
	for {
		e, err := k.watch(ctx)
		if err != nil {
			return err
		}
		_, err = e.first()
		e.stop()
		if codeOf(errors.Unwrap(err)) != codes.ResourceExhausted || time.Now().After(give) {
			return err
		}
		<-tick.C // the ones before are still ending
	}
}

type counterKey struct {
	service  dataplane.Key
	endpoint uint64
	name     string
}

func statsRise(ctx context.Context, k *kit) error {
	if err := k.open(ctx, several(2)); err != nil {
		return err
	}
	var before map[counterKey]uint64
	for n := range 4 {
		list, err := k.counters(ctx)
		if errors.Is(err, errBlind) {
			return skipf("the provider does not count")
		}
		if err != nil {
			return err
		}
		now := make(map[counterKey]uint64, len(list))
		for _, c := range list {
			id := counterKey{transfer.DecodeKey(c.GetService()), c.GetEndpoint(), c.GetName()}
			if _, twice := now[id]; twice || c.GetName() == "" {
				return fmt.Errorf("counter %q of %s, endpoint %d, is listed twice or has no name", c.GetName(), id.service, id.endpoint)
			}
			if c.GetValue() < before[id] && !dataplane.IsGauge(c.GetName()) {
				return fmt.Errorf("counter %s of %s fell from %d to %d", c.GetName(), id.service, before[id], c.GetValue())
			}
			now[id] = c.GetValue()
		}
		before = now
		if _, err := k.apply(ctx, k.begin(0), several(2+n%2)); err != nil {
			return err
		}
	}
	k.note("%d counters, read four times", len(before))
	return nil
}

func drainEnds(ctx context.Context, k *kit) error {
	if err := k.open(ctx, several(1)); err != nil {
		return err
	}
	const deadline = 500 * time.Millisecond
	limit, cancel := context.WithTimeout(ctx, deadline+answerTime)
	defer cancel()
	stream, err := k.client().Drain(limit, &pb.DrainRequest{Deadline: durationpb.New(deadline)})
	if err != nil {
		return failf("Drain: %w", err)
	}
	var last *pb.DrainResponse
	for {
		m, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF) && last == nil:
			return failf("Drain ended without a report")
		case errors.Is(err, io.EOF) && last.GetActive() != 0:
			return failf("Drain ended with %d connections open", last.GetActive())
		case errors.Is(err, io.EOF):
			k.note("%d closed, %d forced", last.GetClosed(), last.GetForced())
			return nil
		case codeOf(err) == codes.Unimplemented:
			return skipf("the provider holds no connections")
		case err != nil:
			return failf("Drain with a deadline of %v: %w", deadline, err)
		}
		last = m
	}
}

package reconcile

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/fairlead/fairlead/dataplane"
	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
	"github.com/fairlead/fairlead/dataplane/transfer"
)

// push calls a provider.
type push struct {
	client pb.DataPlaneProviderClient
}

var _ peer = (*push)(nil)

func (p *push) reconcile(ctx context.Context, c call) (*pb.ReconcileResponse, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := p.client.Reconcile(ctx)
	if err != nil {
		return nil, transfer.FromWire(err)
	}
	send := func(m *pb.ReconcileRequest) bool {
		err = stream.Send(m)
		return err == nil
	}
	if send(&pb.ReconcileRequest{Step: &pb.ReconcileRequest_Begin{Begin: c.begin}}) {
		for change := range c.changes {
			if !send(&pb.ReconcileRequest{Step: &pb.ReconcileRequest_Change{Change: change}}) {
				break
			}
		}
	}
	if err == nil {
		send(&pb.ReconcileRequest{Step: &pb.ReconcileRequest_Commit{Commit: &pb.Commit{}}})
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, transfer.FromWire(err)
	}
	// A stream that ended early says why in its answer.
	response, err := stream.CloseAndRecv()
	if err != nil {
		return nil, transfer.FromWire(err)
	}
	return response, nil
}

func (p *push) state(ctx context.Context) (dataplane.State, error) {
	m, err := p.client.State(ctx, &pb.StateRequest{})
	if err != nil {
		return dataplane.State{}, transfer.FromWire(err)
	}
	return transfer.DecodeState(m), nil
}

// watch hands on the events of a provider until ctx ends. A stream that breaks
// is opened anew; a provider without Watch is left alone.
func watch(ctx context.Context, client pb.DataPlaneProviderClient, pause time.Duration, to chan<- dataplane.Event) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		if err := watchOnce(ctx, client, to); errors.Is(err, dataplane.ErrUnsupported) {
			return
		}
		timer.Reset(pause)
	}
}

// eventsPerS bounds the events that are taken from one stream, each of which
// may be a line of the log. A provider that has more to say waits, or drops what
// its reader is too slow for.
const eventsPerS = 100

// pace lets eventsPerS through in each second. It is false when ctx ended.
type pace struct {
	begun time.Time
	n     int
}

func (p *pace) next(ctx context.Context) bool {
	rest := time.Until(p.begun.Add(time.Second))
	if p.n < eventsPerS || rest <= 0 {
		if rest <= 0 {
			p.begun, p.n = time.Now(), 0
		}
		p.n++
		return true
	}
	timer := time.NewTimer(rest)
	defer timer.Stop()
	select {
	case <-timer.C:
		p.begun, p.n = time.Now(), 1
		return true
	case <-ctx.Done():
		return false
	}
}

func watchOnce(ctx context.Context, client pb.DataPlaneProviderClient, to chan<- dataplane.Event) error {
	stream, err := client.Watch(ctx, &pb.WatchRequest{})
	var pace pace
	for err == nil {
		var m *pb.WatchResponse
		if m, err = stream.Recv(); err == nil {
			if !pace.next(ctx) {
				return ctx.Err()
			}
			select {
			case to <- transfer.DecodeEvent(m):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	return transfer.FromWire(err)
}

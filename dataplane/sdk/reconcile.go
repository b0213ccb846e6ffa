package sdk

import (
	"context"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc"

	"github.com/fairlead/fairlead/dataplane"
	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
	"github.com/fairlead/fairlead/dataplane/transfer"
)

// Reconcile takes one generation. From Begin on it has the turn; nothing of it
// reaches the provider before Commit.
func (s *Service) Reconcile(stream grpc.ClientStreamingServer[pb.ReconcileRequest, pb.ReconcileResponse]) error {
	first, err := stream.Recv()
	if err != nil {
		return noStep(err)
	}
	release, err := s.take("Reconcile")
	if err != nil {
		return transfer.ToWire(err)
	}
	defer release()
	g, err := s.begin(first.GetBegin())
	if err != nil {
		return transfer.ToWire(err)
	}
	for {
		m, err := stream.Recv()
		if err != nil {
			return noStep(err)
		}
		if m.GetCommit() != nil {
			break
		}
		if err := change(g, m.GetChange()); err != nil {
			return transfer.ToWire(err)
		}
	}
	ctx, cancel := s.join(stream.Context())
	defer cancel()
	response, err := s.commit(ctx, g)
	if err != nil {
		return transfer.ToWire(err)
	}
	return stream.SendAndClose(response)
}

// noStep is the answer to a stream that broke or ended where a step was due.
func noStep(err error) error {
	if errors.Is(err, io.EOF) {
		return transfer.ToWire(fmt.Errorf("%w: the generation ended without Commit: nothing was applied", dataplane.ErrInvalid))
	}
	return err // a status of the transport
}

func (s *Service) begin(b *pb.Begin) (*transfer.Generation, error) {
	switch {
	case b == nil:
		return nil, fmt.Errorf("%w: Reconcile has to open with Begin", dataplane.ErrInvalid)
	case s.config.Load() == nil:
		return nil, fmt.Errorf("%w: Reconcile before Configure", dataplane.ErrNotConfigured)
	}
	return s.assembler.Begin(b)
}

func change(g *transfer.Generation, c *pb.Change) error {
	if c == nil {
		return fmt.Errorf("%w: after Begin only Change and Commit are known", dataplane.ErrInvalid)
	}
	return g.Change(c)
}

// commit gives the generation to the provider. If it is unchanged the provider
// is left alone, unless its configuration changed since.
func (s *Service) commit(ctx context.Context, g *transfer.Generation) (*pb.ReconcileResponse, error) {
	if g.Unchanged() && !s.dirty {
		return &pb.ReconcileResponse{Generation: s.assembler.Applied().Generation, Statuses: s.last.wire}, nil
	}
	next, delta, refused := s.assembler.Given(), dataplane.Delta{}, s.assembler.Statuses()
	if g.Unchanged() && s.assembler.Resumed() {
		return nil, fmt.Errorf("%w: the configuration changed and what a former process applied is not known here: send a snapshot", dataplane.ErrBaseMismatch)
	}
	if !g.Unchanged() {
		var err error
		if next, delta, refused, err = g.Commit(); err != nil {
			return nil, err
		}
	}
	var result dataplane.Result
	if err := s.call("Reconcile", func() (err error) { result, err = s.provider.Reconcile(ctx, next, delta); return err }); err != nil {
		return nil, err
	}
	g.Accept()
	s.dirty = false
	s.publish()
	if s.afterLarge != nil && len(delta.Changes) >= largeChange {
		s.afterLarge()
	}
	was := s.last
	s.last = merge(refused, result.Statuses)
	news := s.last.since(was, next)
	s.hub.statuses(news)
	return &pb.ReconcileResponse{
		Generation: next.Generation, Statuses: append(s.last.wire[:len(s.last.wire):len(s.last.wire)], recovered(news)...),
		Operations: transfer.EncodeResult(0, result).GetOperations(),
	}, nil
}

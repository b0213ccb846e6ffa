package sdk

import (
	"context"
	"io"
	"testing"

	"google.golang.org/grpc"

	"github.com/fairlead/fairlead/dataplane"
	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
	"github.com/fairlead/fairlead/dataplane/fake"
	"github.com/fairlead/fairlead/dataplane/transfer"
)

// BenchmarkUnchanged is a tick without change, without gRPC: what the SDK adds.
func BenchmarkUnchanged(b *testing.B) {
	s, err := NewService(fake.New(), nil)
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	one := gen(1, svc("web", 1, 9001))
	if _, err := s.configure(b.Context(), dataplane.Config{InstanceID: "i"}); err != nil {
		b.Fatal(err)
	}
	first := []*pb.ReconcileRequest{begin(transfer.Begin(one, 0, false))}
	for c := range transfer.NewEncoder().Snapshot(one) {
		first = append(first, changes(c))
	}
	if err := s.Reconcile(&stepStream{ctx: b.Context(), steps: append(first, commit())}); err != nil {
		b.Fatal(err)
	}
	tick := []*pb.ReconcileRequest{begin(transfer.Begin(one, 1, false)), commit()}
	b.ReportAllocs()
	for b.Loop() {
		if err := s.Reconcile(&stepStream{ctx: b.Context(), steps: tick}); err != nil {
			b.Fatal(err)
		}
	}
}

// stepStream is a stream of these requests.
type stepStream struct {
	grpc.ServerStream
	ctx   context.Context
	steps []*pb.ReconcileRequest
}

func (s *stepStream) Context() context.Context                 { return s.ctx }
func (s *stepStream) SendAndClose(*pb.ReconcileResponse) error { return nil }

func (s *stepStream) Recv() (*pb.ReconcileRequest, error) {
	if len(s.steps) == 0 {
		return nil, io.EOF
	}
	m := s.steps[0]
	s.steps = s.steps[1:]
	return m, nil
}

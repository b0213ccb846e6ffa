package sdk

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protodelim"

	"github.com/fairlead/fairlead/dataplane"
	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
	"github.com/fairlead/fairlead/dataplane/fake"
	"github.com/fairlead/fairlead/dataplane/transfer"
)

// FuzzReconcile sends arbitrary streams, one after another, to one service. None
// may panic, and what the provider is given has to hold what it may rely on.
func FuzzReconcile(f *testing.F) {
	whole, delta := transfer.NewEncoder(), transfer.NewEncoder()
	one, two := gen(1, svc("a", 1, 1, 2), svc("b", 2, 3)), gen(2, svc("a", 1, 2), svc("c", 2, 4))
	first := []*pb.ReconcileRequest{begin(transfer.Begin(one, 0, false))}
	for c := range whole.Snapshot(one) {
		first = append(first, changes(c))
	}
	for range delta.Snapshot(one) { // to give out the same handles
	}
	second := []*pb.ReconcileRequest{begin(transfer.Begin(two, 1, false))}
	for c := range delta.Delta(dataplane.Diff(one, two, nil)) {
		second = append(second, changes(c))
	}
	first, second = append(first, commit()), append(second, commit())
	for _, seed := range [][]*pb.ReconcileRequest{{}, {commit()}, first, append(first, second...), append(first, begin(transfer.Begin(one, 1, false)), commit())} {
		var b bytes.Buffer
		for _, m := range seed {
			if _, err := protodelim.MarshalTo(&b, m); err != nil {
				f.Fatal(err)
			}
		}
		f.Add(b.Bytes())
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := NewService(&careful{Provider: fake.New(), t: t}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if _, err := s.configure(t.Context(), dataplane.Config{InstanceID: "i"}); err != nil {
			t.Fatal(err)
		}
		for stream := (&fakeStream{ctx: t.Context(), r: bytes.NewReader(data)}); stream.r.Len() > 0; {
			before := stream.r.Len()
			_ = s.Reconcile(stream)
			if p := s.Panicked(); p != nil {
				t.Fatalf("%s\n%s", p.Panic, p.Stack)
			}
			if stream.r.Len() == before {
				break
			}
		}
	})
}

// careful checks what package dataplane promises to providers.
type careful struct {
	*fake.Provider
	t    *testing.T
	last *dataplane.Snapshot
}

func (c *careful) Reconcile(ctx context.Context, next *dataplane.Snapshot, delta dataplane.Delta) (dataplane.Result, error) {
	owners := map[dataplane.Binding]dataplane.Key{}
	for svc := range next.Services() {
		if p := svc.Check(); p != nil {
			c.t.Errorf("%s does not pass: %+v", svc.Key, p)
		}
		for _, f := range svc.Frontends {
			if other, taken := owners[f.Binding()]; taken {
				c.t.Errorf("%s and %s share %v", svc.Key, other, f)
			}
			owners[f.Binding()] = svc.Key
		}
	}
	if c.last != nil {
		if next.Session == c.last.Session && next.Generation <= c.last.Generation {
			c.t.Errorf("generation %d after %d", next.Generation, c.last.Generation)
		}
		for _, change := range delta.Changes {
			if was := c.last.Service(change.Key()); was != change.Old {
				c.t.Errorf("the delta is not relative to the last generation: %s", change.Key())
			}
			if is := next.Service(change.Key()); is != change.New {
				c.t.Errorf("the delta does not lead to next: %s", change.Key())
			}
		}
	}
	result, err := c.Provider.Reconcile(ctx, next, delta)
	c.last = next
	return result, err
}

// fakeStream reads requests from bytes, as a server does.
type fakeStream struct {
	grpc.ServerStream
	ctx context.Context
	r   *bytes.Reader
}

func (s *fakeStream) Context() context.Context                 { return s.ctx }
func (s *fakeStream) SendAndClose(*pb.ReconcileResponse) error { return nil }

func (s *fakeStream) Recv() (*pb.ReconcileRequest, error) {
	size, err := binary.ReadUvarint(s.r)
	if err != nil || size > uint64(s.r.Len()) {
		return nil, io.EOF
	}
	b := make([]byte, size)
	_, _ = s.r.Read(b)
	m := &pb.ReconcileRequest{}
	if err := transfer.Codec().Unmarshal(mem.BufferSlice{mem.SliceBuffer(b)}, m); err != nil {
		return nil, io.EOF
	}
	return m, nil
}

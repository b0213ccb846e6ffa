package transfer

import (
	"encoding/binary"
	"errors"
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/fairlead/fairlead/dataplane"
	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
)

// FuzzAssembler feeds an assembler arbitrary messages: each with its length
// before it. Every fifth accepted generation is one that the provider fails.
// Whatever comes, nothing panics, what is given is lawful, errors are those of
// the contract, and who applies deltas only has what is given.
func FuzzAssembler(f *testing.F) {
	seed := func(steps ...*pb.ReconcileRequest) {
		var b []byte
		for _, s := range steps {
			b = protowire.AppendBytes(b, marshal(f, s))
		}
		f.Add(b)
	}
	opens := func(b *pb.Begin) *pb.ReconcileRequest {
		return &pb.ReconcileRequest{Step: &pb.ReconcileRequest_Begin{Begin: b}}
	}
	changes := func(c *pb.Change) *pb.ReconcileRequest {
		return &pb.ReconcileRequest{Step: &pb.ReconcileRequest_Change{Change: c}}
	}
	commit := &pb.ReconcileRequest{Step: &pb.ReconcileRequest_Commit{Commit: &pb.Commit{}}}
	seed(opens(begin("a", 1, 0, 1)), changes(define(1, "web", []*pb.Frontend{vip(1)}, 1, 2)), changes(define(2, "db", []*pb.Frontend{vip(1), vip(2)}, 1)), commit,
		opens(begin("a", 1, 1, 2)), changes(removeEndpoint(1, 1)), changes(removeService(2)), changes(upsert(1, 9)), commit,
		opens(begin("a", 1, 2, 2)), commit, opens(begin("b", 1, 0, 1)), commit, opens(begin("a", 1, 2, 3)), commit)
	seed(opens(incomplete(begin("a", 2, 0, 1))), changes(define(1, "web", nil, 1)), changes(define(2, "web", nil, 1)), commit,
		opens(incomplete(begin("a", 2, 1, 2))), changes(removeService(1)), changes(upsert(1, 1)), commit)
	at := upsert(1, 3)
	at.Endpoints[0].Endpoints[0].Address = vip(1).Address
	seed(opens(begin("a", 1, 0, 1)), changes(define(1, "web", []*pb.Frontend{vip(1)}, 1)), changes(at), commit)
	cut := marshal(f, define(2, "db", nil, 1))
	seed(opens(begin("a", 1, 0, 1)), changes(define(1, "web", nil, 1)), changes(encodedChange(cut[:len(cut)-1])), commit)

	f.Fuzz(func(t *testing.T, data []byte) {
		limits := dataplane.Limits{}
		if len(data) > 0 && data[len(data)-1]&1 == 1 {
			limits = dataplane.Limits{Services: 3, Endpoints: 5, EndpointsPerService: 3}
		}
		a, p := NewAssembler(limits), &world{t: t, programs: table{}}
		var g *Generation
		for n := 0; ; n++ {
			size, used := binary.Uvarint(data)
			if used <= 0 || size > uint64(len(data)-used) {
				return
			}
			var m pb.ReconcileRequest
			err := Codec().Unmarshal(mem.BufferSlice{mem.SliceBuffer(data[used : used+int(size)])}, &m)
			data = data[used+int(size):]
			if err != nil {
				continue
			}
			switch {
			case m.GetBegin() != nil:
				if g, err = a.Begin(m.GetBegin()); err != nil {
					g = nil
				}
			case m.GetChange() != nil && g != nil:
				if err = g.Change(m.GetChange()); err != nil {
					g = nil
				}
			case m.GetCommit() != nil && g != nil && !g.Unchanged():
				var d dataplane.Delta
				if _, d, _, err = g.Commit(); err == nil && n%5 != 4 {
					g.Accept()
					p.program(d)
				}
				g = nil
			}
			if err != nil && !errors.Is(err, dataplane.ErrInvalid) && !errors.Is(err, dataplane.ErrBaseMismatch) && !errors.Is(err, dataplane.ErrOldGeneration) && !errors.Is(err, dataplane.ErrOldSession) {
				t.Fatalf("no error of the contract: %v", err)
			}
			given := tableOf(a.Given())
			if err := lawful(limits, given); err != nil {
				t.Fatal(err)
			}
			if diff := difference(p.programs, given); diff != "" {
				t.Fatalf("applying deltas only: %s", diff)
			}
		}
	})
}

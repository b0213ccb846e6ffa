package transfer

import (
	"bytes"
	"fmt"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/fairlead/fairlead/dataplane"
	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
)

// fleet returns services with frontends and endpoints as a cluster has them:
// a VIP each, endpoints on many nodes, named, in three zones.
func fleet(services, endpoints int) *dataplane.Snapshot {
	edit := (&dataplane.Snapshot{}).Edit()
	for i := range services {
		edit.Set(fleetService(i, endpoints))
	}
	s := edit.Done()
	s.Session = dataplane.Session{AgentID: "0123456789abcdef", BootEpoch: 12}
	s.Generation, s.Digest, s.Completeness = 1, bytes.Repeat([]byte{7}, 16), dataplane.Exchanged
	return s
}

func fleetService(i, endpoints int) *dataplane.Service {
	vip := netip.AddrFrom4([4]byte{10, 200, byte(i >> 8), byte(i)})
	var list []dataplane.Endpoint
	for j := range endpoints {
		node := (i*7 + j*13) % 1000
		list = append(list, dataplane.Endpoint{
			ID: uint64(i)<<32 | uint64(j+1)<<8 | 0x5a00_0000_0000_0000, Name: fmt.Sprintf("svc-%d-%d", i, j), Weight: 1, Zone: fmt.Sprintf("zone-%d", node%3),
			Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 9, byte(node >> 8), byte(node)}), uint16(20000+i%10000)),
		})
	}
	return &dataplane.Service{
		Key:       dataplane.Key{Namespace: "default", Name: fmt.Sprintf("service-%d", i)},
		Frontends: []dataplane.Frontend{{Addr: netip.AddrPortFrom(vip, 80), Protocol: dataplane.TCP, Kind: dataplane.FrontendVIP}},
		Endpoints: dataplane.NewEndpoints(list...),
		DrainTime: 30 * time.Second,
	}
}

// edited returns the next generation of s, with changes.
func edited(s *dataplane.Snapshot, change func(*dataplane.Editor)) *dataplane.Snapshot {
	edit := s.Edit()
	change(edit)
	next := edit.Done()
	next.Generation++
	next.Digest = fmt.Appendf(nil, "%016d", next.Generation)
	return next
}

// flip turns the state of the first endpoint of a service.
func flip(e *dataplane.Editor, k dataplane.Key) {
	svc := *e.Service(k)
	list := svc.Endpoints.Slice()
	list[0].State = 1 - list[0].State
	svc.Endpoints = dataplane.NewEndpoints(list...)
	e.Set(&svc)
}

// wire is a generation as it travels, encoded.
type wire struct {
	begin   []byte
	changes [][]byte
}

func (w wire) size() int {
	n := len(w.begin)
	for _, c := range w.changes {
		n += len(c)
	}
	return n
}

func encoded(t testing.TB, begin *pb.Begin, changes func(func(*pb.Change) bool)) wire {
	t.Helper()
	var w wire
	w.begin = marshal(t, &pb.ReconcileRequest{Step: &pb.ReconcileRequest_Begin{Begin: begin}})
	for c := range changes {
		w.changes = append(w.changes, marshal(t, &pb.ReconcileRequest{Step: &pb.ReconcileRequest_Change{Change: c}}))
	}
	w.changes = append(w.changes, marshal(t, &pb.ReconcileRequest{Step: &pb.ReconcileRequest_Commit{Commit: &pb.Commit{}}}))
	return w
}

func marshal(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatalf("encode: %v", err)
	}
	return b
}

// open begins what w carries and takes its changes in.
func (w wire) open(a *Assembler) (*Generation, error) {
	var m pb.ReconcileRequest
	if err := proto.Unmarshal(w.begin, &m); err != nil {
		return nil, err
	}
	g, err := a.Begin(m.GetBegin())
	if err != nil {
		return nil, err
	}
	for _, c := range w.changes {
		var m pb.ReconcileRequest
		if err := Codec().Unmarshal(mem.BufferSlice{mem.SliceBuffer(c)}, &m); err != nil {
			return nil, err
		}
		if m.GetChange() != nil {
			if err := g.Change(m.GetChange()); err != nil {
				return nil, err
			}
		}
	}
	return g, nil
}

// apply takes in w up to Accept.
func (w wire) apply(t testing.TB, a *Assembler) dataplane.Delta {
	t.Helper()
	g, err := w.open(a)
	if err != nil {
		t.Fatalf("generation: %v", err)
	}
	if g.Unchanged() {
		return dataplane.Delta{}
	}
	_, d, _, err := g.Commit()
	if err != nil {
		t.Fatalf("commit: %v", err)
	}
	g.Accept()
	return d
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func BenchmarkSnapshot(b *testing.B) {
	s := fleet(10_000, 10)
	b.ReportAllocs()
	for b.Loop() {
		w := encoded(b, Begin(s, 0, false), NewEncoder().Snapshot(s))
		w.apply(b, NewAssembler(dataplane.Limits{}))
	}
}

func BenchmarkAssembleSnapshot(b *testing.B) {
	s := fleet(10_000, 10)
	w := encoded(b, Begin(s, 0, false), NewEncoder().Snapshot(s))
	b.ReportAllocs()
	for b.Loop() {
		w.apply(b, NewAssembler(dataplane.Limits{}))
	}
}

func BenchmarkFlip(b *testing.B) {
	s := fleet(10_000, 10)
	e, a := NewEncoder(), NewAssembler(dataplane.Limits{})
	encoded(b, Begin(s, 0, false), e.Snapshot(s)).apply(b, a)
	k := dataplane.Key{Namespace: "default", Name: "service-5000"}
	b.ReportAllocs()
	for b.Loop() {
		next := edited(s, func(e *dataplane.Editor) { flip(e, k) })
		c, _ := dataplane.Compare(s.Service(k), next.Service(k), nil)
		encoded(b, Begin(next, s.Generation, false), e.Delta(dataplane.Delta{Changes: []dataplane.Change{c}})).apply(b, a)
		s = next
	}
}

func BenchmarkNewService(b *testing.B) {
	s := fleet(10_000, 10)
	e, a := NewEncoder(), NewAssembler(dataplane.Limits{})
	encoded(b, Begin(s, 0, false), e.Snapshot(s)).apply(b, a)
	added := fleetService(20_000, 10)
	present := false
	b.ReportAllocs()
	for b.Loop() {
		next := edited(s, func(e *dataplane.Editor) {
			if present = !present; present {
				e.Set(added)
			} else {
				e.Delete(added.Key)
			}
		})
		c, _ := dataplane.Compare(s.Service(added.Key), next.Service(added.Key), nil)
		encoded(b, Begin(next, s.Generation, false), e.Delta(dataplane.Delta{Changes: []dataplane.Change{c}})).apply(b, a)
		s = next
	}
}

func BenchmarkUnchanged(b *testing.B) {
	s := fleet(10_000, 10)
	e, a := NewEncoder(), NewAssembler(dataplane.Limits{})
	encoded(b, Begin(s, 0, false), e.Snapshot(s)).apply(b, a)
	b.ReportAllocs()
	for b.Loop() {
		encoded(b, Begin(s, s.Generation, false), func(func(*pb.Change) bool) {}).apply(b, a)
	}
}

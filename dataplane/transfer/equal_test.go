package transfer

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/fairlead/fairlead/dataplane"
	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
	"github.com/fairlead/fairlead/test/scale"
)

// sameAsGenerated reads b as an EndpointGroup in both ways.
func sameAsGenerated(t testing.TB, b []byte, old dataplane.Endpoints) {
	t.Helper()
	var group pb.EndpointGroup
	wantErr := proto.Unmarshal(b, &group)
	m := newMessage(b)
	handle, err := m.groupService()
	var got []dataplane.Endpoint
	if err == nil {
		err = m.each(groupEndpoints, func(p part) error {
			e, err := m.message(p).endpoint(old)
			got = append(got, e)
			return err
		})
	}
	if (err != nil) != (wantErr != nil) {
		t.Fatalf("%x: error %v, generated code says %v", b, err, wantErr)
	}
	if err != nil {
		return
	}
	if handle != group.GetService() || len(got) != len(group.GetEndpoints()) {
		t.Fatalf("%x: service %d with %d endpoints, generated code reads %v", b, handle, len(got), &group)
	}
	for i, e := range group.GetEndpoints() {
		if want := decodeUpsert(old, e); got[i] != want {
			t.Fatalf("%x: endpoint\n%+v, generated code reads\n%+v", b, got[i], want)
		}
	}
}

// field appends some field: a known one, in its form or another, or one of a
// later version.
func field(r *rand.Rand, b []byte, depth int) []byte {
	number := protowire.Number(1 + r.IntN(9))
	switch r.IntN(7) {
	case 0:
		return protowire.AppendVarint(protowire.AppendTag(b, number, protowire.VarintType), r.Uint64()>>r.IntN(64))
	case 1:
		return protowire.AppendFixed64(protowire.AppendTag(b, number, protowire.Fixed64Type), r.Uint64N(4))
	case 2:
		return protowire.AppendFixed32(protowire.AppendTag(b, number, protowire.Fixed32Type), r.Uint32())
	case 3:
		if depth < 3 {
			b = protowire.AppendTag(b, number, protowire.StartGroupType)
			b = fields(r, b, depth+1)
			return protowire.AppendTag(b, number, protowire.EndGroupType)
		}
		fallthrough
	case 4:
		text := []string{"", "a", "zone-1", "naïve", "\xff"}[min(r.IntN(30), r.IntN(30), 4)]
		return protowire.AppendString(protowire.AppendTag(b, number, protowire.BytesType), text)
	case 5:
		return protowire.AppendBytes(protowire.AppendTag(b, number, protowire.BytesType), make([]byte, []int{6, 18, 5}[r.IntN(3)]))
	default:
		return protowire.AppendBytes(protowire.AppendTag(b, number, protowire.BytesType), fields(r, nil, depth+1))
	}
}

func fields(r *rand.Rand, b []byte, depth int) []byte {
	if depth < 4 {
		for range r.IntN(6) {
			b = field(r, b, depth)
		}
	}
	return b
}

// known returns endpoints of which some are those that field names.
func known() dataplane.Endpoints {
	return dataplane.NewEndpoints(
		dataplane.Endpoint{ID: 1, Name: "one", Addr: address(10, 9, 0, 1, 80), Weight: 3, State: dataplane.Suspect},
		dataplane.Endpoint{ID: 2, Addr: address(10, 9, 0, 2, 80), AddrForeign: address(10, 9, 0, 3, 80), Zone: "z", DrainUntil: time.Unix(5, 6).UTC()})
}

// odd returns groups with what chance seldom makes: numbers that are wider than
// their field, fields that come twice or in parts, and tags at the bounds.
func odd() map[string][]byte {
	number := func(b []byte, tag, v uint64) []byte {
		return protowire.AppendVarint(protowire.AppendVarint(b, tag), v)
	}
	piece := func(b []byte, tag uint64, v ...byte) []byte {
		return protowire.AppendBytes(protowire.AppendVarint(b, tag), v)
	}
	id := func(v uint64) []byte { return appendID(nil, v) }
	endpoint := func(v []byte) []byte { return piece(nil, groupEndpoints, v...) }
	seconds, nanos := number(nil, timeSeconds, 7), number(nil, timeNanos, 8)
	return map[string][]byte{
		"service twice":            number(number(nil, groupService, 9), groupService, 3),
		"wide service":             number(nil, groupService, 1<<33|7),
		"wide weight":              endpoint(number(nil, endpointWeight, 1<<32|5)),
		"large weight":             endpoint(number(nil, endpointWeight, 1<<31)),
		"wide state":               endpoint(number(nil, endpointState, 1<<32|1)),
		"negative state":           endpoint(number(nil, endpointState, math.MaxUint64)),
		"id twice":                 endpoint(append(id(1), id(2)...)),
		"address, then none":       endpoint(piece(piece(id(1), endpointAddress, 10, 9, 0, 1, 0, 80), endpointAddress)),
		"time in parts":            endpoint(piece(piece(nil, endpointDrain, seconds...), endpointDrain, nanos...)),
		"wide time":                endpoint(piece(nil, endpointDrain, number(nil, timeNanos, 1<<32|9)...)),
		"empty time":               endpoint(piece(nil, endpointDrain)),
		"zone that is no text":     endpoint(piece(nil, endpointZone, 0xff)),
		"name that is no text":     endpoint(piece(nil, endpointName, 0xff)),
		"text of no field":         endpoint(piece(nil, 9<<3|bytesForm, 0xff)),
		"last number":              number(nil, protowire.EncodeTag(protowire.MaxValidNumber, protowire.VarintType), 1),
		"number that is too large": number(nil, protowire.EncodeTag(protowire.MaxValidNumber+1, protowire.VarintType), 1),
		"number 0":                 number(nil, 0, 1),
		"tag of two bytes":         {byte(groupService) | 0x80, 0, 5},
		"end without a group":      {1<<3 | byte(protowire.EndGroupType)},
		"group without an end":     {1<<3 | byte(protowire.StartGroupType)},
		"form 6":                   {1<<3 | 6},
	}
}

func TestReadsWhatIsOddAsGeneratedCode(t *testing.T) {
	for name, b := range odd() {
		t.Run(name, func(t *testing.T) { sameAsGenerated(t, b, known()) })
	}
}

// TestReadsAsGeneratedCode compares on messages made of fields that fit, of
// fields that do not, and of these cut or with a byte changed.
func TestReadsAsGeneratedCode(t *testing.T) {
	for seed := range uint64(scale.N(200_000)) {
		r := rand.New(rand.NewPCG(seed, 1))
		var b []byte
		if r.IntN(2) == 0 {
			b = fields(r, nil, 0)
		} else {
			group := &pb.EndpointGroup{Service: r.Uint32() >> r.IntN(32)}
			for range r.IntN(4) {
				group.Endpoints = append(group.Endpoints, encodeEndpoint(someEndpoint(r)))
			}
			b = marshal(t, group)
		}
		if len(b) > 0 {
			switch r.IntN(4) {
			case 0:
				b = b[:r.IntN(len(b))]
			case 1:
				b[r.IntN(len(b))] = byte(r.Uint32())
			}
		}
		sameAsGenerated(t, b, known())
	}
}

func FuzzReadsAsGeneratedCode(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		f.Add(fields(r, nil, 0))
		f.Add(marshal(f, &pb.EndpointGroup{Service: 1, Endpoints: []*pb.Endpoint{encodeEndpoint(someEndpoint(r))}}))
	}
	for _, b := range odd() {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) { sameAsGenerated(t, b, known()) })
}

func someEndpoint(r *rand.Rand) dataplane.Endpoint {
	e := dataplane.Endpoint{ID: r.Uint64N(5), Weight: uint16(r.IntN(3)), State: dataplane.EndpointState(r.IntN(4))}
	e.Name, e.Zone = []string{"", "web-1"}[r.IntN(2)], []string{"", "z"}[r.IntN(2)]
	if r.IntN(4) > 0 {
		e.Addr = address(10, 9, 0, byte(r.IntN(3)), 80)
	}
	if r.IntN(3) == 0 {
		e.AddrForeign = address(10, 9, 0, byte(r.IntN(3)), 80)
	}
	if r.IntN(3) == 0 {
		e.DrainUntil = time.Unix(r.Int64N(3)-1, r.Int64N(2)).UTC()
	}
	return e
}

// TestEndpointsAreEncodedAsByGeneratedCode compares bytes.
func TestEndpointsAreEncodedAsByGeneratedCode(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range scale.N(100_000) {
		e := someEndpoint(r)
		old := &dataplane.Service{Endpoints: dataplane.NewEndpoints(someEndpoint(r), someEndpoint(r))}
		got := appendEndpoint(nil, e)
		if onlyState(old, e) {
			got = appendState(nil, e)
		}
		if want := marshal(t, encodeUpsert(old, e)); !bytes.Equal(got, want) {
			t.Fatalf("%+v is\n%x, by generated code\n%x", e, got, want)
		}
	}
}

// TestChangesAreEncodedAsByGeneratedCode reads the messages of an encoder with
// generated code and writes them again.
func TestChangesAreEncodedAsByGeneratedCode(t *testing.T) {
	s := fleet(300, 7)
	next := edited(s, func(e *dataplane.Editor) {
		for i := range 100 {
			flip(e, fleetService(i, 0).Key)
		}
		e.Delete(fleetService(200, 0).Key)
	})
	e := NewEncoder()
	for _, changes := range []func(func(*pb.Change) bool){e.Snapshot(s), e.Delta(dataplane.Diff(s, next, nil))} {
		n := 0
		for c := range changes {
			n++
			o := objects(c)
			if len(o.ProtoReflect().GetUnknown()) > 0 || len(o.Services)+len(o.Endpoints) == 0 {
				t.Fatalf("generated code does not know it: %v", o)
			}
			if got, want := marshal(t, c), marshal(t, o); !bytes.Equal(got, want) {
				t.Fatalf("%d bytes, %d by generated code", len(got), len(want))
			}
		}
		if n == 0 {
			t.Fatal("no messages")
		}
	}
}

// TestCodec compares the codec with gRPC's, whole and in pieces.
func TestCodec(t *testing.T) {
	change := &pb.Change{Services: []*pb.Service{{Handle: 1}}}
	encodedStep := marshal(t, &pb.ReconcileRequest{Step: &pb.ReconcileRequest_Change{Change: change}})
	begins := marshal(t, &pb.ReconcileRequest{Step: &pb.ReconcileRequest_Begin{Begin: &pb.Begin{Generation: 3}}})
	for _, b := range [][]byte{
		nil, encodedStep, begins, append(bytes.Clone(encodedStep), encodedStep...), append(bytes.Clone(begins), encodedStep...), append(bytes.Clone(encodedStep), begins...),
		marshal(t, &pb.FollowResponse{Step: &pb.FollowResponse_Change{Change: change}, Stream: "s"}), encodedStep[:3],
		{0x12},
		{0x12, 0},
		{0x12, 0x80},
		{0x10, 1},
		{0x13, 0x14},
	} {
		for _, m := range []proto.Message{&pb.ReconcileRequest{}, &pb.FollowResponse{}, &pb.Change{}} {
			want := m.ProtoReflect().New().Interface()
			wantErr := proto.Unmarshal(b, want)
			for cut := range len(b) + 1 {
				proto.Merge(m, want) // what was there before is to go
				err := Codec().Unmarshal(mem.BufferSlice{mem.SliceBuffer(b[:cut]), mem.SliceBuffer(b[cut:])}, m)
				if (err != nil) != (wantErr != nil) {
					t.Fatalf("%x as %T: error %v, want %v", b, m, err, wantErr)
				}
				if err != nil {
					continue
				}
				got := m.ProtoReflect().New().Interface()
				if err := proto.Unmarshal(marshal(t, m), got); err != nil || !proto.Equal(got, want) {
					t.Fatalf("%x is %v (%v), want %v", b, got, err, want)
				}
			}
		}
	}
}

// TestFieldsOfALaterVersionAreIgnored has them beside what is known, in a Change
// that was read by generated code and in one that was not.
func TestFieldsOfALaterVersionAreIgnored(t *testing.T) {
	later := protowire.AppendVarint(protowire.AppendTag(nil, 15, protowire.VarintType), 1)
	beside := define(1, "web", nil, 1)
	b := append(marshal(t, beside), later...)
	beside.ProtoReflect().SetUnknown(later)
	for name, c := range map[string]*pb.Change{"read": beside, "encoded": encodedChange(b)} {
		s := newScript(t)
		s.apply(begin("a", 1, 0, 1), encodedChange(later), c)
		s.expect(map[string]string{"web": "1"})
		if t.Failed() {
			t.Fatal(name)
		}
	}
}

// TestTextThatIsNoUTF8IsRefused comes from no record, and is nobody's to read.
func TestTextThatIsNoUTF8IsRefused(t *testing.T) {
	svc := fleetService(0, 1)
	svc.Hosts = []string{"web", "\xff"}
	edit := (&dataplane.Snapshot{}).Edit()
	edit.Set(svc)
	s := edit.Done()
	s.Session, s.Generation, s.Completeness = dataplane.Session{AgentID: "a", BootEpoch: 1}, 1, dataplane.Exchanged
	g, err := NewAssembler(dataplane.Limits{}).Begin(Begin(s, 0, false))
	if err != nil {
		t.Fatal(err)
	}
	for c := range NewEncoder().Snapshot(s) {
		if err = g.Change(c); err != nil {
			break
		}
	}
	if !errors.Is(err, dataplane.ErrInvalid) {
		t.Errorf("got %v", err)
	}
}

func TestWhatIsNoMessageIsRefused(t *testing.T) {
	for _, b := range [][]byte{{0x0a}, {0x12, 5, 0}, {0x0b}, {0x00, 1}, {0x12, 4, 0x12, 2, 0x0d, 1}, {0x0a, 3, 0x32, 1, 0xff}} {
		s := newScript(t)
		s.refused(dataplane.ErrInvalid, begin("a", 1, 0, 1), encodedChange(b))
		s.apply(begin("a", 1, 0, 1), define(1, "web", nil, 1))
		s.expect(map[string]string{"web": fmt.Sprint(1)})
	}
}

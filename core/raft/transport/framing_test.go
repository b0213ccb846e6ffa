package transport

import (
	"encoding/binary"
	"slices"
	"testing"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

func TestRequirement75QueueIsBounded(t *testing.T) {
	q := newQueue[int](Limits{QueueMessages: 3, QueueBytes: 10})
	for i, c := range []struct {
		bytes int
		want  bool
	}{{99, true}, {1, false}} {
		if got := q.add(i, c.bytes); got != c.want {
			t.Errorf("%d: %v", i, got)
		}
	}
	if got := q.take(nil, 10); len(got) != 1 || q.size() != 0 {
		t.Errorf("%v, %d bytes left", got, q.size())
	}
	for i, c := range []struct {
		bytes int
		want  bool
	}{{4, true}, {5, true}, {2, false}, {1, true}, {0, false}} {
		if got := q.add(i, c.bytes); got != c.want {
			t.Errorf("%d: %v", i, got)
		}
	}
	if got := q.take(nil, 9); len(got) != 2 || got[1] != 1 {
		t.Errorf("%v", got)
	}
	if got := q.take(nil, 9); len(got) != 1 || got[0] != 3 {
		t.Errorf("%v", got)
	}
	stop := make(chan struct{})
	close(stop)
	if got := q.take(stop, 9); got != nil {
		t.Errorf("%v", got)
	}
}

// However a stream is cut, its messages are the same.
func FuzzAssembler(f *testing.F) {
	var stream []byte
	for i := range uint64(5) {
		m := appendOf(1, 2, i, int(i*100))
		var err error
		if stream, err = appendMessage(stream, m, proto.Size(m)); err != nil {
			f.Fatal(err)
		}
	}
	f.Add(stream, uint8(1))
	f.Add(stream, uint8(250))
	f.Add(binary.AppendUvarint(nil, 1<<40), uint8(3))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, uint8(2))
	f.Fuzz(func(t *testing.T, data []byte, cut uint8) {
		read := func(step int) (out []*pb.Message, failed bool) {
			var a assembler
			for rest := data; len(rest) > 0; {
				n := min(step, len(rest))
				piece := slices.Clone(rest[:n])
				if err := a.add(piece, func(m *pb.Message) error { out = append(out, m); return nil }); err != nil {
					return out, true
				}
				clear(piece) // it is the caller's again
				rest = rest[n:]
				if len(a.rest) > len(data) {
					t.Fatalf("%d bytes are kept of %d", len(a.rest), len(data))
				}
			}
			return out, false
		}
		whole, wholeFailed := read(len(data) + 1)
		parts, partsFailed := read(int(cut) + 1)
		if wholeFailed != partsFailed || len(whole) != len(parts) {
			t.Fatalf("%d messages, failed: %v; in pieces of %d bytes %d messages, failed: %v", len(whole), wholeFailed, int(cut)+1, len(parts), partsFailed)
		}
		for i := range whole {
			if !proto.Equal(whole[i], parts[i]) {
				t.Errorf("message %d: %v and %v", i, whole[i], parts[i])
			}
		}
	})
}

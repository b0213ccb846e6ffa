package membership

import (
	"bytes"
	"testing"

	"github.com/fairlead/fairlead/core/swim"
	"github.com/fairlead/fairlead/core/swim/wire"
)

func TestRecordIsWhatItWasJoinedOf(t *testing.T) {
	for _, size := range []int{0, 1, RumourVectorBytes, RumourVectorBytes + 1, MaxVectorBytes} {
		for _, definition := range [][]byte{nil, []byte("d")} {
			vector := bytes.Repeat([]byte{7}, size)
			p, payload, err := joinRecord(definition, vector)
			if err != nil || len(payload) > wire.MaxRecordBytes {
				t.Fatalf("vector of %d bytes: payload of %d, %v", size, len(payload), err)
			}
			got, ok := splitRecord(&swim.Record{Payload: payload})
			if !ok || got.definition != p.definition || got.pulled != p.pulled || !bytes.Equal(got.vector, p.vector) {
				t.Errorf("vector of %d bytes: joined %+v, split %+v", size, p, got)
			}
			if long := size > RumourVectorBytes; long != (p.pulled == wire.HashOf(vector)) || long && p.vector != nil || !long && !bytes.Equal(p.vector, vector) {
				t.Errorf("vector of %d bytes: %+v", size, p)
			}
			if got.refers(wire.Hash{}) || definition != nil && !got.refers(wire.HashOf(definition)) {
				t.Errorf("vector of %d bytes: refers to nothing, or not to its definition", size)
			}
		}
	}
}

func FuzzSplitRecord(f *testing.F) {
	f.Add([]byte{})
	f.Add(make([]byte, 17))
	f.Add(append(make([]byte, 16), 1, 2, 3))
	f.Add(append(make([]byte, 16), 9, 2, 3))
	f.Fuzz(func(t *testing.T, payload []byte) {
		p, ok := splitRecord(&swim.Record{Payload: payload})
		if ok != (len(payload) >= len(wire.Hash{})) {
			t.Fatalf("%d bytes: %v", len(payload), ok)
		}
		if len(p.vector) > 0 && p.pulled != (wire.Hash{}) || len(p.vector) > len(payload) {
			t.Fatalf("%x is read as %+v", payload, p)
		}
	})
}

package record_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/core/membership"
	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/record"
	"github.com/fairlead/fairlead/test/scale"
)

const (
	crit     = model.InstanceCritical
	pass     = model.InstancePassing
	draining = model.InstanceDraining
	drained  = model.InstanceDrained
)

func encodeVector(t *testing.T, states []model.InstanceState) []byte {
	t.Helper()
	b, err := record.EncodeVector(states)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The bytes are read by other versions.
func TestVectorBytesStayWhatTheyAre(t *testing.T) {
	for _, c := range []struct {
		states []model.InstanceState
		want   []byte
	}{
		{nil, nil},
		{[]model.InstanceState{pass}, []byte{1, 0b01}},
		{[]model.InstanceState{pass, crit, drained, draining}, []byte{1, 0b10_11_00_01}},
		{[]model.InstanceState{pass, crit, drained, draining, pass}, []byte{1, 0b10_11_00_01, 0b01}},
		{slices.Repeat([]model.InstanceState{pass}, 5), []byte{2, 5<<2 | 1}},
		{slices.Repeat([]model.InstanceState{crit}, 1000), []byte{2, 0xa0, 0x1f}},
		{append(slices.Repeat([]model.InstanceState{drained}, 20), draining), []byte{2, 20<<2 | 3, 1<<2 | 2}},
		{[]model.InstanceState{pass, 4, 255, drained}, []byte{1, 0b11_00_00_01}}, // what has no name is critical
	} {
		if got := encodeVector(t, c.states); !bytes.Equal(got, c.want) {
			t.Errorf("%v is encoded as %v, want %v", c.states, got, c.want)
		}
	}
}

func TestForeignVectorsAreCriticalWhereTheyAreNotUnderstood(t *testing.T) {
	for _, c := range []struct {
		name string
		b    []byte
		want []model.InstanceState
	}{
		{"nothing", nil, []model.InstanceState{crit, crit, crit}},
		{"a later format", []byte{3, 0xff}, []model.InstanceState{crit, crit, crit}},
		{"no format", []byte{0, 0xff}, []model.InstanceState{crit, crit, crit}},
		{"packed, short", []byte{1}, []model.InstanceState{crit, crit, crit}},
		{"packed, long", []byte{1, 0b01_01_01_01, 0xff}, []model.InstanceState{pass, pass, pass}},
		{"runs, short", []byte{2, 1<<2 | 1}, []model.InstanceState{pass, crit, crit}},
		{"runs, long", []byte{2, 9<<2 | 1, 9<<2 | 2}, []model.InstanceState{pass, pass, pass}},
		{"runs of none", []byte{2, 1, 1, 2, 1<<2 | 3}, []model.InstanceState{drained, crit, crit}},
		{"runs, cut", []byte{2, 1<<2 | 2, 0x80}, []model.InstanceState{draining, crit, crit}},
		{"runs beyond 64 bits", append([]byte{2}, bytes.Repeat([]byte{0xff}, 11)...), []model.InstanceState{crit, crit, crit}},
		{"runs of 2^62", []byte{2, 0xfd, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01}, []model.InstanceState{pass, pass, pass}},
	} {
		if got := record.DecodeVector(c.b, 3); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// What a vector says is the slice it was made of, in at most two bits for each
// and the format.
func TestVectorIsTheSliceItWasMadeOf(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range scale.N(20_000) {
		n := 1 + rng.IntN(64)
		if rng.IntN(10) == 0 {
			n = 1 + rng.IntN(record.MaxInstances)
		}
		states, flips := make([]model.InstanceState, n), 1+rng.IntN(n)
		state := model.InstanceState(rng.IntN(4))
		for i := range states {
			if rng.IntN(n) < flips {
				state = model.InstanceState(rng.IntN(4))
			}
			states[i] = state
		}
		b := encodeVector(t, states)
		if len(b) > 1+(n+3)/4 || len(b) > record.MaxVectorBytes {
			t.Fatalf("%d states take %d bytes", n, len(b))
		}
		if got := record.DecodeVector(b, n); !slices.Equal(got, states) {
			t.Fatalf("%v\nis read as\n%v", states, got)
		}
	}
}

// A rumour carries the vector of any 1,976 instances, and one of the most that
// a node may run while few of them are in another state than their neighbours.
func TestWhatARumourCarries(t *testing.T) {
	fits := func(states []model.InstanceState) bool {
		return len(encodeVector(t, states)) <= membership.RumourVectorBytes
	}
	mixed := make([]model.InstanceState, 1976)
	for i := range mixed {
		mixed[i] = model.InstanceState(i % 4)
	}
	if !fits(mixed) {
		t.Errorf("%d instances of mixed states do not fit", len(mixed))
	}
	if fits(append(mixed, pass)) {
		t.Errorf("the bound is higher than said")
	}
	many := slices.Repeat([]model.InstanceState{pass}, record.MaxInstances)
	for i := range 160 {
		many[i*len(many)/160] = crit
	}
	if !fits(many) {
		t.Error("160 failing of the most instances do not fit")
	}
	if record.MaxVectorBytes > membership.MaxVectorBytes || record.MaxBytes > membership.MaxDefinitionBytes {
		t.Error("membership does not take every record")
	}
	if _, err := record.EncodeVector(append(many, pass)); !errors.Is(err, record.ErrRecord) || !strings.Contains(err.Error(), "8193 instances on one node, at most 8192") {
		t.Errorf("too many: %v, want the bound by name", err)
	}
}

func FuzzDecodeVector(f *testing.F) {
	f.Add([]byte{}, uint16(3))
	f.Add([]byte{1, 0xff, 0x1b}, uint16(7))
	f.Add([]byte{2, 0xa0, 0x1f, 5}, uint16(1001))
	f.Add([]byte{2, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01}, uint16(8192))
	f.Fuzz(func(t *testing.T, b []byte, n uint16) {
		n %= record.MaxInstances + 1
		states := record.DecodeVector(b, int(n))
		if len(states) != int(n) {
			t.Fatalf("%d states, want %d", len(states), n)
		}
		again := encodeVector(t, states)
		if back := record.DecodeVector(again, int(n)); !slices.Equal(back, states) {
			t.Fatalf("read %v\nthen %v", states, back)
		}
	})
}

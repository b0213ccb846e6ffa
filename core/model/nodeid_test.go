package model_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/test/scale"
)

func TestNodeIDTextRoundTrips(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	ids := []model.NodeID{1, 0xff, 1 << 63, 1<<64 - 1, 0x00000000deadbeef}
	for range scale.N(10_000) {
		ids = append(ids, model.NodeID(rng.Uint64()>>rng.IntN(64)|1))
	}
	for _, id := range ids {
		text := id.String()
		if len(text) != 16 || text != strings.ToLower(text) {
			t.Fatalf("%d prints as %q: want 16 lower-case digits", uint64(id), text)
		}
		if got, err := model.ParseNodeID(text); err != nil || got != id {
			t.Fatalf("ParseNodeID(%q) = %v, %v", text, got, err)
		}
		data, err := json.Marshal(map[model.NodeID]model.NodeID{id: id})
		if err != nil {
			t.Fatal(err)
		}
		if want := `{"` + text + `":"` + text + `"}`; string(data) != want {
			t.Fatalf("JSON is %s, want %s", data, want)
		}
		var back map[model.NodeID]model.NodeID
		if err := json.Unmarshal(data, &back); err != nil || back[id] != id {
			t.Fatalf("%s reads as %v, %v", data, back, err)
		}
	}
}

func TestNodeIDGolden(t *testing.T) {
	for text, id := range map[string]model.NodeID{
		"0000000000000001": 1,
		"0123456789abcdef": 0x0123456789abcdef,
		"ffffffffffffffff": 1<<64 - 1,
	} {
		if got := id.String(); got != text {
			t.Errorf("got %q, want %q", got, text)
		}
	}
}

func TestParseNodeIDRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"empty":          "",
		"short":          "123456789abcdef",
		"long":           "0123456789abcdef0",
		"zero":           "0000000000000000",
		"no digit":       "0123456789abcdeg",
		"sign":           "+123456789abcdef",
		"minus":          "-123456789abcdef",
		"prefix":         "0x23456789abcdef",
		"underscore":     "0123_456789abcde",
		"space":          " 123456789abcdef",
		"16 bytes, UTF8": "0123456789abcdé",
	} {
		id, err := model.ParseNodeID(text)
		if !errors.Is(err, model.ErrNodeID) || id != 0 {
			t.Errorf("%s: ParseNodeID(%q) = %v, %v; want ErrNodeID", name, text, id, err)
			continue
		}
		if !strings.HasPrefix(err.Error(), "model: ") || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %q does not name the package and the value", name, err)
		}
		kept := model.NodeID(7)
		if err := kept.UnmarshalText([]byte(text)); !errors.Is(err, model.ErrNodeID) || kept != 7 {
			t.Errorf("%s: UnmarshalText left %v, %v; want 7 and ErrNodeID", name, kept, err)
		}
	}
}

func TestMintNodeID(t *testing.T) {
	one := []byte{1, 2, 3, 4, 5, 6, 7, 8}
	zero := make([]byte, 8)
	broken := errors.New("no entropy")
	for _, tt := range []struct {
		name   string
		random io.Reader
		want   model.NodeID
		err    error
	}{
		{"eight bytes", bytes.NewReader(one), 0x0102030405060708, nil},
		{"a byte at a time", iotest.OneByteReader(bytes.NewReader(one)), 0x0102030405060708, nil},
		{"zero is no id", bytes.NewReader(append(append(zero, zero...), one...)), 0x0102030405060708, nil},
		{"too few bytes", bytes.NewReader(one[:7]), 0, io.ErrUnexpectedEOF},
		{"zero, then nothing", bytes.NewReader(zero), 0, io.EOF},
		{"broken source", iotest.ErrReader(broken), 0, broken},
	} {
		got, err := model.MintNodeID(tt.random)
		if got != tt.want || !errors.Is(err, tt.err) {
			t.Errorf("%s: got %v, %v; want %v, %v", tt.name, got, err, tt.want, tt.err)
		}
		if err != nil && !strings.HasPrefix(err.Error(), "model: ") {
			t.Errorf("%s: %q does not name the package", tt.name, err)
		}
	}
}

package formation

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/core/model"
)

func fullBallot() Ballot {
	return Ballot{Candidate: 1, Cluster: 0xc1, Voters: []model.NodeID{1, 2, 3}, Witnesses: []model.NodeID{4, 1 << 63}}
}

func TestMessageRoundTrip(t *testing.T) {
	for _, m := range []Message{
		{},
		{Kind: KindAsk, From: 1, To: 2, Ballot: fullBallot()},
		{Kind: KindNo, From: 2, To: 1, Ballot: Ballot{Candidate: 1, Cluster: 7}, Why: WhyExpect, Node: 9, Cluster: 4, Expect: 5},
	} {
		got, err := DecodeMessage(EncodeMessage(m))
		if err != nil || !reflect.DeepEqual(got, m) {
			t.Errorf("%+v came back as %+v, %v", m, got, err)
		}
	}
	largest := Ballot{Candidate: 1, Cluster: 1, Voters: []model.NodeID{1}}
	for id := range MaxServers - 1 {
		largest.Witnesses = append(largest.Witnesses, model.NodeID(id+2))
	}
	m := Message{Kind: KindFormed, From: 1, To: 2, Ballot: largest, Why: WhyLost, Node: 1, Cluster: 1, Expect: 1}
	if n := len(EncodeMessage(m)); n > MaxMessage {
		t.Errorf("the largest message has %d bytes, more than %d", n, MaxMessage)
	}
	rec := Record{Yes: &largest}
	for id := range maxLost {
		rec.Lost = append(rec.Lost, ClusterID(id+1))
	}
	b, err := EncodeRecord(rec)
	if err != nil || len(b) > MaxRecord {
		t.Errorf("the largest record has %d bytes, %v, more than %d", len(b), err, MaxRecord)
	}
	if _, err := DecodeRecord(b); err != nil {
		t.Error(err)
	}
}

// TestNumbers pins what other versions read.
func TestNumbers(t *testing.T) {
	got := EncodeMessage(Message{
		Kind: KindNo, From: 1, To: 2, Why: WhyLost, Node: 3, Cluster: 4, Expect: 5,
		Ballot: Ballot{Candidate: 6, Cluster: 7, Voters: []model.NodeID{8}, Witnesses: []model.NodeID{9}},
	})
	want := "\x08\x03" + "\x11\x01\x00\x00\x00\x00\x00\x00\x00" + "\x19\x02\x00\x00\x00\x00\x00\x00\x00" +
		"\x22\x26" + "\x09\x06\x00\x00\x00\x00\x00\x00\x00" + "\x11\x07\x00\x00\x00\x00\x00\x00\x00" +
		"\x1a\x08\x08\x00\x00\x00\x00\x00\x00\x00" + "\x22\x08\x09\x00\x00\x00\x00\x00\x00\x00" +
		"\x28\x06" + "\x31\x03\x00\x00\x00\x00\x00\x00\x00" + "\x39\x04\x00\x00\x00\x00\x00\x00\x00" + "\x40\x05"
	if string(got) != want {
		t.Errorf("EncodeMessage = %q\nwant %q", got, want)
	}
}

func TestRecordRoundTrip(t *testing.T) {
	b := fullBallot()
	for _, r := range []Record{
		{},
		{Yes: &b, Seen: 5, Lost: []ClusterID{1, 2}},
		{Formed: &b},
		{Formed: &Ballot{Cluster: 9}},
	} {
		bytes, err := EncodeRecord(r)
		if err != nil {
			t.Fatal(err)
		}
		got, err := DecodeRecord(bytes)
		if err != nil || !reflect.DeepEqual(got, r) {
			t.Errorf("%s came back as %+v, %v", bytes, got, err)
		}
	}
}

func TestDamagedRecord(t *testing.T) {
	for text, want := range map[string]string{
		``:                                   "EOF",
		`{"version":2}`:                      "version 2",
		`{"version":1,"yess":{}}`:            "unknown field",
		`{"version":1}{}`:                    "after its end",
		`{"version":1,"seen":"12"}`:          "16 hexadecimal digits",
		`{"version":1,"yes":{}}`:             "cluster id",
		`{"version":1,"lost":["x"]}`:         "cluster id",
		strings.Repeat(" ", MaxRecord) + `1`: "bytes",
		`{"version":1,"yes":{"cluster":"00000000000000c1","voters":["0000000000000000"]}}`: "zero",
	} {
		if _, err := DecodeRecord([]byte(text)); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), want) {
			t.Errorf("DecodeRecord(%.60s) = %v, want %q", text, err, want)
		}
	}
}

func FuzzDecodeMessage(f *testing.F) {
	f.Add(EncodeMessage(Message{Kind: KindAsk, From: 1, To: 2, Ballot: fullBallot()}))
	f.Add([]byte{0x22, 3, 0x1a, 1, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := DecodeMessage(b)
		if err != nil {
			if !errors.Is(err, ErrDamaged) {
				t.Errorf("%v does not wrap ErrDamaged", err)
			}
			return
		}
		again := EncodeMessage(m)
		got, err := DecodeMessage(again)
		if len(again) <= MaxMessage && (err != nil || !bytes.Equal(EncodeMessage(got), again)) {
			t.Errorf("%q decodes to %+v and that to %+v, %v", b, m, got, err)
		}
	})
}

func FuzzDecodeRecord(f *testing.F) {
	b := fullBallot()
	for _, r := range []Record{{Yes: &b, Lost: []ClusterID{3}}, {Formed: &b}, {Seen: 3}} {
		bytes, err := EncodeRecord(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(bytes)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := DecodeRecord(b)
		if err != nil {
			return
		}
		bytes, err := EncodeRecord(r)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := DecodeRecord(bytes); err != nil {
			t.Errorf("%s decodes, %s does not: %v", b, bytes, err)
		}
	})
}

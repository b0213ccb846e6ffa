package swim_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/swim"
	"github.com/fairlead/fairlead/core/swim/wire"
)

func TestRecordNewer(t *testing.T) {
	rec := func(e, s uint64) *swim.Record { return &swim.Record{Epoch: e, Seq: s} }
	for _, tc := range []struct {
		r, o *swim.Record
		want bool
	}{
		{nil, nil, false},
		{nil, rec(1, 1), false},
		{rec(1, 1), nil, true},
		{rec(1, 1), rec(1, 1), false},
		{rec(1, 2), rec(1, 1), true},
		{rec(1, 1), rec(1, 2), false},
		{rec(2, 1), rec(1, 9), true},
		{rec(1, 9), rec(2, 1), false},
	} {
		if got := tc.r.Newer(tc.o); got != tc.want {
			t.Errorf("%+v newer than %+v: %v", tc.r, tc.o, got)
		}
	}
}

func TestEventKindNames(t *testing.T) {
	names := map[string]bool{}
	for k := swim.EventJoined; k <= swim.EventCloned; k++ {
		s := k.String()
		if names[s] || strings.HasPrefix(s, "event(") || s == "" {
			t.Errorf("kind %d is called %q", k, s)
		}
		names[s] = true
	}
	for _, k := range []swim.EventKind{0, 200} {
		if got := k.String(); got != fmt.Sprintf("event(%d)", uint8(k)) {
			t.Errorf("kind %d is called %q", k, got)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	good := swim.Self{ID: 1, Name: "n", Addr: addr(1)}
	for name, tc := range map[string]struct {
		self  swim.Self
		epoch uint64
		cfg   func(*swim.Config)
		want  error
	}{
		"config":            {good, 1, func(c *swim.Config) { c.Cluster = "" }, swim.ErrConfig},
		"no id":             {swim.Self{Name: "n", Addr: addr(1)}, 1, nil, swim.ErrSelf},
		"no name":           {swim.Self{ID: 1, Addr: addr(1)}, 1, nil, swim.ErrSelf},
		"long name":         {swim.Self{ID: 1, Name: strings.Repeat("n", 64), Addr: addr(1)}, 1, nil, swim.ErrSelf},
		"no address":        {swim.Self{ID: 1, Name: "n"}, 1, nil, swim.ErrSelf},
		"no port":           {swim.Self{ID: 1, Name: "n", Addr: netip.MustParseAddrPort("127.0.0.1:0")}, 1, nil, swim.ErrSelf},
		"any address":       {swim.Self{ID: 1, Name: "n", Addr: netip.MustParseAddrPort("0.0.0.0:7400")}, 1, nil, swim.ErrSelf},
		"multicast":         {swim.Self{ID: 1, Name: "n", Addr: netip.MustParseAddrPort("224.0.0.1:7400")}, 1, nil, swim.ErrSelf},
		"epoch 0":           {good, 0, nil, swim.ErrSelf},
		"epoch beyond wire": {good, wire.MaxWord + 1, nil, swim.ErrSelf},
	} {
		cfg := lan()
		if tc.cfg != nil {
			tc.cfg(&cfg)
		}
		if _, err := swim.New(cfg, tc.self, tc.epoch, rand.New(rand.NewPCG(1, 1)), time.Unix(1, 0)); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", name, err, tc.want)
		}
	}
}

func TestRecords(t *testing.T) {
	r := with(t, 2, 6)
	if err := r.node.SetRecord(make([]byte, wire.MaxRecordBytes+1), r.now); !errors.Is(err, swim.ErrRecord) {
		t.Fatalf("too large: %v", err)
	}
	for i := range 3 {
		if err := r.node.SetRecord([]byte{byte(i)}, r.now); err != nil {
			t.Fatal(err)
		}
	}
	if rec := r.node.Self().Record; rec.Epoch != selfEpoch || rec.Seq != 3 || rec.Payload[0] != 2 {
		t.Fatalf("own record %+v", rec)
	}
	r.say(r.peer(2), record(3, 1, 5, "new"))
	r.say(r.peer(2), record(3, 1, 4, "old"), record(77, 1, 1, "of a stranger"))
	if rec := r.member(3).Record; rec == nil || rec.Seq != 5 || string(rec.Payload) != "new" {
		t.Fatalf("record %+v", rec)
	}
	r.run(rumours)
	if k := r.kinds(3); !slices.Equal(k, []swim.EventKind{swim.EventRecord}) {
		t.Fatalf("events %v", k)
	}
	told := map[model.NodeID]string{}
	for _, s := range r.of(wire.RecordOf) {
		told[s.Subject] = string(s.Payload)
	}
	if len(told) != 2 || told[1] != "\x02" || told[3] != "new" {
		t.Fatalf("told %q", told)
	}
	// Of the dead nothing is learned.
	r.say(r.peer(2), said(3, r.peer(3).value(model.StateLeft)), record(3, 1, 9, "late"))
	if rec := r.member(3).Record; rec.Seq != 5 {
		t.Fatalf("record of a departed member %+v", rec)
	}
}

func TestInspect(t *testing.T) {
	r := with(t, 2, 12)
	r.peer(3).mute, r.peer(4).mute = true, true
	r.say(r.peer(2), said(3, r.peer(3).value(model.StateSuspect), 2, 7), said(4, r.peer(4).value(model.StateDead)), record(5, 1, 1, "five"))
	r.say(r.peer(2), pingReq(1, 3, time.Second))
	in := r.node.Inspect()
	if in.Live != 10 || in.Graves != 1 || in.Relays != 1 || in.RumourLimit != 12 || in.RumourBytes == 0 {
		t.Errorf("%+v", in)
	}
	if s := in.Suspicions; len(s) != 1 || s[0].Subject != 3 || !slices.Equal(s[0].Accusers, []model.NodeID{2, 7}) ||
		s[0].Since != r.now || s[0].Deadline.Sub(s[0].Since) < s[0].Least || s[0].Deadline.Sub(s[0].Since) > s[0].Longest {
		t.Errorf("suspicions %+v", s)
	}
	records := 0
	for _, q := range in.Rumours {
		if q.Record {
			records++
		}
	}
	if len(in.Rumours) != 3 || records != 1 {
		t.Errorf("rumours %+v", in.Rumours)
	}
	if in.Counters != r.node.Counters() || in.Counters.Probes == 0 {
		t.Errorf("counters %+v", in.Counters)
	}
	if id, epoch, inc := r.node.Header(); id != 1 || epoch != selfEpoch || inc != 0 {
		t.Errorf("header %v %d.%d", id, epoch, inc)
	}
}

// TestPauseIsForgiven stops the clock of a node that waits for an ack: what it
// did not read in the meantime is no evidence, and suspects get the time back.
func TestPauseIsForgiven(t *testing.T) {
	r := with(t, 2, 6, func(c *swim.Config) { c.SuspicionMult = 100 })
	r.peer(4).mute, r.peer(3).mute = true, true
	r.say(r.peer(2), said(4, r.peer(4).value(model.StateSuspect), 2))
	r.nextPing(r.peer(3))
	before := r.node.Inspect().Suspicions[0]
	due := r.node.NextDeadline()
	r.now = r.now.Add(time.Minute)
	r.node.Tick(r.now)
	r.drain()
	if r.node.Counters().Pauses != 1 || r.state(3) != model.StateAlive {
		t.Fatalf("%d pauses, %v", r.node.Counters().Pauses, r.state(3))
	}
	after := r.node.Inspect().Suspicions[0]
	if got, want := after.Deadline.Sub(before.Deadline), r.now.Sub(due); got != want {
		t.Fatalf("the suspicion got %v back, want %v", got, want)
	}
	// A clock that runs backwards is taken for one that stands.
	r.node.Tick(r.now.Add(-time.Hour))
	r.drain()
	if next := r.node.NextDeadline(); next.Before(r.now) {
		t.Fatalf("the next deadline went back to %v", next)
	}
}

// Whoever knows the cluster's name can invent members, but only so many.
func TestMembersAreBounded(t *testing.T) {
	const most = 20
	r := with(t, 2, 5, func(c *swim.Config) { c.MembersMax = most })
	for i := range 100 {
		p := &peer{id: model.NodeID(1000 + i), name: "invented", addr: addr(1000 + i), epoch: 1, mute: true}
		r.say(r.peer(2), p.intro())
	}
	if in := r.node.Inspect(); in.Live != most || in.Counters.MembersRefused != 100-(most-4) {
		t.Fatalf("%d live members, %d refused: want %d, and the others", in.Live, in.Counters.MembersRefused, most)
	}
	// Who is known may come and go, and an end makes room.
	r.peer(3).epoch++
	r.say(r.peer(3), r.peer(3).intro())
	r.want(3, r.peer(3).value(model.StateAlive))
	r.run(5 * time.Minute)
	r.add(7)
}

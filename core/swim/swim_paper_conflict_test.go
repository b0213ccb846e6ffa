package swim_test

import (
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/swim"
	"github.com/fairlead/fairlead/core/swim/wire"
)

// DESIGN §4: "two live nodes with one name is an error both report." Both have
// to answer first: one that was installed anew leaves its old id behind.
func TestPaperNameConflict(t *testing.T) {
	for _, both := range []bool{true, false} {
		r := with(t, 2, 5)
		r.peer(3).mute = !both
		double := &peer{id: 90, name: "n3", addr: addr(90), epoch: 1}
		r.peers = append(r.peers, double)
		r.say(double, double.intro())
		r.run(2 * time.Second)
		e := r.event(swim.EventNameConflict)
		if !both {
			if e != nil {
				t.Fatalf("reported although one never answered: %s", e.Detail)
			}
			continue
		}
		if e == nil {
			t.Fatal("not reported")
		}
		for _, part := range []string{`"n3"`, model.NodeID(3).String(), model.NodeID(90).String(), addr(3).String(), addr(90).String(), "node.name"} {
			if !strings.Contains(e.Detail, part) {
				t.Errorf("%q does not name %s", e.Detail, part)
			}
		}
		r.forget()
		r.run(time.Minute)
		if r.event(swim.EventNameConflict) != nil {
			t.Error("reported again")
		}
		r.want(3, r.peer(3).value(model.StateAlive)) // an error, and no reason to drop either
		r.want(90, double.value(model.StateAlive))
	}
}

// "… both report": also the node whose name it is.
func TestPaperOwnNameConflict(t *testing.T) {
	r := with(t, 2, 5)
	double := &peer{id: 90, name: "n1", addr: addr(90), epoch: 1}
	r.peers = append(r.peers, double)
	r.say(double, double.intro())
	r.run(time.Second)
	if e := r.event(swim.EventNameConflict); e == nil || !strings.Contains(e.Detail, model.NodeID(1).String()) {
		t.Fatalf("event %+v", e)
	}
	if r.node.Silent() {
		t.Fatal("a name in use twice is no reason to fall silent")
	}
}

// "… both report", also where one of the two was held dead when the other came:
// a partition hides a name that is in use.
func TestPaperNameConflictAfterReturn(t *testing.T) {
	for name, c := range map[string]struct {
		restarts bool
		taken    string // by the newcomer
	}{
		"refutes": {false, "n3"}, "starts again": {true, "n3"}, "own name": {false, "n1"},
	} {
		t.Run(name, func(t *testing.T) {
			r := with(t, 2, 5)
			back := r.peer(3)
			if c.taken == "n1" { // of a member that nobody heard of as a double, as it never answered
				back = &peer{id: 80, name: "n1", addr: addr(80), epoch: 1, mute: true}
				r.peers = append(r.peers, back)
				r.say(back, back.intro())
			}
			back.mute = true
			r.run(30 * time.Second)
			r.want(back.id, back.value(model.StateDead))
			if c.taken == "n3" {
				double := &peer{id: 90, name: "n3", addr: addr(90), epoch: 1}
				r.peers = append(r.peers, double)
				r.say(double, double.intro())
			}
			r.run(30 * time.Second)
			if e := r.event(swim.EventNameConflict); e != nil {
				t.Fatalf("reported although one of the two is dead: %s", e.Detail)
			}
			back.mute = false
			if c.restarts {
				back.epoch++
				r.say(back) // its word alone, then its claim
				r.say(back, back.intro())
			} else {
				back.incarnation++
				r.say(back)
			}
			r.run(2 * time.Second)
			if e := r.event(swim.EventNameConflict); e == nil || !strings.Contains(e.Detail, back.id.String()) {
				t.Fatalf("event %+v: want the name reported", e)
			}
		})
	}
}

// A clash that ended before both had answered is none: the one that was asked
// in vain may come back under another name.
func TestPaperEndedConflictIsNotReported(t *testing.T) {
	for name, gone := range map[string]time.Duration{"soon": 2 * time.Second, "late": time.Minute} {
		t.Run(name, func(t *testing.T) {
			r := with(t, 2, 5)
			double := &peer{id: 90, name: "n3", addr: addr(90), epoch: 1, mute: true}
			r.peers = append(r.peers, double)
			r.say(double, double.intro())
			r.run(gone)
			double.mute, double.name, double.epoch = false, "n90", 2
			r.say(double, double.intro())
			r.run(time.Minute)
			r.want(90, double.value(model.StateAlive))
			if e := r.event(swim.EventNameConflict); e != nil {
				t.Fatalf("reported after its end: %s", e.Detail)
			}
		})
	}
}

// Two ids at one address: whoever does not answer there is gone from it; if
// both do, it is an error like a name in use twice.
func TestPaperAddressConflict(t *testing.T) {
	t.Run("one is gone", func(t *testing.T) {
		r := with(t, 2, 5)
		old := r.peer(4)
		old.mute = true
		heir := &peer{id: 90, name: "n90", addr: addr(4), epoch: 1}
		r.peers = append(r.peers, heir) // answers every ping to the address
		r.say(heir, heir.intro())
		r.run(time.Second)
		r.want(4, old.value(model.StateDead))
		r.want(90, heir.value(model.StateAlive))
		if r.event(swim.EventAddressConflict) != nil {
			t.Fatal("a replaced node is reported as a conflict")
		}
	})
	t.Run("both answer", func(t *testing.T) {
		r := with(t, 2, 5)
		old := r.peer(4)
		old.mute = true
		heir := &peer{id: 90, name: "n90", addr: addr(4), epoch: 1, mute: true}
		r.peers = append(r.peers, heir)
		r.say(heir, heir.intro())
		for _, q := range r.of(wire.Ping) {
			for _, p := range []*peer{old, heir} {
				if q.to == p.addr && q.Subject == p.id {
					r.say(p, ack(q.Seq))
				}
			}
		}
		if e := r.event(swim.EventAddressConflict); e == nil || !strings.Contains(e.Detail, addr(4).String()) || !strings.Contains(e.Detail, "node.advertise") {
			t.Fatalf("event %+v", e)
		}
	})
}

// A node whose advertised address leads to another one falls silent and names
// the remedy: taking part would only make it flap.
func TestPaperMisadvertisedAddress(t *testing.T) {
	r := with(t, 2, 5)
	other := &peer{id: 90, name: "n90", addr: addr(1), epoch: 1}
	r.say(other, other.intro())
	var probe *sent
	for _, q := range r.of(wire.Ping) {
		if q.to == addr(1) && q.Subject == 1 {
			probe = &q
		}
	}
	if probe == nil {
		t.Fatal("it does not ask who answers at its own address")
	}
	r.say(other, ack(probe.Seq))
	e := r.event(swim.EventAddressConflict)
	if e == nil || !r.node.Silent() || !strings.Contains(e.Detail, "node.advertise") || !strings.Contains(e.Detail, other.id.String()) {
		t.Fatalf("event %+v", e)
	}
	// If the address is its own after all, its own answer says so.
	r = with(t, 2, 5)
	r.peers = append(r.peers, &peer{id: 1, name: "n1", addr: addr(1), epoch: selfEpoch})
	other.addr = addr(1)
	r.say(other, other.intro())
	r.run(time.Minute)
	if r.node.Silent() {
		t.Fatal("it fell silent although its address is its own")
	}
	r.want(90, other.value(model.StateDead)) // nobody is there under that id
}

// Clashes looked into at a time are bounded: invented members do not make the
// node shout.
func TestPaperConflictsAreBounded(t *testing.T) {
	r := with(t, 2, 3)
	for i := range 500 {
		p := &peer{id: model.NodeID(1000 + i), name: "n3", addr: addr(3), epoch: 1}
		r.say(r.peer(2), p.intro())
	}
	if n := len(r.of(wire.Ping)); n > 64*2 {
		t.Fatalf("%d pings for invented members", n)
	}
}

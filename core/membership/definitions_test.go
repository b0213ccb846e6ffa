package membership

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/swim"
	"github.com/fairlead/fairlead/core/swim/wire"
)

var epochStart = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func addrOf(i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 7400)
}

// members makes n live members; number 0 is self. Those in owners carry hash.
func members(n int, hash wire.Hash, owners ...int) []swim.Member {
	out := make([]swim.Member, n)
	for i := range out {
		out[i] = swim.Member{ID: model.NodeID(i + 1), Addr: addrOf(i), Self: i == 0}
		if slices.Contains(owners, i) {
			out[i].Record = &swim.Record{Epoch: 1, Seq: 1, Payload: hash[:]}
		}
	}
	return out
}

func TestPullAsksTellerThenOthersThenOwner(t *testing.T) {
	d := newDefinitions(rand.New(rand.NewPCG(1, 2)))
	hash := wire.HashOf([]byte("x"))
	table := members(9, hash, 5)
	now := epochStart
	d.observe(table, map[wire.Hash]netip.AddrPort{hash: addrOf(3)}, now)
	if next := d.next(); next.Before(now) || next.Sub(now) > pullJitter {
		t.Fatalf("first try after %v, want 0 to %v", next.Sub(now), pullJitter)
	}
	var asked []netip.AddrPort
	for range 8 {
		now = d.next()
		reqs := d.begin(table, now)
		if len(reqs) != 1 {
			t.Fatalf("%d requests at the due time, want 1", len(reqs))
		}
		if !d.next().IsZero() {
			t.Fatal("something is due while the only pull is open")
		}
		asked = append(asked, reqs[0].to)
		if d.done(hash, nil, now) {
			t.Fatal("a failed pull counts as new")
		}
	}
	for _, i := range []int{0, 4} {
		if asked[i] != addrOf(3) {
			t.Errorf("try %d asks %v, want the teller", i, asked[i])
		}
		if asked[i+3] != addrOf(5) {
			t.Errorf("try %d asks %v, want the owner", i+3, asked[i+3])
		}
		for _, other := range asked[i+1 : i+3] {
			if other == addrOf(5) || other == addrOf(0) {
				t.Errorf("a try between asks %v, the owner or ourselves", other)
			}
		}
	}
	reqs := d.begin(table, d.next())
	if !d.done(reqs[0].hash, []byte("x"), now) || d.get(hash) == nil || !d.next().IsZero() {
		t.Error("a successful pull does not end it")
	}
}

func TestPullsAreBoundedAndPausesGrow(t *testing.T) {
	d := newDefinitions(rand.New(rand.NewPCG(1, 2)))
	var table []swim.Member
	for i := range 20 {
		hash := wire.HashOf(fmt.Append(nil, i))
		table = append(table, swim.Member{ID: model.NodeID(i + 1), Addr: addrOf(i + 1), Record: &swim.Record{Epoch: 1, Seq: 1, Payload: hash[:]}})
	}
	d.observe(table, nil, epochStart)
	late := epochStart.Add(time.Minute)
	if got := len(d.begin(table, late)); got != maxPulls {
		t.Errorf("%d pulls at once, want %d", got, maxPulls)
	}
	if !d.next().IsZero() || len(d.begin(table, late)) != 0 {
		t.Error("more pulls although all slots are taken")
	}

	one := newDefinitions(rand.New(rand.NewPCG(1, 2)))
	hash := wire.HashOf([]byte("x"))
	two := members(2, hash, 1)
	now := epochStart
	one.observe(two, nil, now)
	tries := 0
	for now.Sub(epochStart) < time.Hour {
		now = one.next()
		for range one.begin(two, now) {
			tries++
			one.done(hash, nil, now)
		}
	}
	if tries < 60 || tries > 300 {
		t.Errorf("%d tries in an hour without success, want one in about %v", tries, pullBackoffMax)
	}
}

func TestDefinitionsNobodyRefersToAreDropped(t *testing.T) {
	d := newDefinitions(rand.New(rand.NewPCG(1, 2)))
	text := []byte("definition")
	hash := wire.HashOf(text)
	table := members(3, hash, 1, 2)
	if !d.put(hash, text) {
		t.Fatal("no room in an empty store")
	}
	table[1].Value.State = model.StateDead
	d.observe(table, nil, epochStart)
	if d.get(hash) == nil || d.bytes != len(text) {
		t.Fatal("dropped although a live member refers to it")
	}
	table[2].Value.State = model.StateLeft
	d.observe(table, nil, epochStart)
	if d.get(hash) == nil {
		t.Error("dropped with its last live member although there is room: it may come back")
	}
	d.observe(members(3, hash), nil, epochStart)
	if d.get(hash) != nil || d.bytes != 0 {
		t.Errorf("kept %d bytes that nobody refers to", d.bytes)
	}
}

func TestDefinitionBudget(t *testing.T) {
	d := newDefinitions(rand.New(rand.NewPCG(1, 2)))
	big := make([]byte, definitionBudget/2+1)
	first, second := wire.Hash{1}, wire.Hash{2}
	if !d.put(first, big) || d.put(second, big) || d.get(second) != nil {
		t.Error("the budget is not kept")
	}
	table := members(2, first, 1)
	table[1].Value.State = model.StateDead
	d.observe(table, nil, epochStart)
	if !d.put(second, big) {
		t.Error("the dead do not make room")
	}
}

// What came and has no room is not fetched from one member after the other.
func TestDefinitionWithoutRoomIsTriedAgainLater(t *testing.T) {
	d, now := newDefinitions(rand.New(rand.NewPCG(1, 1))), epochStart
	small, hash := []byte("x"), wire.Hash{1}
	table := members(3, hash, 1)
	d.observe(table, nil, now)
	d.bytes = definitionBudget
	tries := 0
	for end := now.Add(time.Minute); now.Before(end); now = now.Add(50 * time.Millisecond) {
		for _, req := range d.begin(table, now) {
			tries++
			if d.done(req.hash, small, now) {
				t.Fatal("kept beyond the budget")
			}
		}
	}
	if tries < 3 || tries > 10 {
		t.Errorf("fetched %d times in a minute, want a few, ever more rarely", tries)
	}
	d.bytes = 0
	now = now.Add(time.Minute)
	if reqs := d.begin(table, now); len(reqs) != 1 || !d.done(reqs[0].hash, small, now) {
		t.Error("not kept although there is room again")
	}
}

func TestOnlyDefinitionsOfTheLiveArePulled(t *testing.T) {
	d := newDefinitions(rand.New(rand.NewPCG(1, 2)))
	hash := wire.HashOf([]byte("x"))
	table := members(3, hash, 1)
	table[1].Value.State = model.StateDead
	table[2].Record = &swim.Record{Epoch: 1, Seq: 1, Payload: []byte("short")}
	d.observe(table, nil, epochStart)
	if !d.next().IsZero() {
		t.Error("wants a definition of a dead member, or of a record without hash")
	}
	table[1].Value.State = model.StateSuspect
	d.observe(table, nil, epochStart)
	if d.next().IsZero() {
		t.Error("does not want the definition of a suspect")
	}
}

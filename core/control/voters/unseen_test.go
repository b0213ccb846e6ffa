package voters

import (
	"reflect"
	"testing"
	"time"
)

// A voter that gossip does not know any more is exchanged like a dead one, once it is
// neither known nor heard of for long enough.
func TestUnseen(t *testing.T) {
	var u Unseen
	now := start().Add(time.Minute)
	g := group([]uint64{1, 2, 3}, []uint64{4})
	decide := func(known string) Change {
		return normal(Decide(Rules{}, now, g, u.Complete(now, g, servers(known))).Change)
	}
	none, exchange := Change{}, Change{Promote: []uint64{4}, Remove: []uint64{3}}
	want := func(what string, got, want Change) {
		t.Helper()
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", what, got, want)
		}
	}
	now = now.Add(time.Hour)
	want("it is heard of", decide("1 2 4"), none)
	now = now.Add(time.Hour)
	want("it was heard of just now", decide("1 2 4"), none)
	g.Progress[3] = Progress{}
	now = now.Add(defaultDeadFor - time.Second)
	want("not for long enough", decide("1 2 4"), none)
	now = now.Add(time.Second)
	want("for long enough", decide("1 2 4"), exchange)
	want("it is known again", decide("1 2 3 4"), none)
	want("it is unknown again", decide("1 2 4"), none)
	now = now.Add(defaultDeadFor)
	want("for long enough again", decide("1 2 3? 4"), exchange)
	u.Reset()
	want("somebody else led", decide("1 2 4"), none)
}

// Somebody asked for the removal of one that gossip does not know: that stands.
func TestUnseenLeaves(t *testing.T) {
	var u Unseen
	g := group([]uint64{1, 2, 3}, nil)
	got := u.Complete(start(), g, append(servers("1 2"), Server{ID: 3, Leaving: true, Forced: true}))
	if want := (Server{ID: 3, State: Dead, Since: start(), Leaving: true, Forced: true}); !reflect.DeepEqual(got[2], want) {
		t.Errorf("%+v, want %+v", got[2], want)
	}
}

package reconcile_test

import (
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/view"
	"github.com/fairlead/fairlead/dataplane"
)

// An agent that lost its data directory is alone in the world as far as it
// knows. What its provider was told before stays until the others had the time
// to find it.
func TestAgentWithoutMemoryTakesNothingAwayAtOnce(t *testing.T) {
	other := session()
	other.AgentID = "00000000000000ff"
	same := session()
	same.BootEpoch--
	for _, c := range []struct {
		name  string
		was   dataplane.Session
		stays time.Duration // at least; 0: it goes at once
		found time.Duration // when another node is found, that has the service, too; 0: never
	}{
		{"another agent's", other, 5 * time.Second, 0},
		{"this agent's", same, 0, 0},
		{"another agent's, and nodes come", other, 9 * time.Second, 4 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, view.Alone, func(r *rig) {
				r.views.apply(view.Seen{At: time.Unix(1, 0), Member: member(self, model.StateAlive)})
				w := newViews(view.Alone)
				w.apply(runs(9, passing, "old", "older"))
				push(t, r.p, w, c.was)
				r.serve()
				if c.found > 0 {
					r.pass(c.found)
					r.views.apply(becomes(9, model.StateAlive)) // its record comes later
				}
				if c.stays > 0 {
					r.pass(c.stays - c.found - 100*time.Millisecond)
					if got := r.p.given().Len(); got != 2 || r.loop.Status().Complete {
						t.Fatalf("%d services after %v, want 2; status %+v", got, c.stays, r.loop.Status())
					}
				}
				if c.found > 0 {
					r.views.apply(runs(9, passing, "old"))
				}
				r.pass(1500 * time.Millisecond)
				r.same()
				if !r.loop.Status().Complete || r.loop.Status().Error != nil {
					t.Errorf("status is %+v", r.loop.Status())
				}
			})
		})
	}
}

// Nodes that come one after the other prolong the wait, not for ever.
func TestPatienceWithAnotherAgentsIsBounded(t *testing.T) {
	inBubble(t, view.Alone, func(r *rig) {
		r.views.apply(view.Seen{At: time.Unix(1, 0), Member: member(self, model.StateAlive)})
		other := session()
		other.AgentID = "00000000000000ff"
		w := newViews(view.Alone)
		w.apply(runs(99, passing, "old"))
		push(t, r.p, w, other)
		r.serve()
		for id := model.NodeID(2); id < 9; id++ {
			r.pass(2 * time.Second)
			if r.loop.Status().Complete {
				t.Fatalf("complete with %d nodes", id)
			}
			r.views.apply(becomes(id, model.StateAlive))
		}
		r.pass(2 * time.Second)
		if !r.loop.Status().Complete || r.p.given().Len() != 0 {
			t.Errorf("status after 16 s is %+v", r.loop.Status())
		}
	})
}

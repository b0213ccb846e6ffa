package swim_test

import (
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/model"
)

// A node that leaves while its first exchange is under way is known to its
// contact already, although it knows nobody: it may not go without a word.
func TestLeaveDuringTheFirstExchange(t *testing.T) {
	c := newCluster()
	seed := c.boot(t, 1, 1)
	n := c.boot(t, 2, 1, 1)
	c.run(time.Millisecond / 2) // asked, not answered
	n.Leave(c.now)
	for waited := time.Duration(0); !n.LeaveDone(); waited += 10 * time.Millisecond {
		if waited > 5*time.Second {
			t.Fatal("the departure never ends")
		}
		c.run(10 * time.Millisecond)
	}
	c.down[addr(2)] = true
	c.run(10 * time.Second)
	for _, m := range seed.Members() {
		if m.ID == 2 && m.Value.State != model.StateLeft {
			t.Errorf("the contact holds the departed node for %v", m.Value.State)
		}
	}
}

package membership_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/membership"
	"github.com/fairlead/fairlead/core/swim"
)

func TestNodeRecordsReachAll(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		nodes := c.startAll(6)
		owner := nodes[3]
		definition := bytes.Repeat([]byte("service web on 10.0.0.4:80\n"), 4000) // several parts
		if err := owner.SetRecord(definition, []byte{1, 1, 0}); err != nil {
			t.Fatal(err)
		}
		if got := owner.Snapshot().Self; !bytes.Equal(got.Definition, definition) || !bytes.Equal(got.Vector, []byte{1, 1, 0}) {
			t.Error("the own record is not in the snapshot right after SetRecord")
		}
		has := func(vector []byte) func() bool {
			return func() bool {
				for _, n := range c.nodes {
					m, _ := n.Snapshot().Find(owner.id())
					if !bytes.Equal(m.Definition, definition) || !bytes.Equal(m.Vector, vector) {
						return false
					}
				}
				return true
			}
		}
		took := c.await(5*time.Second, "all have the definition", has([]byte{1, 1, 0}))
		t.Logf("definition of %d bytes everywhere after %v", len(definition), took)
		pulls := func() (n float64) {
			for _, node := range c.nodes {
				n += node.metric(t, "pulls_total", "ok")
			}
			return n
		}
		if pulls() != 5 {
			t.Errorf("%v pulls, want 5: one per node that lacked it", pulls())
		}
		for _, n := range nodes {
			if n == owner {
				continue
			}
			last := membership.Event{}
			for _, e := range n.history(t) {
				if e.Kind == swim.EventRecord {
					last = e
				}
			}
			if !bytes.Equal(last.Member.Definition, definition) || !strings.Contains(last.Detail, "pulled") {
				t.Errorf("%s: no event shows the definition", n.cfg.Name)
			}
		}

		// The vector alone changes: nothing is pulled again.
		if err := owner.SetRecord(definition, []byte{0, 1, 0}); err != nil {
			t.Fatal(err)
		}
		c.await(2*time.Second, "all have the new vector", has([]byte{0, 1, 0}))
		if pulls() != 5 {
			t.Errorf("%v pulls after a change of the vector, want still 5", pulls())
		}

		// A late joiner learns it by exchange, and pulls it.
		late := c.start(7)
		c.await(5*time.Second, "the late joiner has it", has([]byte{0, 1, 0}))
		_ = late

		// A new definition takes the place of the old one everywhere.
		definition = []byte("nothing any more")
		if err := owner.SetRecord(definition, nil); err != nil {
			t.Fatal(err)
		}
		c.await(5*time.Second, "all have the new definition", has(nil))
		for _, n := range c.nodes {
			if got := n.metric(t, "definition_bytes"); got != float64(len(definition)) {
				t.Errorf("%s holds %v bytes of definitions, want %d", n.cfg.Name, got, len(definition))
			}
		}
	})
}

// A vector that no rumour carries is pulled by its hash, alone.
func TestLongVectorsArePulled(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		nodes := c.startAll(5)
		owner := nodes[2]
		definition := bytes.Repeat([]byte("service web on 10.0.0.3:80\n"), 4000)
		vector := func(b byte, n int) []byte { return bytes.Repeat([]byte{b}, n) }
		has := func(vector []byte) func() bool {
			return func() bool {
				for _, n := range c.nodes {
					m, _ := n.Snapshot().Find(owner.id())
					if !m.RecordHere() || !bytes.Equal(m.Vector, vector) || !bytes.Equal(m.Definition, definition) {
						return false
					}
				}
				return true
			}
		}
		pulls := func() (n float64) {
			for _, node := range c.nodes {
				n += node.metric(t, "pulls_total", "ok")
			}
			return n
		}
		for i, step := range []struct {
			vector []byte
			pulls  float64
		}{
			{vector(1, membership.RumourVectorBytes), 4},
			{vector(2, membership.RumourVectorBytes+1), 8},
			{vector(3, membership.MaxVectorBytes), 12},
			{vector(4, 3), 12},
		} {
			if err := owner.SetRecord(definition, step.vector); err != nil {
				t.Fatal(err)
			}
			if got := owner.Snapshot().Self; !got.RecordHere() || !bytes.Equal(got.Vector, step.vector) {
				t.Errorf("step %d: the own vector is not in the snapshot right after SetRecord", i)
			}
			took := c.await(5*time.Second, "all have the vector", has(step.vector))
			t.Logf("vector of %d bytes everywhere after %v", len(step.vector), took)
			if got := pulls(); got != step.pulls {
				t.Errorf("step %d: %v pulls so far, want %v", i, got, step.pulls)
			}
		}
		for _, n := range c.nodes {
			if got := n.metric(t, "definition_bytes"); got != float64(len(definition)) {
				t.Errorf("%s holds %v bytes, want the %d of the definition: the vectors are replaced", n.cfg.Name, got, len(definition))
			}
		}
		events := 0
		for _, e := range nodes[0].history(t) {
			if e.Kind == swim.EventRecord && e.Member.ID == owner.id() && len(e.Member.Vector) > membership.RumourVectorBytes && e.Member.RecordHere() {
				events++
			}
		}
		if events != 2 {
			t.Errorf("%d events show a vector that was pulled, want 2", events)
		}
	})
}

func TestRecordsBeyondTheirCapsAreRefused(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		n := c.startAll(1)[0]
		if err := n.SetRecord(make([]byte, membership.MaxDefinitionBytes+1), nil); !errors.Is(err, membership.ErrRecord) {
			t.Errorf("definition above the cap: %v, want ErrRecord", err)
		}
		if err := n.SetRecord(nil, make([]byte, membership.MaxVectorBytes+1)); !errors.Is(err, membership.ErrRecord) {
			t.Errorf("vector above the cap: %v, want ErrRecord", err)
		}
		if err := n.SetRecord(make([]byte, membership.MaxDefinitionBytes), make([]byte, membership.MaxVectorBytes)); err != nil {
			t.Errorf("record at the caps: %v", err)
		}
	})
}

package replica

import (
	"strings"
	"testing"
	"testing/cryptotest"

	"github.com/cockroachdb/datadriven"
)

// What the script ack_lost.txt shows step by step: whatever acknowledgements are lost, the
// leader comes to know what the others have.
func TestLostAcks(t *testing.T) {
	cryptotest.SetGlobalRandom(t, 1)
	s := newScene(t)
	play := func(steps ...string) {
		t.Helper()
		for _, step := range steps {
			cmd, args, _ := strings.Cut(step, " ")
			d := &datadriven.TestData{Cmd: cmd}
			for _, arg := range strings.Fields(args) {
				d.CmdArgs = append(d.CmdArgs, datadriven.CmdArg{Key: arg})
			}
			s.do(d)
			if s.look(); s.err != nil {
				t.Fatalf("%s: %v\n%s", step, s.err, s.out.String())
			}
		}
	}
	known := func() {
		t.Helper()
		last := s.actors[1].replica.log.last()
		for id, p := range s.actors[1].replica.Status().Progress {
			if p.Match < last {
				t.Fatalf("invariant known: server %d has all of %d entries, and the leader knows of %d\n%s", id, last, p.Match, s.out.String())
			}
		}
	}
	lost := []string{"ready 1", "deliver 1 2", "ready 2", "write 2", "ready 2", "drop 2 1"}
	play("group 3", "campaign 1", "stabilize", "propose 1 x")
	play(lost...)
	play("stabilize", "tick 1 1", "stabilize")
	known()
	play("propose 1 y")
	play(lost...)
	play("stabilize 1 3", "drop 1 2", "tick 1 1", "stabilize", "tick 1 1", "stabilize")
	known()
}

package e2e

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/test/scale"
)

// TestStoreSecretRotates: the secret of three running servers is replaced, step by
// step, while clients go on: no call fails. A server that was forgotten is refused,
// and both sides say why; with the new secret it is one of them again.
func TestStoreSecretRotates(t *testing.T) {
	t.Parallel()
	f := newStore(t, ours(t))
	was, will := newSecret(), newSecret()
	for _, n := range f.nodes {
		n.secrets(was)
	}
	f.timeout = 5 * time.Second
	f.upAll()
	l := f.load(200, 0.5)
	all := []string{was, will}
	term := f.term()
	for try := 1; ; try++ {
		_, refusedBefore, failedBefore := l.counts()
		f.rotates(l, was, will)
		_, refused, failed := l.counts()
		refused, failed = refused-refusedBefore, failed-failedBefore
		if refused+failed == 0 {
			break
		}
		// What a busy machine's elections cost is nothing of this, if it is not each time.
		if scale.Factor() >= 1 || f.term() == term || try == 3 {
			t.Errorf("%d calls were refused and %d failed", refused, failed)
			break
		}
		t.Logf("again, as there was an election: %d calls were refused and %d failed", refused, failed)
		was, will = will, newSecret()
		all = append(all, will)
	}

	forgotten := f.besides(f.leader())[0]
	forgotten.kill()
	forgotten.secrets(was)
	forgotten.up()
	const why = "signed by none of this node's secrets"
	f.eventually(30*time.Second, "both sides say why", func() error {
		if !strings.Contains(forgotten.proc.Output(), why) {
			return fmt.Errorf("%s says nothing", forgotten.name)
		}
		for _, n := range f.besides(forgotten) {
			if strings.Contains(n.proc.Output(), why) {
				return nil
			}
		}
		return errors.New("the others say nothing")
	})
	if st, err := forgotten.status(); err == nil && st.Leader != 0 {
		t.Errorf("%s follows %x with the old secret", forgotten.name, st.Leader)
	}
	l.writesOn()
	forgotten.secrets(will)
	forgotten.reload()
	f.eventually(30*time.Second, "it follows with the new one", f.led)
	l.end()
	for _, n := range f.nodes {
		for _, secret := range all {
			if strings.Contains(n.proc.Output(), secret) {
				t.Errorf("%s has printed a secret", n.name)
			}
		}
	}
}

// rotates replaces the secret of all servers step by step.
func (f *storeFleet) rotates(l *storeLoad, was, will string) {
	f.t.Helper()
	for _, step := range []struct {
		what    string
		secrets []string
	}{
		{"the new one is added", []string{was, will}},
		{"the new one is first", []string{will, was}},
		{"the old one is removed", []string{will}},
	} {
		for _, n := range f.nodes {
			n.secrets(step.secrets...)
			n.reload()
			lasts(loadLasts() / 20)
		}
		f.t.Logf("%s: a write takes %v", step.what, l.writesOn())
	}
}

// term waits until all follow one leader and returns the term.
func (f *storeFleet) term() (term uint64) {
	f.t.Helper()
	f.eventually(30*time.Second, "all follow one leader", func() error {
		leader, err := f.leads(f.nodes...)
		if err != nil {
			return err
		}
		st, err := leader.status()
		term = st.GetRaftTerm()
		return err
	})
	return term
}

// reload has the agent read its configuration again.
func (n *storeNode) reload() {
	n.t.Helper()
	done := func() int { return strings.Count(n.proc.Output(), "msg=reloaded") }
	before := done()
	n.proc.Signal(syscall.SIGHUP)
	n.f.eventually(10*time.Second, n.name+" has reloaded", func() error {
		if done() == before {
			return errNotYet
		}
		return nil
	})
}

package agent

import "testing"

// Providers begin anew with an epoch, and not whenever somebody looks.
func TestSessionLastsAsLongAsItsEpoch(t *testing.T) {
	r := prepare(t, Options{Loaded: loaded(testConfig(t, "n1"))})
	var opened cleanups
	defer func() { opened.run(t.Context()) }()
	if err := r.open(t.Context(), &opened); err != nil {
		t.Fatal(err)
	}
	p := r.planes
	loop, first := p.loop("x")
	p.renew()
	if again, same := p.loop("x"); again != loop || same != first || first.Err() != nil {
		t.Error("the session ended with nothing changed")
	}
	if err := r.members.Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.members.Rejoin(); err != nil {
		t.Fatal(err)
	}
	p.renew()
	again, second := p.loop("x")
	if again == loop || first.Err() == nil || second.Err() != nil {
		t.Error("the session outlived its epoch")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if want := r.members.Snapshot().Self.Value.Epoch; p.session.BootEpoch != want || want != 2 {
		t.Errorf("session of epoch %d, the node is at %d: want 2", p.session.BootEpoch, want)
	}
}

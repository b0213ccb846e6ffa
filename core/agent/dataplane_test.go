package agent

import (
	"strings"
	"testing"

	"github.com/fairlead/fairlead/core/config"
	"github.com/fairlead/fairlead/test/await"
)

// Without a data plane a socket may be where none could have its own.
func TestOffWantsNoRunDirectory(t *testing.T) {
	cfg := testConfig(t, "n1")
	t.Chdir(t.TempDir())
	cfg.API.Socket = "./api.sock"
	origins := config.Origins{"dataplane": {Layer: config.LayerFlag, Name: "--dataplane"}}
	r := start(t, Options{Loaded: Loaded{Config: cfg, Origins: origins}})
	// Its API answers before its data planes are chosen.
	await.For(t, "a word that another wish comes too late", func() bool {
		return strings.Contains(r.log.String(), "no data plane until it is restarted")
	})

	wants := *cfg
	wants.Dataplane = config.Providers{"l7"}
	other := prepare(t, Options{Loaded: Loaded{Config: &wants, Origins: origins}})
	r.cancel()
	if err := r.wait(t); err != nil {
		t.Fatal(err)
	}
	if err := other.Run(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "not absolute") || !strings.Contains(err.Error(), "dataplane to off") {
		t.Errorf("a data plane that is wanted: %v", err)
	}
}

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

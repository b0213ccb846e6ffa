package agent

import (
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/config"
	"github.com/fairlead/fairlead/core/model"
)

func TestOwnRecord(t *testing.T) {
	cfg := config.Defaults()
	cfg.Services = []config.Service{
		{Name: "web", Port: 80, VIP: netip.MustParseAddr("10.200.0.10"), Instances: []config.Instance{
			{ID: "web-1", Address: netip.MustParseAddrPort("127.0.0.1:9001"), HostPort: 19001},
			{ID: "web-2", Address: netip.MustParseAddrPort("127.0.0.1:9002"), Checks: []config.Check{{HTTP: "/"}}},
		}},
		{Namespace: "ops", Name: "db"},
	}
	def, states := ownRecord(cfg, map[string]int64{"default/web": 7})
	if len(def.Services) != 2 || def.Services[0].Key.String() != "default/web" || def.Services[0].Registered != 7 || def.Services[1].Key.String() != "ops/db" {
		t.Errorf("services %+v", def.Services)
	}
	if p := def.Services[0].Ports; len(p) != 1 || p[0] != (model.ServicePort{Port: 80, Protocol: model.TCP}) || len(def.Services[1].Ports) != 0 {
		t.Errorf("ports %+v, %+v", p, def.Services[1].Ports)
	}
	if len(def.Instances) != 2 || def.Instances[0].HostPort != 19001 || def.Instances[1].Weight != 1 {
		t.Errorf("instances %+v", def.Instances)
	}
	// One without checks passes, one with checks has not passed any.
	if len(states) != 2 || states[0] != model.InstancePassing || states[1] != model.InstanceCritical {
		t.Errorf("states %v", states)
	}
}

// A restart does not make a service look newly defined; a service that went
// away and came back does.
func TestRegisteredSurvivesRestarts(t *testing.T) {
	dir := t.TempDir()
	now := time.UnixMilli(1000)
	a := &Agent{opts: Options{Now: func() time.Time { return now }}}
	cfg := config.Defaults()
	cfg.Node.DataDir = dir
	at := func(names ...string) map[string]int64 {
		t.Helper()
		cfg.Services = nil
		for _, n := range names {
			cfg.Services = append(cfg.Services, config.Service{Name: n})
		}
		got, err := a.registered(cfg)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if got := at("a"); got["default/a"] != 1000 {
		t.Fatalf("first %v", got)
	}
	now = time.UnixMilli(2000)
	if got := at("a", "b"); got["default/a"] != 1000 || got["default/b"] != 2000 {
		t.Fatalf("second %v", got)
	}
	at("b")
	now = time.UnixMilli(3000)
	if got := at("a", "b"); got["default/a"] != 3000 || got["default/b"] != 2000 {
		t.Fatalf("after a was gone %v", got)
	}
	if err := os.WriteFile(filepath.Join(dir, registeredFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := a.registered(cfg); err == nil {
		t.Fatal("a damaged file was taken")
	}
	cfg.Node.InMemory = true
	if got, err := a.registered(cfg); err != nil || got["default/a"] != 3000 {
		t.Fatalf("in memory %v, %v", got, err)
	}
}

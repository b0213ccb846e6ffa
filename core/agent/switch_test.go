package agent

import (
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/config"
	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/fake"
	"github.com/fairlead/fairlead/dataplane/sdk"
	"github.com/fairlead/fairlead/dataplane/sdk/handshake"
	"github.com/fairlead/fairlead/test/await"
	"github.com/fairlead/fairlead/test/runnable"
)

// plane is the reference provider under the name of its file. What it programs is in
// the directory kernel-NAME beside it.
type plane struct {
	*fake.Provider
	name string
}

func (p plane) Info() dataplane.Info {
	i := p.Provider.Info()
	i.Name = p.name
	return i
}

// bePlane is the main of a plugin.
func bePlane() int {
	dir, name := filepath.Split(os.Args[0])
	name = strings.TrimPrefix(name, handshake.FilePrefix)
	return sdk.Serve(plane{fake.NewIn(filepath.Join(dir, "kernel-"+name)), name})
}

// planesIn installs providers and returns where they program, by name.
func planesIn(t *testing.T, names ...string) map[string]string {
	t.Helper()
	dir := t.TempDir()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	kernels := map[string]string{}
	for _, name := range names {
		kernels[name] = filepath.Join(dir, "kernel-"+name)
		if err := os.Mkdir(kernels[name], 0o700); err != nil {
			t.Fatal(err)
		}
		if err := runnable.Copy(exe, filepath.Join(dir, handshake.FilePrefix+name)); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("FAIRLEAD_PLUGIN_DIRS", dir)
	return kernels
}

// programs reports whether a provider has the service web in its system.
func programs(kernel string) bool {
	found, err := filepath.Glob(filepath.Join(kernel, "*", "service.*web"))
	return err == nil && len(found) > 0
}

// planesConfig is an agent with the service web and these data planes.
func planesConfig(t *testing.T, names ...string) *config.Config {
	cfg := testConfig(t, "n1")
	cfg.Dataplane = names
	// So it is healthy for a while before it has any service.
	cfg.Plugins = config.Plugins{"two": {"delay": "1s"}}
	cfg.Services = []config.Service{{Name: "web", Namespace: "default", Port: 80, VIP: netip.MustParseAddr("10.200.0.10"), Protocol: "tcp", OnEmpty: "refuse", Balance: "default"}}
	return cfg
}

// served watches, until the test ends, that at least one provider has the service.
func served(t *testing.T, kernels map[string]string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan bool)
	go func() {
		defer close(ended)
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			some := false
			for range 2 { // one may program it as the other is looked at
				for _, kernel := range kernels {
					some = some || programs(kernel)
				}
			}
			if !some {
				t.Error("for a moment no data plane has the service")
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-ended })
}

// SIGHUP with other data planes: those of now take over from those of before, and a
// wish that cannot be granted alters nothing.
func TestSwitchOfDataPlanes(t *testing.T) {
	kernels := planesIn(t, "one", "two")
	cfg := planesConfig(t, "one")
	next := make(chan Loaded, 1)
	written := config.Origins{keyDataplane: {Layer: config.LayerFile, Name: "f.yaml", Line: 1}}
	r := start(t, Options{Loaded: Loaded{Config: cfg, Origins: written}, Reload: func() (Loaded, error) { return <-next, nil }})
	reload := func(names ...string) {
		changed := *cfg
		changed.Dataplane = names
		next <- Loaded{Config: &changed, Origins: written}
		r.signals <- syscall.SIGHUP
	}
	await.For(t, "the first to have the service", func() bool { return programs(kernels["one"]) })
	served(t, kernels)

	reload("three")
	await.For(t, "the refusal", func() bool {
		log := r.log.String()
		return strings.Contains(log, "dataplane names three, which cannot run here") && strings.Contains(log, "result=failed")
	})
	if !programs(kernels["one"]) {
		t.Error("what could not be replaced is gone")
	}
	e, err := r.api.ExplainPlugins(t.Context())
	if err != nil || len(e.Chosen) != 1 || e.Chosen[0].Name != "one" || !e.Written || len(e.Wish) != 1 || len(e.Considered) != 1 || e.Considered[0].Verdict != "SUPPORTED" {
		t.Errorf("explained by %+v, %v", e, err)
	}

	reload("two")
	await.For(t, "the second to take over", func() bool { return programs(kernels["two"]) && !programs(kernels["one"]) })
	await.For(t, "the result", func() bool { return strings.Contains(r.log.String(), "applied=dataplane") })
	list, err := r.api.Config(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range list {
		if s.Key == keyDataplane && s.Value != "two" {
			t.Errorf("%s shows as %s", s.Key, s.Value)
		}
	}
	await.For(t, "the first to be forgotten", func() bool {
		list, err := r.api.Plugins(t.Context())
		if err != nil {
			return false
		}
		for _, p := range list.Plugins {
			if p.Name == "one" && p.State != "available" {
				return false
			}
		}
		return true
	})
	reload("one")
	await.For(t, "the first to have it again", func() bool { return programs(kernels["one"]) && !programs(kernels["two"]) })
}

// An agent that starts with other data planes cleans what those of before left, when
// its own have all services.
func TestOtherDataPlanesAtRestart(t *testing.T) {
	kernels := planesIn(t, "one", "two")
	cfg := planesConfig(t, "one")
	written := config.Origins{keyDataplane: {Layer: config.LayerEnv, Name: "FAIRLEAD_DATAPLANE"}}
	r := start(t, Options{Loaded: Loaded{Config: cfg, Origins: written}})
	await.For(t, "the first to have the service", func() bool { return programs(kernels["one"]) })
	r.cancel()
	if err := r.wait(t); err != nil {
		t.Fatal(err)
	}
	if !programs(kernels["one"]) {
		t.Fatal("what is programmed does not outlive the agent")
	}
	served(t, kernels)
	other := *cfg
	other.Dataplane = config.Providers{"two"}
	start(t, Options{Loaded: Loaded{Config: &other, Origins: written}})
	await.For(t, "the second to take over", func() bool { return programs(kernels["two"]) && !programs(kernels["one"]) })
}

// A stop that is asked for while data planes are chosen anew is not kept waiting.
func TestSignalWhileDataPlanesAreChosen(t *testing.T) {
	planesIn(t, "one")
	dir := os.Getenv("FAIRLEAD_PLUGIN_DIRS")
	began := filepath.Join(dir, "began")
	script := "#!/bin/sh\n: > " + began + "\nexec sleep 300\n"
	if err := runnable.Write(filepath.Join(dir, handshake.FilePrefix+"slow"), []byte(script)); err != nil {
		t.Fatal(err)
	}
	cfg := planesConfig(t, "one")
	other := *cfg
	other.Dataplane = config.Providers{"slow"}
	other.Plugins = config.Plugins{"slow": {"start_timeout": "2m"}} // longer than the test waits
	r := start(t, Options{Loaded: loaded(cfg), Reload: func() (Loaded, error) { return loaded(&other), nil }})
	r.signals <- syscall.SIGHUP
	await.For(t, "the plugin to start", func() bool { _, err := os.Stat(began); return err == nil })
	r.signals <- syscall.SIGTERM
	if err := r.wait(t); err != nil {
		t.Errorf("Run: %v", err)
	}
}

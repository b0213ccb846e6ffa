package agent

import (
	"errors"
	"log/slog"
	"strings"
	"syscall"
	"testing"

	dto "github.com/prometheus/client_model/go"

	"github.com/fairlead/fairlead/core/config"
	"github.com/fairlead/fairlead/test/await"
	"github.com/fairlead/fairlead/test/transcript"
)

// What the reference tables call live is what a reload applies.
func TestAppliersAreTheLiveKeys(t *testing.T) {
	appliers := (&Agent{}).appliers(nil)
	for _, k := range config.Keys() {
		if _, ok := appliers[k.Path]; (ok || k.Path == keyDataplane) != k.Live {
			t.Errorf("%s: applied by a reload: %v, marked live: %v", k.Path, ok, k.Live)
		}
		delete(appliers, k.Path)
	}
	for key := range appliers {
		t.Errorf("%s is no key", key)
	}
}

func TestSIGHUP(t *testing.T) {
	cfg := testConfig(t, "n1")
	next := make(chan func() (Loaded, error), 1)
	r := start(t, Options{
		Loaded: Loaded{Config: cfg, Origins: config.Origins{"cluster.name": {Layer: config.LayerFlag, Name: "old"}}},
		Reload: func() (Loaded, error) { return (<-next)() },
	})
	reload := func(f func() (Loaded, error), result string) {
		t.Helper()
		count := func() float64 {
			var m dto.Metric
			if err := r.metrics.reloads.WithLabelValues(result).Write(&m); err != nil {
				t.Fatal(err)
			}
			return m.GetCounter().GetValue()
		}
		before := count()
		next <- f
		r.signals <- syscall.SIGHUP
		await.For(t, "a reload that is "+result, func() bool {
			return count() == before+1
		})
	}
	setting := func(key string) (value, origin string) {
		t.Helper()
		list, err := r.api.Config(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range list {
			if s.Key == key {
				return s.Value, s.Origin
			}
		}
		t.Fatalf("no key %s", key)
		return "", ""
	}

	changed := *cfg
	changed.Log.Level = "debug"
	from := config.Origins{
		"log.level":    {Layer: config.LayerFile, Name: "f.yaml", Line: 3},
		"cluster.name": {Layer: config.LayerFile, Name: "f.yaml", Line: 4},
	}
	reload(func() (Loaded, error) { return Loaded{Config: &changed, Origins: from}, nil }, reloadApplied)
	await.For(t, "the new level to show", func() bool { v, _ := setting("log.level"); return v == "debug" })
	if r.opts.Level.Level() != slog.LevelDebug {
		t.Errorf("level %v, want debug", r.opts.Level.Level())
	}
	if _, origin := setting("log.level"); origin != "f.yaml:3" {
		t.Errorf("origin of log.level %q", origin)
	}
	if _, origin := setting("cluster.name"); origin != "f.yaml:4" {
		t.Errorf("origin of an unchanged key %q, want where it is written now", origin)
	}

	moved := changed
	moved.Cluster.Name = "other"
	from = config.Origins{"cluster.name": {Layer: config.LayerFile, Name: "f.yaml", Line: 9}}
	reload(func() (Loaded, error) { return Loaded{Config: &moved, Origins: from, Warnings: []string{"w1"}}, nil }, reloadRestartNeeded)
	await.For(t, "the key to be named", func() bool {
		return strings.Contains(r.log.String(), "key=cluster.name") && strings.Contains(r.log.String(), "w1")
	})
	await.For(t, "the end of the reload", func() bool { return strings.Contains(r.log.String(), "result=restart_needed") })
	if value, origin := setting("cluster.name"); value != cfg.Cluster.Name || origin != "f.yaml:4" {
		t.Errorf("cluster.name shows %q from %q: want what is in force", value, origin)
	}

	reload(func() (Loaded, error) { return Loaded{}, errors.New("config: f.yaml:1: broken") }, reloadFailed)
	await.For(t, "the error in the log", func() bool { return strings.Contains(r.log.String(), "f.yaml:1: broken") })
	if value, _ := setting("log.level"); value != "debug" {
		t.Errorf("after a failed reload log.level is %q", value)
	}
}

func TestSIGHUPWithoutAFileIsSaid(t *testing.T) {
	r := start(t, Options{Loaded: loaded(testConfig(t, "n1"))})
	r.signals <- syscall.SIGHUP
	await.For(t, "a line in the log", func() bool { return strings.Contains(r.log.String(), "SIGHUP ignored") })
}

// A port 0 is shown as the port that it became.
func TestSettingsShowBoundPorts(t *testing.T) {
	r := start(t, Options{Loaded: loaded(testConfig(t, "n1"))})
	list, err := r.api.Config(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, s := range list {
		switch s.Key {
		case "gossip.bind", "http.listen", "api.listen":
			if seen++; strings.HasSuffix(s.Value, ":0") {
				t.Errorf("%s is shown as %s", s.Key, s.Value)
			}
		}
	}
	if seen != 3 || len(list) < len(config.Keys()) {
		t.Errorf("%d listeners in %d settings", seen, len(list))
	}
}

func TestLoggerRefusesUnknownWords(t *testing.T) {
	for _, cfg := range []config.Log{{Level: "loud", Format: "text"}, {Level: "info", Format: "xml"}} {
		if _, _, err := NewLogger(cfg, nil); err == nil {
			t.Errorf("%+v was accepted", cfg)
		}
	}
	var out transcript.Buffer
	log, _, err := NewLogger(config.Log{Level: "warn", Format: "json"}, &out)
	if err != nil {
		t.Fatal(err)
	}
	log.Info("quiet")
	log.Warn("loud")
	if got := out.String(); !strings.HasPrefix(got, "{") || strings.Contains(got, "quiet") || !strings.Contains(got, "loud") {
		t.Errorf("log: %s", got)
	}
}

func TestProfiles(t *testing.T) {
	cfg := config.Defaults()
	for _, profile := range []string{"lan", "wan", "local"} {
		cfg.Gossip.Profile = profile
		knobs, err := swimConfig(cfg)
		if err != nil || knobs.Cluster != cfg.Cluster.Name || knobs.Validate() != nil {
			t.Errorf("%s: %v, %v", profile, err, knobs.Validate())
		}
	}
	cfg.Gossip.Profile = "moon"
	if _, err := swimConfig(cfg); err == nil {
		t.Error("an unknown profile was accepted")
	}
}

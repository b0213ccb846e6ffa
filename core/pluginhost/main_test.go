package pluginhost

import (
	"encoding/json"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/dataplane/sdk/handshake"
	"github.com/fairlead/fairlead/test/await"
	"github.com/fairlead/fairlead/test/runnable"
	"github.com/fairlead/fairlead/test/transcript"
)

// TestMain lets the test binary be a plugin, under the name of one, or an agent
// to be killed.
func TestMain(m *testing.M) {
	if strings.HasPrefix(filepath.Base(os.Args[0]), handshake.FilePrefix) {
		syscall.Exit(bePlugin()) // os.Exit, under the race detector, first waits a second for races
	}
	if os.Getenv(beAgentEnv) != "" {
		os.Exit(beAgent())
	}
	goleak.VerifyTestMain(m)
}

// patience is for conditions that hold within a second on an idle machine.
const patience = 30 * time.Second

// hurry is a timing for tests: what is done again and again is done often, and
// nothing is given up on as it takes long on a busy machine.
func hurry() Timing {
	t := DefaultTiming()
	t.Start, t.Call, t.Probe, t.Answer = patience, patience, patience, patience/3
	t.Health, t.DataPath = 50*time.Millisecond, 100*time.Millisecond
	t.Redial, t.Look, t.Follow = 20*time.Millisecond, 20*time.Millisecond, 20*time.Millisecond
	t.Backoff.First, t.Backoff.Most = 10*time.Millisecond, 100*time.Millisecond
	return t
}

// rig is a host with the directories around it.
type rig struct {
	t        *testing.T
	dir      string // of plugins
	cfg      Config
	log      *transcript.Buffer
	ready    chan Provider
	registry *prometheus.Registry
}

func newRig(t *testing.T, names ...string) *rig {
	t.Helper()
	r := &rig{t: t, dir: t.TempDir(), log: &transcript.Buffer{}, ready: make(chan Provider, 2000), registry: prometheus.NewRegistry()}
	r.cfg = Config{
		Wish: Wish{Names: names, Written: true}, Search: Search{Dirs: []string{r.dir}, Binary: executable(t)},
		RunDir: shortDir(t), StateDir: t.TempDir(), InstanceID: "test", Node: "n1",
		Environ: os.Environ(), OnReady: func(p Provider) { r.ready <- p },
		Log: slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug})), Metrics: r.registry,
		Timing: hurry(), Rand: rand.New(rand.NewPCG(1, 2)),
	}
	return r
}

// install puts the test binary there as a plugin that behaves as told.
func (r *rig) install(name string, b behaviour) string {
	r.t.Helper()
	return install(r.t, r.dir, name, b)
}

func install(t *testing.T, dir, name string, b behaviour) string {
	t.Helper()
	path := filepath.Join(dir, handshake.FilePrefix+name)
	text, err := json.Marshal(b)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(behaviourPath(path)), 0o755)
	}
	if err == nil {
		err = os.WriteFile(behaviourPath(path), text, 0o644)
	}
	if err == nil {
		// A host may be looking for it: it is there as a whole or not at all.
		fresh := filepath.Join(dir, ".new-"+name)
		if err = os.Link(executable(t), fresh); err != nil {
			err = runnable.Copy(executable(t), fresh)
		}
		if err == nil {
			err = os.Rename(fresh, path)
		}
		_ = os.Remove(fresh) // there still if it is the same file as before
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// script installs a shell script as a plugin.
func (r *rig) script(name, body string) string {
	r.t.Helper()
	path := filepath.Join(r.dir, handshake.FilePrefix+name)
	if err := runnable.Write(path, []byte("#!/bin/sh\n"+body)); err != nil {
		r.t.Fatal(err)
	}
	return path
}

// host returns a new host that is stopped in the end.
func (r *rig) host() *Host {
	r.t.Helper()
	h, err := New(r.cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		h.Stop()
		r.endKept()
	})
	return h
}

// endKept ends what served on, should a test have failed before it did.
func (r *rig) endKept() {
	for _, rec := range (&runDir{path: r.cfg.RunDir}).leftovers() {
		if p := rec.process(); p != nil {
			p.kill()
			<-p.exited
			reapChild(rec.PID)
		}
	}
}

// start starts a host.
func (r *rig) start() *Host {
	r.t.Helper()
	h := r.host()
	if _, err := h.Start(r.t.Context()); err != nil {
		r.t.Fatalf("Start: %v\n%s", err, r.log)
	}
	return h
}

// nextReady waits for the next life of a provider.
func (r *rig) nextReady() Provider {
	r.t.Helper()
	select {
	case p := <-r.ready:
		return p
	case <-time.After(patience):
		r.t.Fatalf("no provider became ready\n%s", r.log)
		return Provider{}
	}
}

func (r *rig) waitLog(text string) {
	r.t.Helper()
	await.Until(r.t, func() string {
		if strings.Contains(r.log.String(), text) {
			return ""
		}
		return "a log with " + text + ":\n" + r.log.String()
	})
}

func statusOf(t *testing.T, h *Host, name string) Status {
	t.Helper()
	for _, s := range h.Status() {
		if s.Name == name {
			return s
		}
	}
	t.Fatalf("no status of %s in %+v", name, h.Status())
	return Status{}
}

// waitState returns the status with that state: the next one may be another already.
func waitState(t *testing.T, h *Host, name string, want State) (s Status) {
	t.Helper()
	await.Until(t, func() string {
		if s = statusOf(t, h, name); s.State != want {
			return "state " + string(want) + ", is " + string(s.State) + ": " + s.Reason
		}
		return ""
	})
	return s
}

func waitClosed(t *testing.T, c <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(patience):
		t.Fatalf("waited in vain for %s", what)
	}
}

func executable(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// shortDir is a temporary directory whose path leaves room for a socket's.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "fl-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

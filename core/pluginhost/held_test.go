package pluginhost

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/test/await"
)

// A file that may not be run is not tried again and again. It runs once it may,
// and nobody has to restart the agent for that.
func TestRefusedWaitsForAnotherFile(t *testing.T) {
	r := newRig(t, "bad", "good")
	path := r.install("bad", behaviour{Layers: []dataplane.Layer{dataplane.L7}})
	r.install("good", behaviour{})
	manifest := `{"name": "bad", "version": "1.0.0", "sha256": "` + strings.Repeat("5a", 32) + `", "capabilities": []}`
	if err := os.WriteFile(path+ManifestSuffix, []byte(manifest), 0o644); err != nil {
		t.Fatal(err)
	}
	h := r.start()
	if p := r.nextReady(); p.Name != "good" {
		t.Fatalf("%s became ready", p.Name)
	}
	s := waitState(t, h, "bad", StateRefused)
	if !strings.Contains(s.Reason, "its manifest says 5a5a") || !s.Until.IsZero() {
		t.Errorf("status is %+v", s)
	}
	if n := strings.Count(r.log.String(), "plugin does not run"); n != 1 {
		t.Errorf("the log says so %d times:\n%s", n, r.log)
	}
	// Asked for, it is looked at once more, with the same end.
	s, err := h.Renew(t.Context(), "bad", "a test")
	if err != nil || s.State != StateRefused {
		t.Errorf("after a restart: %+v, %v", s, err)
	}
	if err := os.Remove(path + ManifestSuffix); err != nil {
		t.Fatal(err)
	}
	if p := r.nextReady(); p.Name != "bad" {
		t.Errorf("%s became ready", p.Name)
	}
}

// Settings that are wrong are not tried again until they change.
func TestRejectedWaitsForOtherSettings(t *testing.T) {
	for name, values := range map[string]map[string]any{
		"by the schema": {"port": "none"},
		"unknown key":   {"moon": 1},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, "bad", "good")
			r.install("bad", behaviour{
				Layers: []dataplane.Layer{dataplane.L7},
				Schema: `{"type": "object", "additionalProperties": false, "properties": {"port": {"type": "integer"}}}`,
			})
			r.install("good", behaviour{})
			r.cfg.Settings = map[string]Settings{"bad": {Values: values}}
			h := r.start()
			if p := r.nextReady(); p.Name != "good" {
				t.Fatalf("%s became ready", p.Name)
			}
			waitState(t, h, "bad", StateRejected)
			if n := strings.Count(r.log.String(), "plugin does not run"); n != 1 {
				t.Errorf("the log says so %d times:\n%s", n, r.log)
			}
			if err := h.Reconfigure(map[string]Settings{"bad": {Values: map[string]any{keyOnHostLoss: "fly"}}}); err == nil {
				t.Error("a wrong key of the host's own was taken")
			}
			if err := h.Reconfigure(map[string]Settings{"bad": {Values: map[string]any{"port": 7}}}); err != nil {
				t.Fatal(err)
			}
			if p := r.nextReady(); p.Name != "bad" {
				t.Errorf("%s became ready", p.Name)
			}
			if s := statusOf(t, h, "good"); s.Starts != 1 {
				t.Errorf("the other one, of which nothing changed: %+v", s)
			}
			// Running, it is restarted with what is new.
			if err := h.Reconfigure(map[string]Settings{"bad": {Values: map[string]any{"port": 8}}}); err != nil {
				t.Fatal(err)
			}
			if p := r.nextReady(); p.Name != "bad" {
				t.Errorf("%s became ready", p.Name)
			}
		})
	}
}

// A plugin that could not be asked at the choice, and then captures what another
// does, is refused.
func TestLateConflictIsRefused(t *testing.T) {
	r := newRig(t, "bad", "good")
	path := r.install("bad", behaviour{Mode: "dies"})
	r.install("good", behaviour{})
	h := r.start()
	if p := r.nextReady(); p.Name != "good" {
		t.Fatalf("%s became ready", p.Name)
	}
	if s := waitState(t, h, "bad", StateCrashLoop); s.Starts < hurry().Backoff.LoopCount-1 {
		t.Errorf("%d starts, one for each loss but that of the choice", s.Starts)
	}
	if err := os.WriteFile(behaviourPath(path), []byte(`{}`), 0o644); err != nil {
		t.Fatal(err)
	}
	s := waitState(t, h, "bad", StateRefused)
	if !strings.Contains(s.Reason, "as good does") || !strings.Contains(s.Reason, "keep one of the two") {
		t.Errorf("reason is %s", s.Reason)
	}
}

// A plugin that could not be asked at the choice is asked before it runs.
func TestLateProbeIsObeyed(t *testing.T) {
	r := newRig(t, "bad")
	path := r.install("bad", behaviour{Mode: "dies"})
	h := r.start()
	waitState(t, h, "bad", StateCrashLoop)
	r.install("bad", behaviour{Verdict: dataplane.Unsupported})
	s := waitState(t, h, "bad", StateRefused)
	if !strings.Contains(s.Reason, "UNSUPPORTED: kernel-moon: no moon") || !strings.Contains(s.Reason, "wait for the night") {
		t.Errorf("reason is %s", s.Reason)
	}
	if err := os.WriteFile(behaviourPath(path), []byte(`{}`), 0o644); err != nil {
		t.Fatal(err)
	}
	if s, err := h.Renew(t.Context(), "bad", "a test"); err != nil || s.State != StateReady {
		t.Errorf("mended: %+v, %v", s, err)
	}
}

func TestRenew(t *testing.T) {
	r := newRig(t, "good")
	r.install("good", behaviour{})
	h := r.start()
	r.nextReady()
	was := statusOf(t, h, "good")
	is, err := h.Renew(t.Context(), "good", "a test")
	if err != nil || is.State != StateReady || is.PID == was.PID || is.Starts != was.Starts+1 || is.Losses != 0 {
		t.Errorf("before %+v, after %+v, %v", was, is, err)
	}
	if _, err := h.Renew(t.Context(), "nobody", "a test"); !errors.Is(err, ErrUnknown) {
		t.Errorf("an unknown name: %v", err)
	}
}

// A restart that is asked for while a start is under way is no part of that start,
// which may have read what was altered since.
func TestRenewDuringAStart(t *testing.T) {
	r := newRig(t, "good")
	r.install("good", behaviour{Mode: "call-configure-slow", Delay: 300 * time.Millisecond})
	h := r.start()
	await.For(t, "a process that is being configured", func() bool { return statusOf(t, h, "good").PID != 0 })
	was := statusOf(t, h, "good")
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
	defer cancel()
	is, err := h.Renew(ctx, "good", "a test")
	if err != nil || is.State != StateReady || is.PID == was.PID || is.Starts != was.Starts+1 {
		t.Errorf("before %+v, after %+v, %v", was, is, err)
	}
}

package pluginhost

import (
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/dataplane/sdk/handshake"
	"github.com/fairlead/fairlead/test/await"
)

// A plugin logs at the level of the agent, also when that changes, and is not
// started again for it.
func TestPluginsFollowTheLogLevel(t *testing.T) {
	const line = "the plugin is configured"
	for _, kind := range []Kind{KindChild, KindKept} {
		t.Run(string(kind), func(t *testing.T) {
			r := newRig(t, "a")
			r.install("a", behaviour{Dir: t.TempDir()})
			if kind == KindKept {
				r.cfg.Settings = map[string]Settings{"a": {Values: map[string]any{keyOnHostLoss: handshake.HostLossServe}}}
				first := r.start()
				r.nextReady()
				first.Stop()
			}
			h := r.start()
			if p := r.nextReady(); p.Kind != kind {
				t.Fatalf("it is a %s", p.Kind)
			}
			logged := func() string {
				own, _ := os.ReadFile(logPath(h.run, "a")) // of one that outlives its agent
				return r.log.String() + string(own)
			}
			if strings.Contains(logged(), line) {
				t.Fatalf("at info it logs for debugging\n%s", logged())
			}
			was := statusOf(t, h, "a")
			h.LogAt(slog.LevelDebug)
			await.Until(t, func() string {
				if strings.Contains(logged(), line) {
					return ""
				}
				return "a line for debugging:\n" + logged()
			})
			if is := statusOf(t, h, "a"); is.PID != was.PID || is.Starts != was.Starts {
				t.Errorf("it was started again: %+v, was %+v", is, was)
			}
		})
	}
}

package pluginhost

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/dataplane"
	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
	"github.com/fairlead/fairlead/test/await"
)

func TestReadyAndStopped(t *testing.T) {
	for _, mode := range []string{"", "raw", "go-plugin"} {
		t.Run("mode "+mode, func(t *testing.T) {
			r := newRig(t, "good")
			r.install("good", behaviour{Mode: mode})
			h := r.start()
			p := r.nextReady()
			if p.Name != "good" || p.Kind != KindChild || p.Info.Name != "good" {
				t.Errorf("ready is %+v", p)
			}
			info, err := p.Client.Info(t.Context(), &pb.InfoRequest{})
			if err != nil || info.GetName() != "good" {
				t.Errorf("Info of the client: %v, %v", info, err)
			}
			pid := statusOf(t, h, "good").PID
			began, err := beganAt(pid)
			if err != nil {
				t.Fatal(err)
			}
			h.Stop()
			waitClosed(t, p.Lost, "the end of the life")
			if find(pid, began) != nil {
				t.Errorf("process %d lives on", pid)
			}
			if s := statusOf(t, h, "good"); s.State != StateStopped {
				t.Errorf("state is %s", s.State)
			}
			if left, err := os.ReadDir(r.cfg.RunDir); !os.IsNotExist(err) {
				t.Errorf("left in the run directory: %v, %v", left, err)
			}
		})
	}
}

// Each bad plugin is one clear error: it names the plugin, says what was
// printed and what to do, and the one beside it is not harmed.
func TestBadPlugins(t *testing.T) {
	for _, test := range []struct {
		mode string
		want []string
	}{
		{"garbage", []string{"handshake was due", `"hello, I am a web server"`, "writes nothing to standard output"}},
		{"binary", []string{"handshake was due", "writes nothing to standard output"}},
		{"early", []string{`"library v2 loaded"`, "its log goes to standard error"}},
		{"silent", []string{"did not shake hands within 300ms", "raise plugins.bad.start_timeout"}},
		{"dies", []string{"exit status 3", "cannot find my head", "run it by hand"}},
		{"wordy", []string{"exit status 3", "my whole heap", "run it by hand"}},
		{"nowhere", []string{"bad runs", "nobody listens at /nowhere", "absolute path of its socket"}},
		{"version", []string{"speaks version 7 of the contract, and this agent version 1", "install the build"}},
		{"core", []string{"handshake", "cannot be used", `"9|1|unix|/nowhere|grpc|"`}},
		{"tcp", []string{"listens on tcp 127.0.0.1:1", "unix socket"}},
		{"netrpc", []string{"netrpc", "SDK"}},
		{"deaf", []string{"bad", "not connected"}},
		{"call-configure-dies", []string{"cannot be configured", "its process ended: exit status 9"}},
		{"call-configure-panic", []string{"panicked in Configure", "nil pointer"}},
		{"call-configure-refuse", []string{"the port is cursed", "correct plugins.bad"}},
	} {
		t.Run(test.mode, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, "bad", "good")
			if test.mode == "deaf" {
				r.cfg.Timing.Call = time.Second
			}
			r.install("bad", behaviour{Mode: test.mode, Layers: []dataplane.Layer{dataplane.L7}})
			r.install("good", behaviour{})
			if test.mode == "silent" {
				r.cfg.Settings = map[string]Settings{"bad": {Values: map[string]any{keyStartTimeout: "300ms"}}}
			}
			h := r.start()
			if p := r.nextReady(); p.Name != "good" {
				t.Fatalf("%s became ready", p.Name)
			}
			if test.mode == "call-configure-refuse" {
				waitState(t, h, "bad", StateRejected) // another try would not help
			}
			said := ""
			await.Until(t, func() string {
				if said = statusOf(t, h, "bad").Reason; said == "" {
					return "the reason why the bad one does not run"
				}
				return ""
			})
			for _, want := range test.want {
				if !strings.Contains(said, want) {
					t.Errorf("%q is not in: %s", want, said)
				}
			}
			if len(said) > 2<<10 {
				t.Errorf("a reason of %d bytes is for nobody to read", len(said))
			}
			if s := statusOf(t, h, "good"); s.State != StateReady || s.Losses != 0 {
				t.Errorf("the good one: %+v", s)
			}
		})
	}
}

func TestWrittenNameThatIsMissingIsAnError(t *testing.T) {
	r := newRig(t, "bad", "good")
	r.install("good", behaviour{})
	_, err := r.host().Start(t.Context())
	if err == nil || !strings.Contains(err.Error(), "dataplane names bad, which cannot run here: it is not installed") {
		t.Errorf("error is %v", err)
	}
	if len(r.ready) != 0 {
		t.Error("the other one runs all the same")
	}
}

func TestStartTimeoutIsObeyed(t *testing.T) {
	r := newRig(t, "slow")
	r.install("slow", behaviour{Mode: "slow", Delay: 600 * time.Millisecond})
	r.cfg.Timing.Start = 300 * time.Millisecond
	r.cfg.Settings = map[string]Settings{"slow": {Values: map[string]any{keyStartTimeout: "20s"}}}
	r.start()
	r.nextReady() // within its own 20 s, beyond the 300 ms of all others
}

func TestInfoHasToAgreeWithTheFile(t *testing.T) {
	r := newRig(t, "good")
	r.install("good", behaviour{Name: "evil"})
	f := r.host().Identify(t.Context(), "good")
	if f.Err == nil || !strings.Contains(f.Err.Error(), "says that it is evil") {
		t.Errorf("error is %v", f.Err)
	}
}

func TestChildSeesNoSecretsAndGetsItsConfiguration(t *testing.T) {
	r := newRig(t, "good")
	out := filepath.Join(t.TempDir(), "told")
	// Without the SDK, which may execute itself once more, under another name.
	r.install("good", behaviour{Mode: "go-plugin", Out: out})
	r.cfg.Environ = []string{"PATH=/usr/bin:/bin", "TZ=UTC", "FAIRLEAD_SECRET=canary", "HTTPS_PROXY=http://127.0.0.1:1", "AWS_SECRET_ACCESS_KEY=canary", "LANG=C"}
	r.cfg.Settings = map[string]Settings{"good": {Values: map[string]any{"delay": "5ms"}}}
	h := r.start()
	r.nextReady()
	var got told
	text, err := os.ReadFile(out)
	if err != nil || json.Unmarshal(text, &got) != nil {
		t.Fatal(err)
	}
	for _, e := range got.Environ {
		name, value, _ := strings.Cut(e, "=")
		switch name {
		case "PATH", "TZ", "LANG", "FAIRLEAD_DATAPLANE_COOKIE", "FAIRLEAD_HOST_FD", "FAIRLEAD_ON_HOST_LOSS",
			"PLUGIN_UNIX_SOCKET_DIR", "PLUGIN_MIN_PORT", "PLUGIN_MAX_PORT", "PLUGIN_PROTOCOL_VERSIONS":
		default:
			t.Errorf("the child sees %s", e)
		}
		if strings.Contains(value, "canary") {
			t.Errorf("the child sees %s", e)
		}
	}
	if got.Config != `{"delay":"5ms"}` || got.InstanceID != "test" {
		t.Errorf("configured with %+v", got)
	}
	if got.StateDir != filepath.Join(r.cfg.StateDir, "good") || got.RunDir != filepath.Join(r.cfg.RunDir, "good") {
		t.Errorf("directories are %s and %s", got.StateDir, got.RunDir)
	}
	if pid := statusOf(t, h, "good").PID; pid != got.PID {
		t.Errorf("pid is %d, and the status says %d", got.PID, pid)
	}
	comm, err := os.ReadFile(filepath.Join("/proc", itoa(got.PID), "comm"))
	if err != nil || string(comm) != "fairlead-datapl\n" {
		t.Errorf("it is listed as %q, %v", comm, err)
	}
}

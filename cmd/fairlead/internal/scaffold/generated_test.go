package scaffold

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/dataplane/conformance"
)

// generate writes a new module, changed by the pairs of old and new text, and
// returns its directory. It takes Fairlead from this checkout.
func generate(t *testing.T, changes ...string) string {
	t.Helper()
	clone, err := filepath.Abs("../../../..")
	if err != nil {
		t.Fatal(err)
	}
	files, err := Render(Plan{Name: "my-plane", Module: "example.com/me/my-plane", Clone: clone})
	if err != nil {
		t.Fatal(err)
	}
	for ; len(changes) > 0; changes = changes[2:] {
		found := false
		for i, f := range files {
			if strings.Contains(string(f.Text), changes[0]) {
				found = true
				files[i].Text = []byte(strings.ReplaceAll(string(f.Text), changes[0], changes[1]))
			}
		}
		if !found {
			t.Fatalf("no file has %q", changes[0])
		}
	}
	dir := t.TempDir()
	if err := Write(dir, files); err != nil {
		t.Fatal(err)
	}
	return dir
}

// tool runs the Go command in a module. It fetches nothing: all that the module
// needs this test was built from.
func tool(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOPROXY=off", "GOSUMDB=off", "GOWORK=off", "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func build(t *testing.T, dir string) conformance.Target {
	t.Helper()
	tool(t, dir, "build", "-o", "fairlead-dataplane-my-plane", ".")
	return conformance.Target{
		Exec: filepath.Join(dir, "fairlead-dataplane-my-plane"), Env: []string{"MY_PLANE_DIR=" + filepath.Join(dir, "system")},
	}
}

// TestGenerated: what Render writes builds, is vetted with its own test, and
// passes all checks of the suite, of which none may be blind.
func TestGenerated(t *testing.T) {
	dir := generate(t)
	tool(t, dir, "vet", "./...")
	report := conformance.Run(t.Context(), build(t, dir), conformance.Options{Services: 1000})
	if report.Error != "" || report.Name != "my-plane" || len(report.Results) != len(conformance.Checks()) {
		t.Fatalf("%s ran %d of %d checks: %s", report.Name, len(report.Results), len(conformance.Checks()), report.Error)
	}
	skips := []string{"large.limits", "drain.ends"} // it has no limits, and holds no connections
	for _, r := range report.Results {
		if r.Outcome != conformance.Passed && !slices.Contains(skips, r.ID) || strings.Contains(r.Evidence, "observable") {
			t.Errorf("%s is %v: %s", r.ID, r.Outcome, r.Evidence)
		}
	}
	if left, err := os.ReadDir(filepath.Join(dir, "system")); err == nil {
		t.Errorf("it left %v", left)
	}
}

// TestGeneratedCanFail: the suite sees through a generated provider that somebody
// broke: its gauges are read from the system.
func TestGeneratedCanFail(t *testing.T) {
	type flaw struct{ check, old, broken string }
	for name, flaws := range map[string][]flaw{
		"writes nothing": {{"reconcile.programs", "return os.Rename(fresh, s.file(instance, key))", "return os.Remove(fresh)"}},
		"does too much": {
			{"crash.incomplete", "certain := p.known || next.Completeness.Complete()", "certain := true"},
			{"cleanup.others", "ours := what.AllKnown || instance == what.InstanceID", "ours := true"},
			{"reconcile.idempotent", "!there || was.text != is.text", "there || !there"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var changes, checks []string
			for _, f := range flaws {
				changes, checks = append(changes, f.old, f.broken), append(checks, f.check)
			}
			report := conformance.Run(t.Context(), build(t, generate(t, changes...)), conformance.Options{Only: checks})
			if report.Error != "" || len(report.Results) != len(checks) {
				t.Errorf("%d checks ran, want %d: %s", len(report.Results), len(checks), report.Error)
			}
			for _, r := range report.Results {
				if r.Outcome != conformance.Failed {
					t.Errorf("%s is %q: %s", r.ID, r.Outcome, r.Evidence)
				}
			}
		})
	}
}

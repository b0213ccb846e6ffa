package conformance_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/dataplane/conformance"
)

// TestBroken shows that each check can fail: it runs the whole suite on
// providers with one flaw each, and demands that the check which names the flaw
// rejects it. The flaws and their checks are listed by the program itself.
func TestBroken(t *testing.T) {
	path := filepath.Join(build(t, "testdata/broken", "."), "broken")
	list, err := exec.Command(path).Output()
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(list)), "\n")
	if len(lines) < 12 {
		t.Fatalf("%d broken providers, want at least 12", len(lines))
	}
	for _, line := range lines {
		flaw, check, _ := strings.Cut(line, "\t")
		t.Run(flaw, func(t *testing.T) {
			t.Parallel()
			report := conformance.Run(t.Context(), conformance.Target{Exec: path, Args: []string{flaw}}, conformance.Options{
				Services: 60, Reconciles: 50, Patience: 5 * time.Second,
			})
			if report.Error != "" {
				t.Fatalf("the suite did not run to its end: %s", report.Error)
			}
			r := report.Result(check)
			if r.Outcome != conformance.Failed {
				t.Errorf("%s did not reject it: %q (%s)", check, r.Outcome, r.Evidence)
			}
			t.Logf("%s rejected it: %s", check, r.Evidence)
			for _, id := range report.Failed() {
				if id != check {
					t.Logf("also %s: %s", id, report.Result(id).Evidence)
				}
			}
		})
	}
}

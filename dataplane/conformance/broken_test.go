package conformance_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/dataplane/conformance"
	"github.com/fairlead/fairlead/test/scale"
)

// TestBroken shows that checks can fail: it runs the suite on providers with one
// flaw each, and demands that the check which names the flaw rejects it. The
// flaws and their checks are listed by the program itself.
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
	// Everything of the suite against everything that is broken belongs to
	// make test-long; else only the group of the check that has to reject it.
	full := scale.Factor() >= 1
	var mu sync.Mutex
	rejects := make(map[string]bool)
	t.Cleanup(func() {
		for _, c := range conformance.Checks() {
			if full && !rejects[c.ID] {
				t.Errorf("%s rejected none of the broken providers: can it fail?", c.ID)
			}
		}
	})
	for _, line := range lines {
		flaw, check, _ := strings.Cut(line, "\t")
		t.Run(flaw, func(t *testing.T) {
			t.Parallel()
			o := conformance.Options{Services: 60, Reconciles: 50, Patience: 5 * time.Second}
			if !full {
				group, _, _ := strings.Cut(check, ".")
				o.Only = []string{group}
			}
			report := conformance.Run(t.Context(), conformance.Target{Exec: path, Args: []string{flaw}}, o)
			if report.Error != "" {
				t.Fatalf("the suite did not run to its end: %s", report.Error)
			}
			r := report.Result(check)
			if r.Outcome != conformance.Failed {
				t.Errorf("%s did not reject it: %q (%s)", check, r.Outcome, r.Evidence)
			}
			t.Logf("%s rejected it: %s", check, r.Evidence)
			for _, id := range report.Failed() {
				mu.Lock()
				rejects[id] = true
				mu.Unlock()
				if id != check {
					t.Logf("also %s: %s", id, report.Result(id).Evidence)
				}
			}
		})
	}
}

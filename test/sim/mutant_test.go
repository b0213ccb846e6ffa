package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

const (
	mutantDir     = "testdata/mutants"
	mutantSeeds   = 60 // what has to be enough to find a planted bug
	mutantTimeout = 100 * time.Second
	mutantsAtOnce = 2
	leastMutants  = 12
)

// mutant is a patch to core that plants one bug.
type mutant struct {
	name     string
	caughtBy []string // the invariants that may find it
	files    []filePatch
}

// filePatch changes one file; path is relative to the root of the repository.
type filePatch struct {
	path  string
	hunks []hunk
}

// hunk replaces some lines by others. Where is a matter of the lines alone, so
// that code which moved needs no new patch.
type hunk struct{ from, to []string }

// TestMutants plants one bug after the other, and expects the invariant that
// the patch names to find it.
func TestMutants(t *testing.T) {
	if *seedFlag != 0 || *countFlag != 0 {
		t.Skip("-sim.seed and -sim.count are for TestSimulation")
	}
	paths, err := filepath.Glob(filepath.Join(mutantDir, "*.patch"))
	if err != nil {
		t.Fatal(err)
	}
	if len(paths) < leastMutants {
		t.Fatalf("%s has %d patches, want at least %d", mutantDir, len(paths), leastMutants)
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	slots := make(chan struct{}, mutantsAtOnce)
	t.Run("each", func(t *testing.T) {
		for _, path := range paths {
			t.Run(strings.TrimSuffix(filepath.Base(path), ".patch"), func(t *testing.T) {
				t.Parallel()
				slots <- struct{}{}
				defer func() { <-slots }()
				m, err := readMutant(path)
				if err != nil {
					t.Fatal(err)
				}
				m.hunt(t, root)
			})
		}
	})
}

// hunt builds this package with the bug planted, and runs it.
func (m *mutant) hunt(t *testing.T, root string) {
	dir := t.TempDir()
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	for _, f := range m.files {
		original := filepath.Join(root, f.path)
		src, err := os.ReadFile(original)
		if err != nil {
			t.Fatal(err)
		}
		changed, err := f.apply(string(src))
		if err != nil {
			t.Fatalf("%v\nTo refresh it: make the change by hand in a copy of %s, and put the output of `diff -u` below the header of test/sim/%s/%s.patch.",
				err, f.path, mutantDir, m.name)
		}
		mutated := filepath.Join(dir, strings.ReplaceAll(f.path, "/", "_"))
		if err := os.WriteFile(mutated, []byte(changed), 0o600); err != nil {
			t.Fatal(err)
		}
		overlay.Replace[original] = mutated
	}
	text, err := json.Marshal(overlay)
	if err != nil {
		t.Fatal(err)
	}
	overlayFile, binary := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "sim.test")
	if err := os.WriteFile(overlayFile, text, 0o600); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "test", "-c", "-p", "1", "-ldflags=-s -w", "-overlay", overlayFile, "-o", binary, "./test/sim")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("the mutant does not build: %v\n%s", err, out)
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), mutantTimeout)
	defer cancel()
	run := exec.CommandContext(ctx, binary, "-test.run=^TestSimulation$", fmt.Sprintf("-sim.count=%d", mutantSeeds))
	run.Dir = filepath.Join(root, "test/sim")
	out, err := run.CombinedOutput()
	found := regexp.MustCompile(`sim: seed (\d+) at \S+: (Invariant\w+):`).FindSubmatch(out)
	var exit *exec.ExitError
	switch {
	case err == nil:
		t.Errorf("survived %d seeds: want it caught by %v", mutantSeeds, m.caughtBy)
	case found == nil && errors.As(err, &exit):
		t.Errorf("ended without a finding: %v\n%s", err, tail(out))
	case found == nil:
		t.Error(err)
	case !slices.Contains(m.caughtBy, string(found[2])):
		t.Errorf("caught by %s, want %v\n%s", found[2], m.caughtBy, tail(out))
	default:
		t.Logf("caught by %s at seed %s in %v", found[2], found[1], time.Since(began).Round(10*time.Millisecond))
	}
}

// tail is the end of a long output.
func tail(out []byte) []byte { return out[max(0, len(out)-3000):] }

// readMutant reads a patch. Its header says what it plants, and ends with the
// line "# caught by:" and the names of invariants.
func readMutant(path string) (*mutant, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	m := &mutant{name: strings.TrimSuffix(filepath.Base(path), ".patch")}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		if names, ok := strings.CutPrefix(line, "# caught by: "); ok {
			m.caughtBy = strings.Split(names, ", ")
			continue
		}
		if err := m.take(line); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	if len(m.caughtBy) == 0 || len(m.files) == 0 {
		return nil, fmt.Errorf("%s: want a line `# caught by: Invariant…` and a unified diff", path)
	}
	return m, nil
}

// take reads one line of a unified diff.
func (m *mutant) take(line string) error {
	switch {
	case strings.HasPrefix(line, "#"), strings.HasPrefix(line, "--- "):
		return nil
	case strings.HasPrefix(line, "+++ "):
		path, ok := strings.CutPrefix(strings.Fields(line)[1], "b/")
		if !ok || !strings.HasPrefix(path, "core/") {
			return fmt.Errorf("%q: want a path b/core/…", line)
		}
		m.files = append(m.files, filePatch{path: path})
		return nil
	case len(m.files) == 0:
		return fmt.Errorf("%q comes before any file", line)
	}
	f := &m.files[len(m.files)-1]
	if strings.HasPrefix(line, "@@ ") {
		f.hunks = append(f.hunks, hunk{})
		return nil
	}
	if len(f.hunks) == 0 {
		return fmt.Errorf("%q comes before any hunk", line)
	}
	h := &f.hunks[len(f.hunks)-1]
	if line == "" {
		line = " "
	}
	switch body := line[1:]; line[0] {
	case ' ':
		h.from, h.to = append(h.from, body), append(h.to, body)
	case '-':
		h.from = append(h.from, body)
	case '+':
		h.to = append(h.to, body)
	default:
		return fmt.Errorf("%q is no line of a hunk", line)
	}
	return nil
}

// apply returns src with all hunks applied. Each has to fit at exactly one
// place.
func (f *filePatch) apply(src string) (string, error) {
	lines := strings.Split(src, "\n")
	for i, h := range f.hunks {
		at := -1
		for j := 0; j+len(h.from) <= len(lines); j++ {
			if slices.Equal(lines[j:j+len(h.from)], h.from) {
				if at >= 0 {
					return "", fmt.Errorf("hunk %d fits %s more than once", i+1, f.path)
				}
				at = j
			}
		}
		if at < 0 {
			return "", fmt.Errorf("hunk %d does not fit %s any more", i+1, f.path)
		}
		lines = slices.Replace(lines, at, at+len(h.from), h.to...)
	}
	return strings.Join(lines, "\n"), nil
}

func TestPatchThatDoesNotFit(t *testing.T) {
	f := filePatch{path: "core/x.go", hunks: []hunk{{from: []string{"a", "b"}, to: []string{"a", "c"}}}}
	for src, want := range map[string]string{
		"a\nc\n":       "does not fit core/x.go any more",
		"a\nb\na\nb\n": "more than once",
	} {
		if _, err := f.apply(src); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("apply to %q: %v, want %q", src, err, want)
		}
	}
	got, err := f.apply("x\na\nb\ny\n")
	if err != nil || got != "x\na\nc\ny\n" {
		t.Errorf("apply = %q, %v", got, err)
	}
}

// TestMutantsNameInvariants holds the headers to the list.
func TestMutantsNameInvariants(t *testing.T) {
	known := bytes.Buffer{}
	for _, path := range []string{"invariants.go", "run.go", "rolling.go"} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		known.Write(text)
	}
	paths, err := filepath.Glob(filepath.Join(mutantDir, "*.patch"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		m, err := readMutant(path)
		if err != nil {
			t.Error(err)
			continue
		}
		for _, name := range m.caughtBy {
			if !bytes.Contains(known.Bytes(), []byte(`"`+name+`"`)) {
				t.Errorf("%s names %s, which no run checks", path, name)
			}
		}
	}
}

package conformance_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/conformance"
)

// block returns the first code block of a language in docs/plugins.md.
func block(t *testing.T, language string) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/plugins.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), "```"+language+"\n")
	code, _, closed := strings.Cut(rest, "```\n")
	if !found || !closed {
		t.Fatalf("docs/plugins.md has no block of %s", language)
	}
	return code
}

// TestDocument builds the provider of docs/plugins.md as it stands there and
// demands that it passes, seen and unseen.
func TestDocument(t *testing.T) {
	code := block(t, "go")
	_, body, _ := strings.Cut(code, "\n)\n")
	if n := len(strings.Split(strings.TrimSpace(body), "\n")); n > 60 {
		t.Errorf("the provider of docs/plugins.md has %d lines below its imports, want at most 60", n)
	}
	// Inside the module, so that it is built with it, and where ./... does not find it:
	// what looks at all packages at this moment must not see one that soon is gone.
	dir, err := os.MkdirTemp("testdata", "document-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(code), 0o600); err != nil {
		t.Fatal(err)
	}
	name := regexp.MustCompile(`// Command (\S+)`).FindStringSubmatch(code)[1]
	path := filepath.Join(build(t, ".", "./"+dir), filepath.Base(dir))
	named := filepath.Join(filepath.Dir(path), name)
	if err := os.Rename(path, named); err != nil {
		t.Fatal(err)
	}
	tables := t.TempDir()
	target := conformance.Target{Exec: named, Env: []string{"TABLE_DIR=" + tables}}
	o := options()
	o.Observe = func(context.Context) (map[dataplane.Key]int, error) { return readTables(tables) }
	t.Run("seen", func(t *testing.T) { conformance.TestWith(t, target, o) })
	report := conformance.Run(t.Context(), target, conformance.Options{Services: 100, Reconciles: 20})
	if r := report.Result("reconcile.programs"); !report.OK() || r.Outcome != conformance.Skipped || !strings.Contains(r.Evidence, "not observable") {
		t.Errorf("unseen: failed %v %s; reconcile.programs: %s %s", report.Failed(), report.Error, r.Outcome, r.Evidence)
	}
	for _, id := range report.Failed() {
		t.Logf("%s, after %v: %s", id, report.Result(id).Elapsed, report.Result(id).Evidence)
	}
	if left, err := os.ReadDir(tables); err != nil || len(left) > 0 {
		t.Errorf("the suite left %v (%v)", left, err)
	}
}

// readTables reads all files of the provider of the document.
func readTables(dir string) (map[dataplane.Key]int, error) {
	seen := make(map[dataplane.Key]int)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if id, _ := url.PathUnescape(e.Name()); !strings.HasPrefix(id, "conform-") || strings.HasSuffix(id, ".new") {
			continue
		}
		f, err := os.Open(filepath.Join(dir, e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return nil, err
		}
		for lines := bufio.NewScanner(f); lines.Scan(); {
			words := strings.Fields(lines.Text())
			key, err := dataplane.ParseKey(words[0])
			if err != nil {
				return nil, err
			}
			seen[key] = len(words) - 1
		}
		if err := f.Close(); err != nil {
			return nil, err
		}
	}
	return seen, nil
}

// TestDocumentManifest keeps the example of a manifest JSON.
func TestDocumentManifest(t *testing.T) {
	var manifest struct{ Name, Version, SHA256 string }
	if err := json.Unmarshal([]byte(block(t, "json")), &manifest); err != nil || manifest.Name != "table" {
		t.Errorf("%v: %+v", err, manifest)
	}
}

package mutant

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

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

func TestRead(t *testing.T) {
	const diff = "--- a/core/x.go\n+++ b/core/x.go\n@@ -1 +1 @@\n-a\n+b\n"
	path := filepath.Join(t.TempDir(), "name.patch")
	for text, want := range map[string]string{
		"# caught by: one, two\n# test: TestX\n" + diff: "",
		diff:                                             "want a line",
		"# caught by: one\n":                             "want a line",
		"# caught by: one\n+++ b/x.go\n":                 "changes nothing",
		"# caught by: one\n-a\n":                         "before any file",
		"# caught by: one\n+++ b/x.go\n-a\n":             "before any hunk",
		"# caught by: one\n" + diff + "a\n":              "no line of a hunk",
		"# caught by: one\n+++ b/../x.go\n@@ @@\n-a\n":   "want the path",
		"# caught by: one\n+++ b/x_test.go\n@@ @@\n-a\n": "want the path",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		m, err := Read(path)
		switch {
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%q: %v, want %q", text, err, want)
		case want == "" && (err != nil || m.Name != "name" || m.Test != "TestX" || len(m.CaughtBy) != 2):
			t.Errorf("%q: %+v, %v", text, m, err)
		}
	}
}

// TestTarget is what the mutants of testdata are planted around.
func TestTarget(t *testing.T) {
	switch n := answer(); {
	case n < 0:
		t.Fatalf("invariant wrong: the answer is %d", n)
	case n != 42:
		t.Fatalf("invariant right: the answer is %d", n)
	}
}

// One mutant is caught; the others are findings of Hunt: they survive, are caught
// by another invariant or by none, do not fit, do not build, or do not end.
func TestHunt(t *testing.T) {
	root, err := findRoot()
	if err != nil {
		t.Fatal(err)
	}
	s := Suite{Dir: "testdata/mutants", Test: "TestTarget", Least: 7, Limit: 1 << 31}
	s.complete()
	all, err := s.read()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		want := map[string]string{
			"caught":   "",
			"survives": "it survived TestTarget",
			"other":    "it was caught by right, want [wrong]",
			"panics":   "without a finding",
			"stale":    "does not fit test/mutant/answer.go any more",
			"broken":   "does not build",
			"endless":  "was not done after",
		}[m.Name]
		t.Run(m.Name, func(t *testing.T) {
			t.Parallel()
			found, err := s.hunt(t.Context(), m, root, t.TempDir())
			switch {
			case want == "" && (err != nil || found != "invariant right: the answer is 41"):
				t.Errorf("%q, %v", found, err)
			case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
				t.Errorf("%v, want %q", err, want)
			}
		})
	}
}

func TestSuiteRefuses(t *testing.T) {
	dir := t.TempDir()
	write := func(header string) {
		t.Helper()
		text := header + "+++ b/x.go\n@@ @@\n-a\n"
		if err := os.WriteFile(filepath.Join(dir, "x.patch"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	refused := func(s Suite, want string) {
		t.Helper()
		s.Dir = dir
		s.complete()
		if _, err := s.read(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	refused(Suite{Least: 1}, "has 0 patches")
	write("# caught by: nobody\n")
	refused(Suite{Test: "TestTarget"}, "which no test checks")
	write("# caught by: right\n# test: TestMissing\n")
	refused(Suite{Test: "TestTarget"}, "which is no test")
	s := Suite{}
	s.complete()
	if _, err := s.judge(t.Context(), &Mutant{CaughtBy: []string{"right"}}, []byte("invariant right: so"), errors.New("exit 1")); err != nil {
		t.Error(err)
	}
}

package mutant

import (
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

// Suite is a test of the package in the working directory, and the bugs that it
// has to find. Zero fields have their defaults.
type Suite struct {
	Dir   string // of the patches; default testdata/mutants
	Least int    // so many patches there are, or somebody lost some
	// Test is the name of the test, unless a patch names its own; Args are further
	// arguments of the binary, Env further variables.
	Test      string
	Args, Env []string
	// Finding matches what a test says that found a bug; its first group is the
	// name of the invariant. Default: invariant NAME:
	Finding *regexp.Regexp
	// Named is how tests name an invariant in their source, %s being the name: a
	// patch that names another one is refused. Default: invariant %s:
	Named string
	Limit time.Duration // of one run; default 5 minutes: a late seed may find it, on a busy machine
}

// atOnce is how many mutants are built and run at the same time.
const atOnce = 2

func (s *Suite) complete() {
	if s.Dir == "" {
		s.Dir = "testdata/mutants"
	}
	if s.Finding == nil {
		s.Finding = regexp.MustCompile(`invariant ([a-z-]+):`)
	}
	if s.Named == "" {
		s.Named = "invariant %s:"
	}
	if s.Limit == 0 {
		s.Limit = 5 * time.Minute
	}
}

// Hunt plants one bug after the other, and expects the invariant that its patch
// names to find it.
func (s Suite) Hunt(t *testing.T) {
	s.complete()
	all, err := s.read()
	if err != nil {
		t.Fatal(err)
	}
	root, err := findRoot()
	if err != nil {
		t.Fatal(err)
	}
	slots := make(chan struct{}, atOnce)
	t.Run("each", func(t *testing.T) {
		for _, m := range all {
			t.Run(m.Name, func(t *testing.T) {
				t.Parallel()
				slots <- struct{}{}
				defer func() { <-slots }()
				began := time.Now()
				found, err := s.hunt(t.Context(), m, root, t.TempDir())
				if err != nil {
					t.Fatal(err)
				}
				t.Logf("caught in %v: %s", time.Since(began).Round(10*time.Millisecond), found)
			})
		}
	})
}

// read reads all patches, and holds them to what the tests can say.
func (s *Suite) read() ([]*Mutant, error) {
	paths, err := filepath.Glob(filepath.Join(s.Dir, "*"+suffix))
	if err != nil {
		return nil, err
	}
	if len(paths) < s.Least {
		return nil, fmt.Errorf("%s has %d patches, want at least %d", s.Dir, len(paths), s.Least)
	}
	source, err := sources(".")
	if err != nil {
		return nil, err
	}
	var all []*Mutant
	for _, path := range paths {
		m, err := Read(path)
		if err != nil {
			return nil, err
		}
		for _, name := range m.CaughtBy {
			if !strings.Contains(source, fmt.Sprintf(s.Named, name)) {
				return nil, fmt.Errorf("%s names %s, which no test checks", path, name)
			}
		}
		if m.Test == "" {
			m.Test = s.Test
		}
		if !strings.Contains(source, "func "+m.Test+"(") {
			return nil, fmt.Errorf("%s names %q, which is no test", path, m.Test)
		}
		all = append(all, m)
	}
	return all, nil
}

// sources is the text of all Go files of a directory.
func sources(dir string) (string, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return "", err
	}
	var all strings.Builder
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return "", err
		}
		all.Write(text)
	}
	return all.String(), nil
}

// findRoot is the directory of the module.
func findRoot() (string, error) {
	dir, err := filepath.Abs(".")
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("mutant: there is no go.mod above this directory")
		}
		dir = up
	}
}

// hunt returns what the test said that found the mutant. Dir is for its use.
func (s *Suite) hunt(ctx context.Context, m *Mutant, root, dir string) (string, error) {
	binary, err := s.build(ctx, m, root, dir)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, s.Limit)
	defer cancel()
	run := exec.CommandContext(ctx, binary, append([]string{"-test.run=^" + m.Test + "$", "-test.failfast"}, s.Args...)...)
	run.Env = append(os.Environ(), s.Env...)
	run.WaitDelay = time.Second
	out, err := run.CombinedOutput()
	return s.judge(ctx, m, out, err)
}

// build makes the binary of this package's tests with the bug planted.
func (s *Suite) build(ctx context.Context, m *Mutant, root, dir string) (string, error) {
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	for _, f := range m.files {
		original := filepath.Join(root, f.path)
		src, err := os.ReadFile(original)
		if err != nil {
			return "", err
		}
		changed, err := f.apply(string(src))
		if err != nil {
			return "", fmt.Errorf("%w\nTo refresh it: make the change by hand in a copy of %s, and put the output of `diff -U1` below the header of %s",
				err, f.path, filepath.Join(s.Dir, m.Name+suffix))
		}
		mutated := filepath.Join(dir, strings.ReplaceAll(f.path, "/", "_"))
		if err := os.WriteFile(mutated, []byte(changed), 0o600); err != nil {
			return "", err
		}
		overlay.Replace[original] = mutated
	}
	text, err := json.Marshal(overlay)
	if err != nil {
		return "", err
	}
	overlayFile, binary := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "mutant.test")
	if err := os.WriteFile(overlayFile, text, 0o600); err != nil {
		return "", err
	}
	build := exec.CommandContext(ctx, "go", "test", "-c", "-p", "1", "-ldflags=-s -w", "-overlay", overlayFile, "-o", binary, ".")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("the mutant does not build: %w\n%s", err, out)
	}
	return binary, nil
}

// judge says whether the right one found it.
func (s *Suite) judge(ctx context.Context, m *Mutant, out []byte, err error) (string, error) {
	found := s.Finding.FindSubmatchIndex(out)
	switch {
	case err == nil:
		return "", fmt.Errorf("it survived %s: want it caught by %v", m.Test, m.CaughtBy)
	case ctx.Err() != nil:
		return "", fmt.Errorf("%s was not done after %v: want it caught by %v\n%s", m.Test, s.Limit, m.CaughtBy, tail(out))
	case found == nil:
		return "", fmt.Errorf("%s ended without a finding: %w\n%s", m.Test, err, tail(out))
	}
	name := string(out[found[2]:found[3]])
	if !slices.Contains(m.CaughtBy, name) {
		return "", fmt.Errorf("it was caught by %s, want %v\n%s", name, m.CaughtBy, tail(out))
	}
	line, _, _ := strings.Cut(string(out[found[0]:]), "\n")
	return line[:min(len(line), 200)], nil
}

// tail is the end of a long output.
func tail(out []byte) []byte { return out[max(0, len(out)-3000):] }

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestMain lets the test binary be the wrapper of test binaries, as the command is.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == measureArg {
		os.Exit(measure(os.Args[2:], os.Stdout))
	}
	os.Exit(m.Run())
}

// module writes a small module with a budget table and returns its directory.
func module(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	all := map[string]string{
		"go.mod":          "module example.org/m\n\ngo 1.26\n",
		"test/budget.txt": "... 20 20\n",
	}
	for name, text := range files {
		all[name] = text
	}
	for name, text := range all {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// The runner exists to fail when it should, so most of what it is given here is
// broken in one way each.
func TestRun(t *testing.T) {
	const pass = "package a\nimport \"testing\"\nfunc TestA(t *testing.T) {}\n"
	for _, c := range []struct {
		name  string
		files map[string]string
		args  []string
		ok    bool
		last  string   // the closing line
		want  []string // elsewhere in the output
	}{
		{
			name:  "all pass",
			files: map[string]string{"a/a_test.go": pass},
			ok:    true, last: "2 passed, 0 failed, 0 skipped", // go vet counts too
			want: []string{"ok   a "},
		},
		{
			name: "a test fails",
			files: map[string]string{
				"a/a_test.go": pass,
				"b/b_test.go": "package b\nimport \"testing\"\nfunc TestB(t *testing.T) { t.Error(\"seen\") }\n",
			},
			last: "2 passed, 1 failed, 0 skipped", want: []string{"FAIL b ", "seen"},
		},
		{
			name:  "does not build",
			files: map[string]string{"a/a_test.go": pass, "b/b_test.go": "package b\nvar x int = \"\"\n"},
			last:  "1 passed, 2 failed, 0 skipped", want: []string{"FAIL b ", "cannot use"},
		},
		{
			name:  "go vet complains",
			files: map[string]string{"a/a.go": "package a\nfunc f() { for { }; println() }\n", "a/a_test.go": pass},
			last:  "1 passed, 1 failed, 0 skipped", want: []string{"unreachable code", "failed: go vet"},
		},
		{
			name: "over budget", // also where a tick of the test gets a hundredth of a CPU
			files: map[string]string{
				"test/budget.txt": "... 20 20\na 0.001 20\n",
				"a/a_test.go":     "package a\nimport (\"testing\"; \"time\")\nfunc TestA(t *testing.T) { <-time.After(200*time.Millisecond) }\n",
			},
			last: "2 passed, 1 failed, 0 skipped", want: []string{"over budget: a took "},
		},
		{
			name: "within the long budget",
			args: []string{"-long"},
			files: map[string]string{
				"test/budget.txt": "... 20 20\na 0.001 20\n",
				"a/a_test.go":     "package a\nimport (\"os\"; \"testing\"; \"time\")\nfunc TestA(t *testing.T) { <-time.After(200*time.Millisecond); if os.Getenv(\"FAIRLEAD_TEST_SCALE\") != \"1\" { t.Error(\"scale\") } }\n",
			},
			ok: true, last: "2 passed, 0 failed, 0 skipped",
		},
		{
			name: "a module within the module",
			files: map[string]string{
				"a/a_test.go":            pass,
				"test/bench/go.mod":      "module example.org/m/test/bench\n\ngo 1.26\n",
				"test/bench/b_test.go":   "package bench\nimport \"testing\"\nfunc TestB(t *testing.T) { t.Error(\"seen\") }\n",
				"test/x/testdata/go.mod": "broken",
			},
			last: "3 passed, 1 failed, 0 skipped", want: []string{"ok   a ", "FAIL test/bench ", "seen"},
		},
		{
			name:  "the process exits",
			files: map[string]string{"a/a_test.go": "package a\nimport (\"os\"; \"testing\")\nfunc TestA(t *testing.T) { os.Exit(3) }\n"},
			last:  "1 passed, 1 failed, 0 skipped",
		},
		{
			name:  "a skip says why",
			files: map[string]string{"a/a_test.go": "package a\nimport \"testing\"\nfunc TestA(t *testing.T) { t.Skip(\"needs root\") }\n"},
			ok:    true, last: "1 passed, 0 failed, 1 skipped", want: []string{"skipped TestA", "needs root"},
		},
		{
			name:  "a fuzz target finds something",
			args:  []string{"-fuzztime=30s"},
			files: map[string]string{"a/a_test.go": "package a\nimport \"testing\"\nfunc FuzzA(f *testing.F) { f.Add(1); f.Fuzz(func(t *testing.T, n int) { if n != 1 { t.Error(\"other\") } }) }\n"},
			last:  "3 passed, 1 failed, 0 skipped", want: []string{"FAIL a FuzzA", "Failing input written"},
		},
		{
			name:  "a fuzz target finds nothing",
			args:  []string{"-fuzztime=1s"},
			files: map[string]string{"a/a_test.go": "package a\nimport \"testing\"\nfunc FuzzA(f *testing.F) { f.Fuzz(func(t *testing.T, n int) {}) }\n"},
			ok:    true, last: "3 passed, 0 failed, 0 skipped", want: []string{"FuzzA  elapsed: "},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("FAIRLEAD_TEST_SCALE", "")
			var out bytes.Buffer
			ok, err := run(append([]string{"-C", module(t, c.files)}, c.args...), &out)
			if err != nil {
				t.Fatalf("%v\n%s", err, out.String())
			}
			lines := strings.Split(strings.TrimSpace(out.String()), "\n")
			if last := lines[len(lines)-1]; ok != c.ok || last != c.last {
				t.Errorf("ok %v, last line %q; want %v, %q\n%s", ok, last, c.ok, c.last, out.String())
			}
			for _, want := range c.want {
				if !strings.Contains(out.String(), want) {
					t.Errorf("no %q in:\n%s", want, out.String())
				}
			}
		})
	}
}

func TestRunRefuses(t *testing.T) {
	dir := module(t, map[string]string{"a/a.go": "package a\n"})
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"-C", dir, "-only", "nothing"}, `no package matches -only "nothing"`},
		{[]string{"-C", dir, "-only", "("}, "-only"},
		{[]string{"-C", t.TempDir()}, "budget.txt"},
		{[]string{"-C", module(t, map[string]string{"test/budget.txt": "x\n"})}, "line 1"},
		{[]string{"-C", module(t, map[string]string{"a/a.go": "package a\n", "contrib/x/go.mod": "broken"})}, "modules below contrib"},
		{[]string{"-C", module(t, nil)}, "has no package"},
	} {
		if _, err := run(c.args, &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("run(%v) = %v, want an error with %q", c.args, err, c.want)
		}
	}
	// A run in which nothing was tested must not look like a passed one.
	var out bytes.Buffer
	if ok, err := run([]string{"-C", module(t, map[string]string{"a/a.go": "package a\nvar x int = \"\"\n"})}, &out); ok || err != nil {
		t.Errorf("a module without tests that does not build: ok %v, error %v\n%s", ok, err, out.String())
	}
}

func TestPlan(t *testing.T) {
	var all []Package
	for _, path := range []string{
		"m/core/pluginhost", "m/core/store", "m/core/swim", "m/dataplane", "m/cmd/fairlead", "m/plugins/ebpf",
		"m/test/e2e", "m/test/sim", "m/test/netns",
	} {
		p := Package{ImportPath: path}
		p.Module.Path = "m"
		all = append(all, p)
	}
	budget := func(p Package) time.Duration {
		return map[string]time.Duration{"core/swim": 9, "test/sim": 8}[p.Rel()]
	}
	describe := func(groups []Group) (lines []string) {
		for _, g := range groups {
			for _, p := range g.Packages {
				lines = append(lines, strings.Join(append(slices.Clone(g.Args), p.Rel()), " "))
			}
		}
		return lines
	}
	rows := Plan(all, true, budget)
	for name, c := range map[string]struct {
		groups []Group
		want   []string
	}{
		"computing": {rows.Computing, []string{"-race core/swim", "-race core/store", "-race dataplane", "test/sim", "cmd/fairlead"}},
		"waiting":   {rows.Waiting, []string{"-race core/pluginhost", "plugins/ebpf"}},
		"alone":     {rows.Alone, []string{"-p=1 -parallel=4 test/e2e", "-p=1 -parallel=4 test/netns"}},
	} {
		if got := describe(c.groups); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	if g := Plan(all, false, budget).Computing[0]; len(g.Args) != 0 {
		t.Errorf("without a C compiler: %v, want no -race", g.Args)
	}
}

func TestDeadlineFlake(t *testing.T) {
	if !isDeadlineFlake([]byte("--- FAIL: FuzzX (10.02s)\n    context deadline exceeded\n")) {
		t.Error("the engine's own deadline was not recognised")
	}
	if isDeadlineFlake([]byte("context deadline exceeded\nFailing input written to testdata/fuzz/FuzzX/1\n")) {
		t.Error("a finding was taken for the engine's deadline")
	}
}

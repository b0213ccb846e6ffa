package arch

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/tools/go/packages"
)

const root = "../.."

// What follows holds this repository to the checks of this package.

func list(t *testing.T) []Package {
	t.Helper()
	pkgs, err := List(root)
	if err != nil {
		t.Fatal(err)
	}
	return pkgs
}

// load type-checks the module once for all tests.
var load = sync.OnceValues(func() ([]*packages.Package, error) { return Load(root) })

func loaded(t *testing.T) []*packages.Package {
	t.Helper()
	pkgs, err := load()
	if err != nil {
		t.Fatal(err)
	}
	return pkgs
}

func report(t *testing.T, found []string) {
	t.Helper()
	for _, f := range found {
		t.Error(f)
	}
}

// shipped names what users run. The harness below test may count what it makes
// in this process, and panic on a mistyped environment.
func shipped() []string {
	return []string{"core/...", "dataplane/...", "plugins/...", "bpf/...", "cmd/..."}
}

func TestWalls(t *testing.T) { report(t, CheckWalls(Walls(), list(t))) }

func TestPurePackages(t *testing.T) {
	pure := Select(loaded(t), PurePackages())
	if len(pure) == 0 {
		t.Fatal("no pure package was found")
	}
	found, _, err := Analyze(Pure(), pure)
	if err != nil {
		t.Fatal(err)
	}
	report(t, found)
}

func TestNoPackageHoldsState(t *testing.T) {
	found, _, err := Analyze(State(), Select(loaded(t), shipped()))
	if err != nil {
		t.Fatal(err)
	}
	report(t, found)
}

func TestNoPackageExits(t *testing.T) {
	var libraries []*packages.Package
	for _, p := range Select(loaded(t), shipped()) {
		if p.Name != "main" {
			libraries = append(libraries, p)
		}
	}
	found, _, err := Analyze(Exits(), libraries)
	if err != nil {
		t.Fatal(err)
	}
	report(t, found)
}

func TestMetricsAreDocumented(t *testing.T) {
	found, results, err := Analyze(Metrics(), Select(loaded(t), shipped()))
	if err != nil {
		t.Fatal(err)
	}
	report(t, found)
	names := map[string][]string{}
	for pkg, r := range results {
		names[pkg] = r.([]string)
	}
	document, err := os.ReadFile(filepath.Join(root, "docs/metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	report(t, CheckMetricDocs(names, string(document)))
}

func TestPackagesAreDocumented(t *testing.T) {
	found, err := CheckPackageDocs(list(t))
	if err != nil {
		t.Fatal(err)
	}
	report(t, found)
}

func TestNoTestSleeps(t *testing.T) {
	found, err := CheckSleeps(list(t))
	if err != nil {
		t.Fatal(err)
	}
	report(t, found)
}

// TestDocumentedCommandsExist tries every command line that a document shows
// against the help texts of the binary, and every make target against the
// Makefile.
func TestDocumentedCommandsExist(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	help := helpOfBinary(t)
	for _, file := range documents(t) {
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		for _, shown := range Commands(string(text), "fairlead", "make") {
			switch shown.Words[0] {
			case "fairlead":
				if err := CheckCommand(shown.Words, help); err != nil {
					t.Errorf("%s:%d: %v", file, shown.Line, err)
				}
			case "make":
				if bad := CheckMake(shown.Words, string(makefile)); bad != "" {
					t.Errorf("%s:%d: %s", file, shown.Line, bad)
				}
			}
		}
	}
}

// documents lists the Markdown files of the repository.
func documents(t *testing.T) []string {
	t.Helper()
	var files []string
	err := fs.WalkDir(os.DirFS(root), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "bin" || d.Name() == "dist") {
			return fs.SkipDir
		}
		if strings.HasSuffix(path, ".md") {
			files = append(files, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// helpOfBinary builds the command and returns what asks it for its help texts.
func helpOfBinary(t *testing.T) Help {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "fairlead")
	build := exec.Command("go", "build", "-o", binary, "./cmd/fairlead")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build ./cmd/fairlead: %v\n%s", err, out)
	}
	known := map[string]string{}
	return func(path ...string) (string, error) {
		key := strings.Join(path, " ")
		if text, ok := known[key]; ok {
			return text, nil
		}
		out, err := exec.Command(binary, append(path, "--help")...).CombinedOutput()
		if err != nil {
			return "", errors.Join(err, errors.New(string(bytes.TrimSpace(out))))
		}
		known[key] = string(out)
		return known[key], nil
	}
}

package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Package is what `go list -json` tells of one package of the module.
type Package struct {
	ImportPath   string
	Dir          string
	Module       struct{ Path string }
	TestGoFiles  []string
	XTestGoFiles []string
}

// Rel returns the import path without the module's, "." for its root.
func (p Package) Rel() string {
	if p.ImportPath == p.Module.Path {
		return "."
	}
	return strings.TrimPrefix(p.ImportPath, p.Module.Path+"/")
}

// HasTests reports whether go test would find a test file.
func (p Package) HasTests() bool {
	return len(p.TestGoFiles)+len(p.XTestGoFiles) > 0
}

// FuzzTargets lists the names of the fuzz targets in p, in file order. It reads
// the sources rather than asking `go test -list`, which would have to build
// every test binary once more.
func (p Package) FuzzTargets() ([]string, error) {
	var names []string
	for _, name := range append(append([]string(nil), p.TestGoFiles...), p.XTestGoFiles...) {
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, fmt.Errorf("run: fuzz targets of %s: %w", p.ImportPath, err)
		}
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Recv == nil && isFuzz(f) {
				names = append(names, f.Name.Name)
			}
		}
	}
	return names, nil
}

func isFuzz(f *ast.FuncDecl) bool {
	if !strings.HasPrefix(f.Name.Name, "Fuzz") || len(f.Type.Params.List) != 1 {
		return false
	}
	ptr, ok := f.Type.Params.List[0].Type.(*ast.StarExpr)
	if !ok {
		return false
	}
	sel, ok := ptr.X.(*ast.SelectorExpr)
	return ok && sel.Sel.Name == "F"
}

// ListPackages lists all packages of the module in dir.
func ListPackages(dir string) ([]Package, error) {
	cmd := exec.Command("go", "list", "-json=ImportPath,Dir,Module,TestGoFiles,XTestGoFiles", "./...")
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("run: go list ./...: %w\n%s", err, stderr.Bytes())
	}
	var all []Package
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p Package
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("run: output of go list: %w", err)
		}
		all = append(all, p)
	}
}

// ListNested lists the packages of the modules inside the one in dir, by the
// directory of each module. Their paths count as relative to the outer one.
func ListNested(dir, outer string) (map[string][]Package, error) {
	nested := map[string][]Package{}
	for _, tree := range []string{"test", "contrib"} {
		err := filepath.WalkDir(filepath.Join(dir, tree), func(path string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil {
				return err
			}
			if d.IsDir() && d.Name() == "testdata" {
				return fs.SkipDir
			}
			if d.Name() != "go.mod" {
				return nil
			}
			pkgs, err := ListPackages(filepath.Dir(path))
			for i := range pkgs {
				pkgs[i].Module.Path = outer
			}
			nested[filepath.Dir(path)] = pkgs
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("run: modules below %s: %w", tree, err)
		}
	}
	return nested, nil
}

// Group is a set of packages that one call of go test covers.
type Group struct {
	Name     string
	Packages []Package
	// Dir is where go test is started; empty means in the main module.
	Dir string
	// Args are given to go test before the packages.
	Args []string
}

// raceTrees are tested under the race detector: pure packages and drivers.
func raceTrees() []string { return []string{"core/...", "dataplane/...", "plugins/l7/internal/..."} }

// waitingTrees start processes and wait for them most of the time, so they run
// beside packages that compute. What they make is their own: sockets on free
// ports of loopback, directories, namespaces and cgroups of test/netns.
func waitingTrees() []string {
	return []string{
		"core/pluginhost", "dataplane/conformance/...", "dataplane/sdk",
		"plugins/ebpf", "plugins/ebpf/internal/datapath", "plugins/ebpf/internal/host", "plugins/ebpf/internal/reaper",
		"plugins/iptables", "plugins/iptables/internal/host", "plugins/l7",
	}
}

// aloneTrees time real processes and get the machine for themselves.
func aloneTrees() []string {
	return []string{"cmd/fairlead/internal/cli", "test/e2e/...", "test/netns/..."}
}

// Rows says what is tested when: computing and waiting at the same time, each
// group after the one before it, and then alone with nothing beside it.
type Rows struct{ Computing, Waiting, Alone []Group }

// Plan splits the packages of the main module into calls of go test. Without a
// C compiler there is no race detector: the packages are then tested without,
// and race says so. Within a group, what may take longest begins first.
func Plan(all []Package, race bool, budget func(Package) time.Duration) Rows {
	groups := map[string]*Group{}
	add := func(name string, p Package, args ...string) {
		if groups[name] == nil {
			groups[name] = &Group{Name: name, Args: args}
		}
		groups[name].Packages = append(groups[name].Packages, p)
	}
	detector, raceArgs := "race detector on", []string{"-race"}
	if !race {
		detector, raceArgs = "race detector off", nil
	}
	pure, drivers := "pure packages, "+detector, "drivers, "+detector
	const commands, planes, alone = "commands and checks", "data planes", "real processes, one package at a time"
	for _, p := range all {
		name := p.Rel()
		raced, waits := matchesAny(raceTrees(), name), matchesAny(waitingTrees(), name)
		switch {
		case matchesAny(aloneTrees(), name):
			add(alone, p, "-p=1", "-parallel=4") // what tests share in a package waits, mostly
		case raced && waits:
			add(drivers, p, raceArgs...)
		case waits:
			add(planes, p)
		case raced:
			add(pure, p, raceArgs...)
		default:
			add(commands, p)
		}
	}
	row := func(names ...string) []Group {
		var row []Group
		for _, name := range names {
			if g := groups[name]; g != nil {
				slices.SortStableFunc(g.Packages, func(a, b Package) int { return cmp.Compare(budget(b), budget(a)) })
				row = append(row, *g)
			}
		}
		return row
	}
	return Rows{Computing: row(pure, commands), Waiting: row(drivers, planes), Alone: row(alone)}
}

func matchesAny(patterns []string, pkg string) bool {
	for _, p := range patterns {
		if matches(p, pkg) {
			return true
		}
	}
	return false
}

// hasC reports whether the race detector can be linked: it needs cgo, and that
// a C compiler.
func hasC() bool {
	if os.Getenv("CGO_ENABLED") == "0" {
		return false
	}
	out, err := exec.Command("go", "env", "CC").Output()
	if err != nil {
		return false
	}
	cc := strings.Fields(string(out))
	if len(cc) == 0 {
		return false
	}
	_, err = exec.LookPath(cc[0])
	return err == nil
}

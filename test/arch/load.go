package arch

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/checker"
	"golang.org/x/tools/go/packages"
)

// List lists all packages of the module in dir.
func List(dir string) ([]Package, error) {
	cmd := exec.Command("go", "list", "-json=ImportPath,Name,Dir,Module,GoFiles,TestGoFiles,XTestGoFiles,Imports,TestImports,XTestImports", "./...")
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("arch: go list ./...: %w\n%s", err, stderr.Bytes())
	}
	var pkgs []Package
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p Package
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return pkgs, nil
		} else if err != nil {
			return nil, fmt.Errorf("arch: output of go list: %w", err)
		}
		pkgs = append(pkgs, p)
	}
}

// Load type-checks all packages of the module in dir, without their tests. One
// that does not compile is an error only to who analyzes it.
func Load(dir string) ([]*packages.Package, error) {
	pkgs, err := packages.Load(&packages.Config{
		Dir: dir,
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedImports |
			packages.NeedTypes | packages.NeedTypesSizes | packages.NeedSyntax | packages.NeedTypesInfo |
			packages.NeedExportFile | packages.NeedModule,
	}, "./...")
	if err != nil {
		return nil, fmt.Errorf("arch: %w", err)
	}
	return pkgs, nil
}

// Analyze runs one analyzer and returns its findings as "file:line:col: text",
// and its results by package path relative to the module.
func Analyze(a *analysis.Analyzer, pkgs []*packages.Package) (findings []string, results map[string]any, err error) {
	for _, p := range pkgs {
		for _, e := range p.Errors {
			return nil, nil, fmt.Errorf("arch: %s: %w", p.PkgPath, e)
		}
	}
	graph, err := checker.Analyze([]*analysis.Analyzer{a}, pkgs, nil)
	if err != nil {
		return nil, nil, fmt.Errorf("arch: %s: %w", a.Name, err)
	}
	results = map[string]any{}
	for _, action := range graph.Roots {
		if action.Err != nil {
			return nil, nil, fmt.Errorf("arch: %s of %s: %w", a.Name, action.Package.PkgPath, action.Err)
		}
		for _, d := range action.Diagnostics {
			findings = append(findings, fmt.Sprintf("%s: %s", action.Package.Fset.Position(d.Pos), d.Message))
		}
		results[relative(action.Package.Module.Path, action.Package.PkgPath)] = action.Result
	}
	return findings, results, nil
}

// Select keeps the packages that match one of the patterns.
func Select(pkgs []*packages.Package, patterns []string) []*packages.Package {
	return slices.DeleteFunc(slices.Clone(pkgs), func(p *packages.Package) bool {
		return !matchesAny(patterns, relative(p.Module.Path, p.PkgPath))
	})
}

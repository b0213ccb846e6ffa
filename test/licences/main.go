// Command licences checks the licence of every module that is linked into a
// binary of this repository. `make lint` calls it:
//
//	go run ./test/licences [-C DIR] [PACKAGES]
//
// PACKAGES defaults to ./cmd/... A module passes when it has a licence file in
// its root and each licence file on the way from its root to a package in use
// holds nothing but allowed licences: Apache-2.0, MIT, BSD-2-Clause,
// BSD-3-Clause, MPL-2.0, ISC.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("licences", flag.ContinueOnError)
	dir := flags.String("C", ".", "directory of the module")
	if err := flags.Parse(args); err != nil {
		return err
	}
	patterns := flags.Args()
	if len(patterns) == 0 {
		patterns = []string{"./cmd/..."}
	}
	modules, err := List(*dir, patterns)
	if err != nil {
		return err
	}
	bad := 0
	for _, m := range modules {
		names, err := m.Check()
		if err != nil {
			bad++
			fmt.Fprintf(out, "BAD  %v\n", err)
			continue
		}
		fmt.Fprintf(out, "ok   %-44s %-12s %s\n", m.Path, m.Version, strings.Join(names, " AND "))
	}
	if bad > 0 {
		return fmt.Errorf("licences: %d of %d modules cannot be shipped", bad, len(modules))
	}
	return nil
}

// Module is one module that the binaries link.
type Module struct {
	Path, Version, Dir string
	// Packages are the directories in use, Dir or below.
	Packages []string
}

// List finds the modules behind the packages that patterns name, except the main
// module and the standard library, sorted by path.
func List(dir string, patterns []string) ([]Module, error) {
	cmd := exec.Command("go", append([]string{"list", "-deps", "-json=Dir,Module"}, patterns...)...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("licences: go list -deps %s: %w\n%s", strings.Join(patterns, " "), err, stderr.Bytes())
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("licences: no package matches %s\n%s", strings.Join(patterns, " "), stderr.Bytes())
	}
	found := map[string]*Module{}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			Dir    string
			Module *struct {
				Path, Version, Dir string
				Main               bool
			}
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("licences: output of go list: %w", err)
		}
		if p.Module == nil || p.Module.Main {
			continue
		}
		m := found[p.Module.Path]
		if m == nil {
			m = &Module{Path: p.Module.Path, Version: p.Module.Version, Dir: p.Module.Dir}
			found[m.Path] = m
		}
		m.Packages = append(m.Packages, p.Dir)
	}
	modules := make([]Module, 0, len(found))
	for _, m := range found {
		modules = append(modules, *m)
	}
	slices.SortFunc(modules, func(a, b Module) int { return strings.Compare(a.Path, b.Path) })
	return modules, nil
}

// Check names the licences of m, or says which file is in the way.
func (m Module) Check() ([]string, error) {
	dirs := map[string]bool{m.Dir: true}
	for _, d := range m.Packages {
		for ; len(d) > len(m.Dir); d = filepath.Dir(d) {
			dirs[d] = true
		}
	}
	var names []string
	for d := range dirs {
		files, err := licenceFiles(d)
		if err != nil {
			return nil, fmt.Errorf("licences: %s: %w", m.Path, err)
		}
		if d == m.Dir && len(files) == 0 {
			return nil, fmt.Errorf("licences: %s %s has no LICENSE file", m.Path, m.Version)
		}
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				return nil, fmt.Errorf("licences: %s: %w", m.Path, err)
			}
			in := Classify(string(text))
			if len(in) == 0 {
				return nil, fmt.Errorf("licences: %s %s: unknown licence in %s", m.Path, m.Version, f)
			}
			for _, name := range in {
				if !Allowed(name) {
					return nil, fmt.Errorf("licences: %s %s: licence %s is not allowed (%s)", m.Path, m.Version, name, f)
				}
			}
			names = append(names, in...)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// licenceFiles lists what is named like a licence in one directory. Source files
// such as license.go are none.
func licenceFiles(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var files []string
	for _, e := range entries {
		name := strings.ToLower(e.Name())
		if e.IsDir() || strings.HasSuffix(name, ".go") {
			continue
		}
		for _, prefix := range []string{"license", "licence", "copying", "unlicense"} {
			if strings.HasPrefix(name, prefix) {
				files = append(files, filepath.Join(dir, e.Name()))
				break
			}
		}
	}
	return files, nil
}

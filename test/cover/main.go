// Command cover holds the tests of each package to a floor: `make cover` feeds it
// the profile that go test -coverprofile wrote.
//
//	go run ./test/cover [-floor 80] [-C DIR] PROFILE
//
// It prints the share of statements that ran, package by package, and fails if
// one is below the floor. Commands (package main) and generated files do not
// count: the first are tried by starting them, the second are not ours.
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
	"path"
	"path/filepath"
	"regexp"
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
	flags := flag.NewFlagSet("cover", flag.ContinueOnError)
	dir := flags.String("C", ".", "directory of the module")
	floor := flags.Float64("floor", 80, "smallest share of statements, in percent")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 1 {
		return fmt.Errorf("cover: %d arguments, want one: the file that go test -coverprofile wrote", flags.NArg())
	}
	f, err := os.Open(flags.Arg(0))
	if err != nil {
		return fmt.Errorf("cover: %w", err)
	}
	defer f.Close()
	blocks, err := ParseProfile(f)
	if err != nil {
		return fmt.Errorf("%w (in %s)", err, flags.Arg(0))
	}
	pkgs, err := listPackages(*dir)
	if err != nil {
		return err
	}
	shares := Shares(blocks, func(file string) bool {
		p, ok := pkgs[path.Dir(file)]
		return ok && p.Name != "main" && !generated(filepath.Join(p.Dir, path.Base(file)))
	})
	if len(shares) == 0 {
		return errors.New("cover: the profile covers no package that counts")
	}
	var low []string
	for _, s := range shares {
		verdict := "ok  "
		if s.Percent() < *floor {
			verdict = "LOW "
			low = append(low, s.Package)
		}
		fmt.Fprintf(out, "%s %5.1f %%  %4d statements  %s\n", verdict, s.Percent(), s.Total, s.Package)
	}
	if len(low) > 0 {
		return fmt.Errorf("cover: below %g %%: %s", *floor, strings.Join(low, ", "))
	}
	return nil
}

// goPackage is what go list tells of one package.
type goPackage struct{ ImportPath, Name, Dir string }

func listPackages(dir string) (map[string]goPackage, error) {
	cmd := exec.Command("go", "list", "-json=ImportPath,Name,Dir", "./...")
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("cover: go list ./...: %w\n%s", err, stderr.Bytes())
	}
	pkgs := map[string]goPackage{}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p goPackage
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return pkgs, nil
		} else if err != nil {
			return nil, fmt.Errorf("cover: output of go list: %w", err)
		}
		pkgs[p.ImportPath] = p
	}
}

// generated reports whether a file carries Go's marker of generated code. One
// that cannot be read counts as written by hand.
func generated(file string) bool {
	text, err := os.ReadFile(file)
	if err != nil {
		return false
	}
	return regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`).Match(text)
}

// Share is how much of one package ran.
type Share struct {
	Package        string
	Covered, Total int // statements
}

// Percent is the covered share, 100 for a package without statements.
func (s Share) Percent() float64 {
	if s.Total == 0 {
		return 100
	}
	return 100 * float64(s.Covered) / float64(s.Total)
}

// Shares sums blocks by package, sorted by name, over the files that count.
func Shares(blocks map[Block]bool, counts func(file string) bool) []Share {
	byPackage := map[string]*Share{}
	decided := map[string]bool{}
	for b, covered := range blocks {
		use, ok := decided[b.File]
		if !ok {
			use = counts(b.File)
			decided[b.File] = use
		}
		if !use {
			continue
		}
		name := path.Dir(b.File)
		s := byPackage[name]
		if s == nil {
			s = &Share{Package: name}
			byPackage[name] = s
		}
		s.Total += b.Statements
		if covered {
			s.Covered += b.Statements
		}
	}
	shares := make([]Share, 0, len(byPackage))
	for _, s := range byPackage {
		shares = append(shares, *s)
	}
	slices.SortFunc(shares, func(a, b Share) int { return strings.Compare(a.Package, b.Package) })
	return shares
}

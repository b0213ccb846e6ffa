package arch

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// CheckPackageDocs reports packages whose files do not say what the package is:
// a comment above the package clause that begins with "Package NAME", or with
// "Command NAME" for a main, NAME being its folder.
func CheckPackageDocs(pkgs []Package) ([]string, error) {
	var found []string
	for _, p := range pkgs {
		want := "Package " + p.Name
		if p.Name == "main" {
			want = "Command " + path.Base(p.ImportPath)
		}
		files := p.GoFiles
		if len(files) == 0 {
			files = slices.Concat(p.TestGoFiles, p.XTestGoFiles)
		}
		documented := false
		for _, name := range files {
			file, err := parse(p.Dir, name, parser.PackageClauseOnly)
			if err != nil {
				return nil, err
			}
			documented = documented || strings.HasPrefix(file.Doc.Text(), want)
		}
		if !documented {
			found = append(found, fmt.Sprintf("%s has no comment `// %s …` above a package clause", p.Rel(), want))
		}
	}
	return found, nil
}

// CheckSleeps reports each time.Sleep in a test: a test waits for a condition,
// or lives in a testing/synctest bubble, where sleeping takes no time and ends
// when it should. The import of testing/synctest excuses a file.
func CheckSleeps(pkgs []Package) ([]string, error) {
	var found []string
	for _, p := range pkgs {
		for _, name := range slices.Concat(p.TestGoFiles, p.XTestGoFiles) {
			file, err := parse(p.Dir, name, parser.SkipObjectResolution)
			if err != nil {
				return nil, err
			}
			if slices.ContainsFunc(file.Imports, func(i *ast.ImportSpec) bool { return i.Path.Value == `"testing/synctest"` }) {
				continue
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if sel, ok := n.(*ast.SelectorExpr); ok && sel.Sel.Name == "Sleep" {
					if id, ok := sel.X.(*ast.Ident); ok && id.Name == "time" {
						found = append(found, fmt.Sprintf("%s/%s sleeps: wait for a condition instead", p.Rel(), name))
					}
				}
				return true
			})
		}
	}
	return found, nil
}

func parse(dir, name string, mode parser.Mode) (*ast.File, error) {
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, name), nil, mode|parser.ParseComments)
	if err != nil {
		return nil, fmt.Errorf("arch: %w", err)
	}
	return file, nil
}

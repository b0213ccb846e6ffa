package arch

import (
	"go/ast"
	"go/types"
	"strings"

	"golang.org/x/tools/go/analysis"
)

// Pure returns the analyzer of pure packages: no goroutine, no clock, no global
// random source. What they must not import is a matter of Walls.
func Pure() *analysis.Analyzer {
	return &analysis.Analyzer{
		Name: "pure",
		Doc:  "report goroutines, clocks and global random sources in pure packages",
		Run:  runPure,
	}
}

func runPure(pass *analysis.Pass) (any, error) {
	for _, file := range pass.Files {
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				pass.Reportf(n.Pos(), "a pure package starts no goroutine")
			case *ast.SelectorExpr:
				if why := impure(pass.TypesInfo.Uses[n.Sel]); why != "" {
					pass.Reportf(n.Pos(), "%s in a pure package: %s", types.ExprString(n), why)
				}
			}
			return true
		})
	}
	return nil, nil
}

// impure says what is wrong with using obj, or "".
func impure(obj types.Object) string {
	f, ok := obj.(*types.Func)
	if !ok || f.Pkg() == nil || f.Signature().Recv() != nil {
		return ""
	}
	switch f.Pkg().Path() {
	case "time":
		switch f.Name() {
		case "Now", "Since", "Until":
			return "the time is an argument"
		case "Sleep", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick":
			return "it says when it is due and is called then"
		}
	case "math/rand", "math/rand/v2":
		if !strings.HasPrefix(f.Name(), "New") {
			return "the random source is an argument"
		}
	}
	return ""
}

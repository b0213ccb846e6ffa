package arch

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"

	"golang.org/x/tools/go/analysis"
)

// State returns the analyzer that keeps packages free of state: no init
// function, and package variables that are constants in all but name. Allowed
// are errors, interface guards (var _ I = T{}), compiled patterns, functions and
// tables that nothing writes to.
func State() *analysis.Analyzer {
	return &analysis.Analyzer{
		Name: "state",
		Doc:  "report init functions and package variables that can change",
		Run:  runState,
	}
}

func runState(pass *analysis.Pass) (any, error) {
	for _, file := range pass.Files {
		if ast.IsGenerated(file) {
			continue
		}
		for _, decl := range file.Decls {
			switch decl := decl.(type) {
			case *ast.FuncDecl:
				if decl.Recv == nil && decl.Name.Name == "init" {
					pass.Reportf(decl.Pos(), "init function: what must be set up is set up by a constructor")
				}
			case *ast.GenDecl:
				if decl.Tok == token.VAR {
					checkDeclared(pass, decl)
				}
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			checkWrites(pass, n)
			return true
		})
	}
	return nil, nil
}

// checkDeclared reports variables whose type cannot stay as it is.
func checkDeclared(pass *analysis.Pass, decl *ast.GenDecl) {
	for _, spec := range decl.Specs {
		for _, name := range spec.(*ast.ValueSpec).Names {
			if name.Name == "_" {
				continue
			}
			obj := pass.TypesInfo.Defs[name]
			if why := changeable(obj.Type(), pass.Pkg, true, map[types.Type]bool{}); why != "" {
				pass.Reportf(name.Pos(), "package variable %s %s: make it a field of what uses it", name.Name, why)
			}
		}
	}
}

// changeable says why a variable of type t is state, or "". What t holds of other
// packages is trusted, except for known containers of state. At the top an
// interface may hide anything; within a table it is part of the entry.
func changeable(t types.Type, own *types.Package, top bool, seen map[types.Type]bool) string {
	if seen[t] {
		return ""
	}
	seen[t] = true
	if types.Implements(t, errorInterface()) {
		return ""
	}
	if named, ok := types.Unalias(t).(*types.Named); ok {
		name := typeName(named)
		switch named.Obj().Pkg() {
		case nil, own:
		default:
			if holdsState(name) {
				return "is a " + name
			}
			if _, isInterface := t.Underlying().(*types.Interface); !isInterface {
				return ""
			}
		}
	}
	switch u := t.Underlying().(type) {
	case *types.Chan:
		return "is a channel"
	case *types.Interface:
		if top {
			return "is an interface that may hold state"
		}
	case *types.Pointer:
		if named, ok := types.Unalias(u.Elem()).(*types.Named); ok && constantPointee(typeName(named)) {
			return ""
		}
		return "is a pointer"
	case *types.Slice:
		return changeable(u.Elem(), own, false, seen)
	case *types.Array:
		return changeable(u.Elem(), own, false, seen)
	case *types.Map:
		return changeable(u.Elem(), own, false, seen)
	case *types.Struct:
		for field := range u.Fields() {
			if why := changeable(field.Type(), own, false, seen); why != "" {
				return fmt.Sprintf("has a field %s that %s", field.Name(), why)
			}
		}
	}
	return ""
}

func errorInterface() *types.Interface {
	return types.Universe.Lookup("error").Type().Underlying().(*types.Interface)
}

func typeName(n *types.Named) string {
	if n.Obj().Pkg() == nil {
		return n.Obj().Name()
	}
	return n.Obj().Pkg().Path() + "." + n.Obj().Name()
}

// holdsState knows types of other packages that exist in order to change.
func holdsState(name string) bool {
	switch name {
	case "sync.Mutex", "sync.RWMutex", "sync.Once", "sync.WaitGroup", "sync.Map", "sync.Pool", "sync.Cond",
		"sync/atomic.Bool", "sync/atomic.Int32", "sync/atomic.Int64", "sync/atomic.Uint32", "sync/atomic.Uint64",
		"sync/atomic.Uintptr", "sync/atomic.Value", "sync/atomic.Pointer",
		"bytes.Buffer", "strings.Builder", "math/rand.Rand", "math/rand/v2.Rand", "math/rand/v2.PCG", "math/rand/v2.ChaCha8":
		return true
	}
	return false
}

// constantPointee knows types that are made by a constructor, handed around by
// pointer and never change.
func constantPointee(name string) bool {
	switch name {
	case "regexp.Regexp", "strings.Replacer", "time.Location", "text/template.Template", "html/template.Template",
		"hash/crc32.Table", "hash/crc64.Table", "encoding/base32.Encoding", "encoding/base64.Encoding",
		"github.com/prometheus/client_golang/prometheus.Desc":
		return true
	}
	return false
}

// checkWrites reports what may change a package variable: an assignment to it or
// to a part of it, a builtin that writes, and taking its address.
func checkWrites(pass *analysis.Pass, n ast.Node) {
	report := func(e ast.Expr, what string) {
		if v := packageVar(pass.TypesInfo, e); v != nil {
			pass.Reportf(e.Pos(), "%s package variable %s: make it a field of what uses it", what, v.Name())
		}
	}
	switch n := n.(type) {
	case *ast.AssignStmt:
		if n.Tok != token.DEFINE {
			for _, e := range n.Lhs {
				report(e, "assignment to")
			}
		}
	case *ast.IncDecStmt:
		report(n.X, "assignment to")
	case *ast.RangeStmt:
		if n.Tok == token.ASSIGN {
			report(n.Key, "assignment to")
			if n.Value != nil {
				report(n.Value, "assignment to")
			}
		}
	case *ast.UnaryExpr:
		if n.Op == token.AND {
			report(n.X, "address of")
		}
	case *ast.CallExpr:
		if id, ok := ast.Unparen(n.Fun).(*ast.Ident); ok && len(n.Args) > 0 {
			if b, ok := pass.TypesInfo.Uses[id].(*types.Builtin); ok {
				switch b.Name() {
				case "delete", "clear", "copy":
					report(n.Args[0], b.Name()+" on")
				}
			}
		}
	case *ast.SelectorExpr:
		// x.Method() with a pointer receiver takes the address of x.
		s, ok := pass.TypesInfo.Selections[n]
		if !ok || s.Kind() != types.MethodVal {
			return
		}
		_, pointerReceiver := s.Obj().(*types.Func).Signature().Recv().Type().(*types.Pointer)
		_, pointer := s.Recv().Underlying().(*types.Pointer)
		if pointerReceiver && !pointer {
			report(n.X, "method "+n.Sel.Name+" may change")
		}
	}
}

// packageVar finds the package variable that e is, or is a part of; nil if none.
func packageVar(info *types.Info, e ast.Expr) *types.Var {
	for {
		switch x := ast.Unparen(e).(type) {
		case *ast.Ident:
			return asPackageVar(info.Uses[x])
		case *ast.SelectorExpr:
			if id, ok := x.X.(*ast.Ident); ok {
				if _, qualified := info.Uses[id].(*types.PkgName); qualified {
					return asPackageVar(info.Uses[x.Sel])
				}
			}
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.SliceExpr:
			e = x.X
		case *ast.StarExpr:
			e = x.X
		default:
			return nil
		}
	}
}

func asPackageVar(obj types.Object) *types.Var {
	v, ok := obj.(*types.Var)
	if !ok || v.Pkg() == nil || v.Parent() != v.Pkg().Scope() {
		return nil
	}
	return v
}

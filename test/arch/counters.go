package arch

import (
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/tools/go/analysis"
)

const prometheusPath = "github.com/prometheus/client_golang/prometheus"

// Metrics returns the analyzer that keeps the metrics of a package in its file
// metrics.go, with their full names as constants there, so that the table can be
// read and a name from a dashboard be found with grep. Its result is those names
// ([]string).
func Metrics() *analysis.Analyzer {
	return &analysis.Analyzer{
		Name:       "metrics",
		Doc:        "report metrics that are declared outside of metrics.go or under a name that cannot be found",
		Run:        runMetrics,
		ResultType: reflect.TypeFor[[]string](),
	}
}

func runMetrics(pass *analysis.Pass) (any, error) {
	var names []string
	for _, file := range pass.Files {
		table := filepath.Base(pass.Fset.Position(file.Pos()).Filename) == "metrics.go"
		var declared token.Pos
		found := 0
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.Ident:
				if makesMetric(pass.TypesInfo.Uses[n]) {
					declared = n.Pos()
					if !table {
						pass.Reportf(n.Pos(), "%s outside of metrics.go: declare the metrics of a package there", n.Name)
					}
				}
			case *ast.KeyValueExpr:
				if id, ok := n.Key.(*ast.Ident); ok && table && isPrefix(pass.TypesInfo.Uses[id]) {
					pass.Reportf(n.Pos(), "%s in metrics.go: write names in full, so that a search finds them", id.Name)
				}
			case *ast.BasicLit:
				name, ok := literal(pass.TypesInfo, n)
				if !table || !ok || !strings.HasPrefix(name, "fairlead_") {
					return true
				}
				if !metricName().MatchString(name) {
					pass.Reportf(n.Pos(), "metric %q: names are words of a-z and 0-9 joined by single underscores", name)
				}
				names = append(names, name)
				found++
			}
			return true
		})
		if table && declared.IsValid() && found == 0 {
			pass.Reportf(declared, "metrics.go declares a metric, but holds no name that begins with fairlead_")
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

func metricName() *regexp.Regexp { return regexp.MustCompile(`^fairlead(_[a-z0-9]+)+$`) }

// makesMetric recognises the constructors of prometheus: NewCounterVec,
// NewGaugeFunc, NewDesc and their like.
func makesMetric(obj types.Object) bool {
	f, ok := obj.(*types.Func)
	if !ok || f.Pkg() == nil || f.Pkg().Path() != prometheusPath || f.Signature().Recv() != nil {
		return false
	}
	// NewConstMetric is none of them: it sends a value for what NewDesc declared.
	return slices.ContainsFunc(
		[]string{"NewCounter", "NewGauge", "NewHistogram", "NewSummary", "NewUntyped", "NewDesc", "BuildFQName"},
		func(kind string) bool { return strings.HasPrefix(f.Name(), kind) },
	)
}

// isPrefix recognises the fields of prometheus.Opts that make up a name.
func isPrefix(obj types.Object) bool {
	v, ok := obj.(*types.Var)
	return ok && v.IsField() && v.Pkg() != nil && v.Pkg().Path() == prometheusPath &&
		(v.Name() == "Namespace" || v.Name() == "Subsystem")
}

func literal(info *types.Info, lit *ast.BasicLit) (string, bool) {
	v := info.Types[lit].Value
	if v == nil || v.Kind() != constant.String {
		return "", false
	}
	return constant.StringVal(v), true
}

// CheckMetricDocs compares the names in the code, by package, with those that a
// document shows in backticks: both must have the same.
func CheckMetricDocs(names map[string][]string, document string) []string {
	var found []string
	documented := map[string]bool{}
	for _, m := range regexp.MustCompile("`(fairlead_[a-z0-9_]+)").FindAllStringSubmatch(document, -1) {
		documented[m[1]] = true
	}
	declared := map[string]string{}
	for pkg, list := range names {
		for _, name := range list {
			if other, twice := declared[name]; twice {
				found = append(found, "metric "+name+" is declared in "+min(pkg, other)+" and in "+max(pkg, other))
			}
			declared[name] = pkg
			if !documented[name] {
				found = append(found, "metric "+name+" of "+pkg+" is not in docs/metrics.md")
			}
		}
	}
	for name := range documented {
		if declared[name] == "" {
			found = append(found, "docs/metrics.md explains "+name+", which no package declares")
		}
	}
	slices.Sort(found)
	return found
}

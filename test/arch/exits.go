package arch

import (
	"go/ast"
	"go/types"
	"strings"

	"golang.org/x/tools/go/analysis"
)

// Exits returns the analyzer of all packages but commands and tests: no panic,
// no end of the process, no logger, registry or mux that the whole process
// shares. A caller decides on its own whether an error is fatal and where logs
// and metrics go.
func Exits() *analysis.Analyzer {
	return &analysis.Analyzer{
		Name: "exits",
		Doc:  "report panics, process exits and process-wide loggers and registries",
		Run:  runExits,
	}
}

func runExits(pass *analysis.Pass) (any, error) {
	for _, file := range pass.Files {
		if ast.IsGenerated(file) {
			continue
		}
		ast.Inspect(file, func(n ast.Node) bool {
			id, ok := n.(*ast.Ident)
			if !ok {
				return true
			}
			if why := exits(pass.TypesInfo.Uses[id]); why != "" {
				pass.Reportf(id.Pos(), "%s outside of a command: %s", id.Name, why)
			}
			return true
		})
	}
	return nil, nil
}

// exits says what is wrong with using obj, or "".
func exits(obj types.Object) string {
	const (
		end      = "return an error, the caller decides what is fatal"
		logger   = "log to the *slog.Logger that was handed in"
		registry = "register with the prometheus.Registerer that was handed in"
		mux      = "serve from a mux of your own"
	)
	if b, ok := obj.(*types.Builtin); ok && b.Name() == "panic" {
		return end
	}
	if obj == nil || obj.Pkg() == nil || obj.Parent() != obj.Pkg().Scope() {
		return "" // methods, fields and locals
	}
	if _, isType := obj.(*types.TypeName); isType {
		return ""
	}
	name := obj.Name()
	switch obj.Pkg().Path() {
	case "os":
		if name == "Exit" {
			return end
		}
	case "log":
		if strings.HasPrefix(name, "Fatal") || strings.HasPrefix(name, "Panic") {
			return end
		}
		if strings.HasPrefix(name, "Print") || strings.HasPrefix(name, "Set") || name == "Default" {
			return logger
		}
	case "log/slog":
		switch strings.TrimSuffix(name, "Context") {
		case "Default", "SetDefault", "SetLogLoggerLevel", "Debug", "Info", "Warn", "Error", "Log", "LogAttrs", "With":
			return logger
		}
	case "github.com/prometheus/client_golang/prometheus":
		switch name {
		case "DefaultRegisterer", "DefaultGatherer", "MustRegister", "Register", "Unregister":
			return registry
		}
	case "github.com/prometheus/client_golang/prometheus/promauto":
		return registry
	case "net/http":
		switch name {
		case "DefaultServeMux", "Handle", "HandleFunc":
			return mux
		}
	}
	return ""
}

package arch

import (
	"fmt"
	"slices"
	"strings"
)

// Package is what `go list -json` tells of one package, as far as walls care.
type Package struct {
	ImportPath   string
	Name         string
	Dir          string
	Module       struct{ Path string }
	GoFiles      []string
	TestGoFiles  []string
	XTestGoFiles []string
	Imports      []string
	TestImports  []string
	XTestImports []string
}

// Rel returns the import path relative to the module.
func (p Package) Rel() string { return relative(p.Module.Path, p.ImportPath) }

// relative leaves the module's path off its own packages; all others keep their
// import path. The two cannot be mixed up: no folder here is named like one of
// the standard library, and other modules begin with a host name.
func relative(module, path string) string {
	return strings.TrimPrefix(path, module+"/")
}

// Wall says what the packages on one side of it must not import. Patterns are
// paths relative to the module, or import paths of others; one that ends in
// "/..." names a tree with its root.
type Wall struct {
	// Packages are behind the wall, except those that Except names.
	Packages, Except []string
	// Deny lists what they must not import, Only (if not nil) all they may
	// import of this module. What Allow names passes the wall in any case.
	Deny, Only, Allow []string
	// Tests makes the wall hold for test files too. They may then still use the
	// harness, test/await, test/callers, test/port, test/scale, test/short, test/netns,
	// test/runnable and test/transcript.
	Tests bool
	// Why is printed with each finding.
	Why string
}

// PurePackages are values: no sockets, files, clock, randomness or concurrency
// of their own.
func PurePackages() []string {
	return []string{
		"core/model/...", "core/swim/...", "core/record/...", "core/store/...", "core/floating/...",
		"core/policy/...", "core/view/...", "core/dns/zone/...", "core/control/voters/...",
	}
}

// Walls lists the walls of this repository.
func Walls() []Wall {
	return []Wall{
		{
			Packages: PurePackages(),
			Deny: []string{
				"net/...", "os/...", "syscall", "golang.org/x/sys/...", "google.golang.org/grpc/...",
				"log/...", "sync/...", "crypto/rand", "github.com/prometheus/...",
			},
			Allow: []string{"net/netip"},
			Why:   "it is pure: sockets, files, locks, logs and random bytes belong to the driver around it",
		},
		{
			Packages: PurePackages(),
			Only:     PurePackages(),
			Why:      "it is pure, so it stands on pure packages only",
		},
		{
			Packages: []string{"core/model/..."},
			Only:     []string{"core/model/..."},
			Why:      "model is the ground that all others stand on",
		},
		{
			Packages: []string{"core/swim/wire/..."},
			Only:     []string{"core/model/...", "core/swim/wire/..."},
			Why:      "the codec knows values, not the protocol",
		},
		{
			Packages: []string{"core/..."},
			Deny:     []string{"plugins/...", "bpf/..."},
			Why:      "data planes are separate processes, reached through the contract in dataplane",
		},
		{
			Packages: []string{"core/..."},
			Except:   []string{"core/agent/..."},
			Deny:     []string{"core/agent/..."},
			Why:      "agent wires the others together and is known to commands only",
		},
		{
			Packages: []string{"core/config/..."},
			Deny:     []string{"core/membership/...", "core/api/..."},
			Why:      "configuration is values; agent hands them to those who need them",
		},
		{
			Packages: []string{"core/membership/..."},
			Deny:     []string{"core/config/...", "core/api/..."},
			Why:      "membership is a library with a Config of its own",
		},
		{
			Packages: []string{"core/api/..."},
			Deny:     []string{"core/config/...", "core/membership/...", "core/swim/..."},
			Why:      "api declares the roles it needs; agent hands in what plays them",
		},
		{
			Packages: []string{"dataplane/..."},
			Only:     []string{"dataplane/..."},
			Tests:    true,
			Why:      "strangers build plugins on dataplane alone",
		},
		{
			Packages: []string{"plugins/..."},
			Except:   []string{"plugins/ebpf/..."},
			Only:     []string{"dataplane/...", "plugins/..."},
			Tests:    true,
			Why:      "our plugins use what strangers get",
		},
		{
			Packages: []string{"plugins/ebpf/..."},
			Only:     []string{"dataplane/...", "plugins/ebpf/...", "bpf/..."},
			Tests:    true,
			Why:      "our plugins use what strangers get",
		},
		{
			Packages: []string{"cmd/fairlead-..."},
			Only:     []string{"dataplane/sdk/...", "plugins/...", "cmd/..."},
			Why:      "a plugin's main is ten lines",
		},
		{
			Packages: []string{"..."},
			Except:   []string{"test/...", "dataplane/conformance/..."},
			Deny:     []string{"test/...", "testing/..."},
			Why:      "nothing that is shipped depends on the tests",
		},
		{
			Packages: []string{"..."},
			Except:   []string{"cmd/...", "contrib/..."},
			Deny:     []string{"cmd/...", "contrib/..."},
			Why:      "commands and contributions are leaves",
		},
	}
}

// CheckWalls reports each import that crosses a wall.
func CheckWalls(walls []Wall, pkgs []Package) []string {
	var found []string
	for _, p := range pkgs {
		for _, w := range walls {
			if !matchesAny(w.Packages, p.Rel()) || matchesAny(w.Except, p.Rel()) {
				continue
			}
			for _, path := range p.Imports {
				if w.crossedBy(p.Module.Path, path) {
					found = append(found, fmt.Sprintf("%s imports %s: %s", p.Rel(), relative(p.Module.Path, path), w.Why))
				}
			}
			if !w.Tests {
				continue
			}
			for _, path := range slices.Concat(p.TestImports, p.XTestImports) {
				if !matchesAny([]string{"test/await", "test/callers", "test/port", "test/scale", "test/short", "test/netns", "test/runnable", "test/transcript"}, relative(p.Module.Path, path)) && w.crossedBy(p.Module.Path, path) {
					found = append(found, fmt.Sprintf("a test of %s imports %s: %s", p.Rel(), relative(p.Module.Path, path), w.Why))
				}
			}
		}
	}
	return found
}

func (w Wall) crossedBy(module, path string) bool {
	rel := relative(module, path)
	if matchesAny(w.Allow, rel) {
		return false
	}
	if matchesAny(w.Deny, rel) {
		return true
	}
	own := rel != path
	return own && w.Only != nil && !matchesAny(w.Only, rel)
}

func matchesAny(patterns []string, path string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return matches(p, path) })
}

// matches reports whether the pattern names path: "a/..." names a and all below,
// "a-..." whatever begins with "a-".
func matches(pattern, path string) bool {
	prefix, ok := strings.CutSuffix(pattern, "...")
	if !ok {
		return pattern == path
	}
	return strings.HasPrefix(path+"/", prefix)
}

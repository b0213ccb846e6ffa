// Package scaffold renders the first version of a data plane in Go: a module of
// its own that builds, keeps the contract, and is meant to be changed.
//
// [Render] is pure: a [Plan] in, files out. [Write] puts them into a directory
// and never replaces anything.
package scaffold

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"text/template"
)

// The errors that Validate and Write wrap.
var (
	ErrBadPlan    = errors.New("scaffold")
	ErrBadVersion = fmt.Errorf("%w: version", ErrBadPlan)
	ErrExists     = errors.New("scaffold: nothing was written")
)

// templates holds one file each of what Render returns, under its name with
// .tmpl behind it.
//
//go:embed templates/*.tmpl
var templates embed.FS

// Plan is what the files depend on.
type Plan struct {
	Name   string // of the data plane: [a-z][a-z0-9-]{0,31}
	Module string // path of the new Go module

	// Exactly one of these says where the module github.com/fairlead/fairlead
	// comes from: a version of it, or the absolute path of a clone.
	Version string
	Clone   string
}

// File is one file of the new module.
type File struct {
	Name string // relative to its directory, without a slash
	Text []byte
}

// Program is the name of the executable, by which agents find it.
func (p Plan) Program() string { return "fairlead-dataplane-" + p.Name }

// Variable is the name of the environment variable that moves its directory.
func (p Plan) Variable() string {
	return strings.ToUpper(strings.ReplaceAll(p.Name, "-", "_")) + "_DIR"
}

// Requirement is the version in the require line; with a clone any will do.
func (p Plan) Requirement() string {
	if p.Clone != "" {
		return "v0.0.0"
	}
	return p.Version
}

// The forms of a name, of an element of a module path, and of a version. They are
// narrower than Go's: what passes here needs no quotes anywhere.
const (
	nameForm    = `^[a-z][a-z0-9-]{0,31}$`
	elementForm = `^[A-Za-z0-9_][A-Za-z0-9._~-]*$`
	versionForm = `^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$`
)

// Validate says the first thing that is wrong with the plan, wrapped in
// ErrBadPlan; ErrBadVersion, the last, is one too.
func (p Plan) Validate() error {
	switch {
	case !matches(nameForm, p.Name):
		return fmt.Errorf("%w: name %q: want a small letter, then up to 31 small letters, digits and hyphens, such as my-plane", ErrBadPlan, p.Name)
	case slices.Contains(reserved(), p.Name):
		return fmt.Errorf("%w: name %q means something else in FAIRLEAD_DATAPLANE or is a data plane of Fairlead's own: take another", ErrBadPlan, p.Name)
	case !goodModule(p.Module):
		return fmt.Errorf("%w: module %q: want a path such as example.com/me/%s", ErrBadPlan, p.Module, p.Program())
	case (p.Version == "") == (p.Clone == ""):
		return fmt.Errorf("%w: want either a version of Fairlead or a clone", ErrBadPlan)
	case p.Clone != "" && (!path.IsAbs(p.Clone) || strings.ContainsAny(p.Clone, "\n\r\"`")):
		return fmt.Errorf("%w: clone %q: want an absolute path without quotes", ErrBadPlan, p.Clone)
	case p.Version != "" && !matches(versionForm, p.Version):
		return fmt.Errorf("%w %q: want one of a Go module, such as v1.2.3", ErrBadVersion, p.Version)
	}
	return nil
}

func matches(form, text string) bool { return regexp.MustCompile(form).MatchString(text) }

// reserved are names that a new data plane would be mistaken under.
func reserved() []string { return []string{"auto", "off", "ebpf", "iptables", "nftables", "l7"} }

// goodModule wants elements that the Go command takes: it refuses those that end
// in a dot.
func goodModule(module string) bool {
	for element := range strings.SplitSeq(module, "/") {
		if !matches(elementForm, element) || strings.HasSuffix(element, ".") {
			return false
		}
	}
	return true
}

// Render returns the files in the order of their names.
func Render(p Plan) ([]File, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	all, err := template.New("").Option("missingkey=error").ParseFS(templates, "templates/*.tmpl")
	if err != nil {
		return nil, fmt.Errorf("scaffold: %w", err)
	}
	var files []File
	for _, t := range all.Templates() {
		name, ok := strings.CutSuffix(t.Name(), ".tmpl")
		if !ok {
			continue // the root, which is empty
		}
		var b bytes.Buffer
		if err := t.Execute(&b, p); err != nil {
			return nil, fmt.Errorf("scaffold: %w", err)
		}
		files = append(files, File{Name: name, Text: b.Bytes()})
	}
	slices.SortFunc(files, func(a, b File) int { return strings.Compare(a.Name, b.Name) })
	return files, nil
}

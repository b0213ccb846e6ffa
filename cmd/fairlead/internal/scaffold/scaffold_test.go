package scaffold

import (
	"bytes"
	"errors"
	"go/format"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func good() Plan {
	return Plan{Name: "my-plane", Module: "example.com/me/my-plane", Clone: "/src/fairlead"}
}

func TestValidate(t *testing.T) {
	if err := good().Validate(); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*Plan){
		`name ""`:                  func(p *Plan) { p.Name = "" },
		`name "Mine"`:              func(p *Plan) { p.Name = "Mine" },
		`name "1st"`:               func(p *Plan) { p.Name = "1st" },
		`name "../up"`:             func(p *Plan) { p.Name = "../up" },
		`name "a\nb"`:              func(p *Plan) { p.Name = "a\nb" },
		`name "aaaaaaaaaaaaaaaaa`:  func(p *Plan) { p.Name = strings.Repeat("a", 33) },
		`name "auto" means`:        func(p *Plan) { p.Name = "auto" },
		`module ""`:                func(p *Plan) { p.Module = "" },
		`module "a b"`:             func(p *Plan) { p.Module = "a b" },
		`module "/abs"`:            func(p *Plan) { p.Module = "/abs" },
		`module "a//b"`:            func(p *Plan) { p.Module = "a//b" },
		`module "a/b."`:            func(p *Plan) { p.Module = "a/b." },
		`either a version`:         func(p *Plan) { p.Version = "v1.2.3" },
		`version "main": want`:     func(p *Plan) { p.Version, p.Clone = "main", "" },
		`version "v1.2.3+dirty"`:   func(p *Plan) { p.Version, p.Clone = "v1.2.3+dirty", "" },
		`clone "src": want an abs`: func(p *Plan) { p.Clone = "src" },
		"clone \"/a\\\"b\"":        func(p *Plan) { p.Clone = `/a"b` },
	} {
		p := good()
		change(&p)
		files, err := Render(p)
		if !errors.Is(err, ErrBadPlan) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") || files != nil {
			t.Errorf("%+v: %v, want one line with %s", p, err, want)
		}
	}
	p := good()
	p.Version, p.Clone = "dev", ""
	if err := p.Validate(); !errors.Is(err, ErrBadVersion) {
		t.Errorf("version dev: %v", err)
	}
}

func TestRender(t *testing.T) {
	files, err := Render(good())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range files {
		names = append(names, f.Name)
		for _, left := range []string{"{{", "<no value>", "fairlead-dataplane- "} {
			if bytes.Contains(f.Text, []byte(left)) {
				t.Errorf("%s has %q in it", f.Name, left)
			}
		}
		if !strings.HasSuffix(f.Name, ".go") {
			continue
		}
		if tidy, err := format.Source(f.Text); err != nil || !bytes.Equal(tidy, f.Text) {
			t.Errorf("%s is not as gofmt has it: %v", f.Name, err)
		}
	}
	want := []string{"Makefile", "README.md", "conformance_test.go", "go.mod", "main.go", "provider.go", "system.go"}
	if !slices.Equal(names, want) {
		t.Errorf("rendered %v, want %v", names, want)
	}
}

// The new module asks for the version of Go that Fairlead asks for, and takes
// Fairlead from where the plan says.
func TestRenderModule(t *testing.T) {
	own, err := os.ReadFile("../../../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	language := regexp.MustCompile(`(?m)^go .*$`).FindString(string(own))
	released := good()
	released.Version, released.Clone = "v1.2.3", ""
	for _, c := range []struct {
		plan  Plan
		tail  string
		other string
	}{
		{good(), "require github.com/fairlead/fairlead v0.0.0\n\nreplace github.com/fairlead/fairlead => \"/src/fairlead\"\n", "v1.2.3"},
		{released, "require github.com/fairlead/fairlead v1.2.3\n", "replace"},
	} {
		files, err := Render(c.plan)
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(files, func(f File) bool { return f.Name == "go.mod" })
		text := string(files[i].Text)
		if want := "module example.com/me/my-plane\n\n" + language + "\n\n" + c.tail; text != want || strings.Contains(text, c.other) {
			t.Errorf("go.mod is\n%s\nwant\n%s", text, want)
		}
	}
}

func TestWriteReplacesNothing(t *testing.T) {
	files := []File{{"a", []byte("A")}, {"b", []byte("B")}}
	dir := filepath.Join(t.TempDir(), "deep", "er")
	if err := Write(dir, files); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "b")); err != nil || string(text) != "B" {
		t.Fatalf("b holds %q, %v", text, err)
	}

	for what, make := range map[string]func(path string) error{
		"a file":      func(path string) error { return os.WriteFile(path, []byte("mine"), 0o600) },
		"a dead link": func(path string) error { return os.Symlink("/nonexistent/x", path) },
		"a directory": func(path string) error { return os.Mkdir(path, 0o700) },
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, "b")
		if err := make(path); err != nil {
			t.Fatal(err)
		}
		before, err := os.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}
		err = Write(dir, files)
		if !errors.Is(err, ErrExists) || !strings.Contains(err.Error(), path+" exists") {
			t.Errorf("%s in the way: %v", what, err)
		}
		after, err := os.Lstat(path)
		if err != nil || !os.SameFile(before, after) || before.Size() != after.Size() {
			t.Errorf("%s in the way was touched: %v", what, err)
		}
		if _, err := os.Lstat(filepath.Join(dir, "a")); err == nil {
			t.Errorf("%s in the way: a was written all the same", what)
		}
	}

	// What cannot be written takes the others back.
	dir = t.TempDir()
	if err := Write(dir, []File{{"a", nil}, {"no/such", nil}}); !errors.Is(err, ErrExists) {
		t.Errorf("a file in a directory that is not there: %v", err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "a")); err == nil {
		t.Error("a stayed after a failure")
	}
}

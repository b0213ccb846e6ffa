package arch

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestCommands(t *testing.T) {
	const document = "Run `fairlead members -o json`, or `make dev`. Not `members` alone, nor fairlead config.\n" +
		"```console\n" +
		"$ sudo FAIRLEAD_API=x bin/fairlead events --follow \\\n    --since 5m | grep dead && fairlead leave  # goodbye\n" +
		"fairlead is output here\n" +
		"# fairlead agent --config 'a b.yaml'\n" +
		"```\n" +
		"```sh\nmake test-long\n```\n" +
		"```yaml\nfairlead: nothing\n```\n" +
		"`fairlead version`\n"
	var got []string
	for _, s := range Commands(document, "fairlead", "make") {
		got = append(got, strings.Join(s.Words, " "))
	}
	want := []string{
		"fairlead members -o json", "make dev", "fairlead events --follow --since 5m", "fairlead leave",
		"fairlead agent --config 'a b.yaml'", "make test-long", "fairlead version",
	}
	if !slices.Equal(got, want) {
		t.Errorf("found\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if shown := Commands(document, "fairlead"); shown[1].Line != 3 || shown[4].Line != 14 {
		t.Errorf("lines %d and %d, want 3 and 14", shown[1].Line, shown[4].Line)
	}
}

// fakeHelp prints texts of the shape that cobra's have.
func fakeHelp(path ...string) (string, error) {
	switch strings.Join(path, " ") {
	case "":
		return "Usage:\n  fairlead [command]\n\nAvailable Commands:\n  config      Show\n  members     List\n\nFlags:\n  -h, --help   help\n", nil
	case "members":
		return "Usage:\n  fairlead members [flags]\n\nFlags:\n  -o, --output string   text or json\n\nGlobal Flags:\n      --api string   socket\n", nil
	case "config":
		return "Usage:\n\nAvailable Commands:\n  show      Show\n", nil
	case "config show":
		return "Flags:\n      --origin   say where from\n", nil
	}
	return "", errors.New("no such command")
}

func TestCheckCommand(t *testing.T) {
	for line, want := range map[string]string{
		"fairlead":                            "",
		"fairlead --help":                     "",
		"fairlead members -o json":            "",
		"fairlead members --api=x":            "",
		"fairlead members an-argument":        "",
		"fairlead config show --origin":       "",
		"fairlead COMMAND --help":             "",
		"fairlead config <command>":           "",
		"fairlead member":                     `no subcommand "member" (it has config, members)`,
		"fairlead config shaw":                "`fairlead config` has no subcommand",
		"fairlead members --outpu json":       "`fairlead members` has no flag --outpu",
		"fairlead config show --output":       "no flag --output",
		"fairlead members -f":                 "no flag -f",
		"fairlead members -- --not-looked-at": "",
	} {
		err := CheckCommand(strings.Fields(line), fakeHelp)
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", line, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want an error with %q", line, err, want)
		}
	}
}

func TestCheckMake(t *testing.T) {
	const makefile = "A := b\ntest: setup ## Run\n\ttrue\n"
	for line, bad := range map[string]bool{
		"make": false, "make test": false, "make -j2 test A=1": false, "make TARGET": false,
		"make tests": true, "make A": false, "make setup": true,
	} {
		if got := CheckMake(strings.Fields(line), makefile); (got != "") != bad {
			t.Errorf("%s: %q", line, got)
		}
	}
}

// write makes a package directory and returns what go list would say of it.
func write(t *testing.T, name string, files map[string]string) Package {
	t.Helper()
	p := Package{ImportPath: "m/dir", Name: name, Dir: t.TempDir()}
	p.Module.Path = "m"
	for file, text := range files {
		if err := os.WriteFile(filepath.Join(p.Dir, file), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(file, "_test.go") {
			p.TestGoFiles = append(p.TestGoFiles, file)
		} else {
			p.GoFiles = append(p.GoFiles, file)
		}
	}
	return p
}

func TestCheckPackageDocs(t *testing.T) {
	for _, c := range []struct {
		name  string
		files map[string]string
		bad   bool
	}{
		{"dir", map[string]string{"a.go": "package dir\n", "doc.go": "// Package dir is good.\npackage dir\n"}, false},
		{"dir", map[string]string{"a.go": "package dir\n"}, true},
		{"dir", map[string]string{"a.go": "// Package dir is cut off.\n\npackage dir\n"}, true},
		{"dir", map[string]string{"a.go": "// Package other is wrong.\npackage dir\n"}, true},
		{"dir", map[string]string{"a_test.go": "// Package dir has only tests.\npackage dir\n"}, false},
		{"dir", map[string]string{"a.go": "package dir\n", "a_test.go": "// Package dir is said in the wrong place.\npackage dir\n"}, true},
		{"main", map[string]string{"main.go": "// Command dir runs.\npackage main\n"}, false},
		{"main", map[string]string{"main.go": "// Package main runs.\npackage main\n"}, true},
	} {
		found, err := CheckPackageDocs([]Package{write(t, c.name, c.files)})
		if err != nil {
			t.Fatal(err)
		}
		if (len(found) > 0) != c.bad {
			t.Errorf("%v: found %q", c.files, found)
		}
	}
}

func TestCheckSleeps(t *testing.T) {
	const sleep = "func f() { time.Sleep(1) }\n"
	p := write(t, "dir", map[string]string{
		"a_test.go": "package dir\nimport \"time\"\n" + sleep,
		"b_test.go": "package dir\nimport (\"time\"; \"testing/synctest\")\n" + sleep,
		"c.go":      "package dir\nimport \"time\"\n" + sleep,
	})
	found, err := CheckSleeps([]Package{p})
	if err != nil {
		t.Fatal(err)
	}
	if len(found) != 1 || !strings.HasPrefix(found[0], "dir/a_test.go sleeps") {
		t.Errorf("found %q, want a_test.go alone", found)
	}
}

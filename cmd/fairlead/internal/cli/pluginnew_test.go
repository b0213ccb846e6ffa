package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestPluginNew(t *testing.T) {
	clone, err := filepath.Abs("../../../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "mine")
	c := newCommand(t)
	if code := c.run("plugin", "new", "mine", "--dir", dir, "--fairlead", clone, "-o", "json"); code != ExitOK {
		t.Fatalf("code %d: %s", code, c.err.String())
	}
	var got newPluginJSON
	if err := json.Unmarshal([]byte(c.out.String()), &got); err != nil {
		t.Fatal(err)
	}
	if got.Name != "mine" || got.Module != "example.com/fairlead-dataplane-mine" || got.Dir != dir || len(got.Files) != 7 {
		t.Errorf("printed %+v", got)
	}
	mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil || !strings.Contains(string(mod), `replace github.com/fairlead/fairlead => "`+clone+`"`) {
		t.Errorf("go.mod holds %s, %v", mod, err)
	}

	// A second time nothing is replaced.
	c = newCommand(t)
	code := c.run("plugin", "new", "mine", "--dir", dir, "--fairlead", clone)
	if code != ExitFailed || !strings.Contains(c.err.String(), filepath.Join(dir, "Makefile")+" exists") || strings.Count(c.err.String(), "\n") != 1 {
		t.Errorf("a second time: code %d, %s", code, c.err.String())
	}

	// A release builds with itself.
	c = newCommand(t)
	other := filepath.Join(t.TempDir(), "other")
	if code := c.run("plugin", "new", "other", "--dir", other, "--module", "example.org/o"); code != ExitOK || !strings.Contains(c.out.String(), "conform --exec ./fairlead-dataplane-other") {
		t.Errorf("code %d, %s%s", code, c.out.String(), c.err.String())
	}
	mod, err = os.ReadFile(filepath.Join(other, "go.mod"))
	if err != nil || !strings.HasPrefix(string(mod), "module example.org/o\n") || !strings.Contains(string(mod), "fairlead v0.1.0\n") {
		t.Errorf("go.mod holds %s, %v", mod, err)
	}
}

// A command line that is wrong gets one clear error, and writes nothing.
func TestPluginNewRefuses(t *testing.T) {
	for args, want := range map[string]string{
		"":                          "exactly one NAME",
		"a b":                       "exactly one NAME",
		"My_Plane":                  `name "My_Plane": want a small letter`,
		"../up":                     `name "../up": want a small letter`,
		"l7":                        `name "l7" means something else`,
		"a --module x//y":           `module "x//y": want a path`,
		"a --fairlead main":         `version "main": want one of a Go module`,
		"a --fairlead /nonexistent": `"/nonexistent" is no clone of Fairlead`,
		"a --fairlead .":            `"." is no clone of Fairlead`,
	} {
		c := newCommand(t)
		dir := filepath.Join(t.TempDir(), "new")
		code := c.run(append([]string{"plugin", "new", "--dir", dir}, strings.Fields(args)...)...)
		if code != ExitUsage || !strings.Contains(c.err.String(), want) || strings.Count(c.err.String(), "\n") != 2 {
			t.Errorf("new %s: code %d, %s; want %s", args, code, c.err.String(), want)
		}
		if _, err := os.Lstat(dir); err == nil {
			t.Errorf("new %s wrote something", args)
		}
	}
	// One that was built from a clone is no version that could be fetched.
	c := newCommand(t)
	c.Version = "0a1b2c3-dirty"
	if code := c.run("plugin", "new", "mine", "--dir", t.TempDir()); code != ExitUsage || !strings.Contains(c.err.String(), "is 0a1b2c3-dirty, which is no release: give the directory of your clone") {
		t.Errorf("code %d, %s", code, c.err.String())
	}
}

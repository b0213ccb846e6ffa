package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/core/identity"
)

// Without a file a secret is printed, one line that a file can be made of.
func TestKeygenPrints(t *testing.T) {
	seen := map[string]bool{}
	for range 2 {
		cmd := newCommand(t)
		if code := cmd.run("keygen"); code != 0 || cmd.err.String() != "" {
			t.Fatalf("%d: %s", code, cmd.err.String())
		}
		text := cmd.out.String()
		if s, err := identity.Parse([]byte(text)); err != nil || len(s) != 1 || seen[text] {
			t.Errorf("%d bytes: %v, %v", len(text), s, err)
		}
		seen[text] = true
	}
	cmd := newCommand(t)
	var got keygenJSON
	if code := cmd.run("keygen", "-o", "json"); code != 0 {
		t.Fatal(code)
	}
	if err := json.Unmarshal([]byte(cmd.out.String()), &got); err != nil || got.Secrets != 1 || got.File != "" {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := identity.Parse([]byte(got.Secret)); err != nil {
		t.Error(err)
	}
}

// A rotation by the command line. Files are not shown.
func TestKeygenRotates(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	var text string
	step := func(flag string, secrets int) {
		t.Helper()
		cmd := newCommand(t)
		if code := cmd.run("keygen", flag, path, "-o", "json"); code != 0 {
			t.Fatalf("%s: %d: %s", flag, code, cmd.err.String())
		}
		var got keygenJSON
		if err := json.Unmarshal([]byte(cmd.out.String()), &got); err != nil || got.File != path || got.Secrets != secrets || got.Secret != "" {
			t.Errorf("%s: %+v, %v", flag, got, err)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		text = string(data)
		if s, warnings, err := identity.ReadFile(path); err != nil || len(warnings) != 0 || len(s) != secrets {
			t.Errorf("%s: %v, %v, %v", flag, s, warnings, err)
		}
	}
	step("--out", 1)
	first := strings.TrimSpace(text)
	cmd := newCommand(t)
	if code := cmd.run("keygen", "--out", path); code != ExitFailed || !strings.Contains(cmd.err.String(), "is there already") {
		t.Errorf("overwritten: %d: %s", code, cmd.err.String())
	}
	step("--add", 2)
	second := strings.Fields(text)[1]
	step("--promote", 2)
	if text != second+"\n"+first+"\n" {
		t.Error("the new secret is not the first")
	}
	cmd = newCommand(t)
	if code := cmd.run("keygen", "--drop", path); code != 0 || cmd.out.String() != path+" has 1 secret now\n→ copy it to every other node; when every agent has read it, the old secrets are worth nothing\n" {
		t.Errorf("%d: %s", code, cmd.out.String())
	}
	if data, err := os.ReadFile(path); err != nil || string(data) != second+"\n" {
		t.Errorf("the wrong secret is left: %v", err)
	}
}

func TestKeygenWronglyUsed(t *testing.T) {
	dir := t.TempDir()
	for name, tc := range map[string]struct {
		args []string
		want string
		code int
	}{
		"two flags": {[]string{"--out", dir + "/a", "--add", dir + "/b"}, "give --out or --add, not both", ExitUsage},
		"empty":     {[]string{"--out", ""}, "--out names no file", ExitUsage},
		"argument":  {[]string{"file"}, "takes no arguments", ExitUsage},
		"no file":   {[]string{"--add", dir + "/none"}, "no such file", ExitFailed},
		"no dir":    {[]string{"--out", dir + "/none/secret"}, "make it first (mkdir -p ", ExitFailed},
	} {
		cmd := newCommand(t)
		if code := cmd.run(append([]string{"keygen"}, tc.args...)...); code != tc.code || !strings.Contains(cmd.err.String(), tc.want) || cmd.out.String() != "" {
			t.Errorf("%s: %d: %s", name, code, cmd.err.String())
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

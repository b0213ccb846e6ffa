package cli

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// Exit codes and words of everything that ends without an agent.
func TestExitCodes(t *testing.T) {
	good := writeFile(t, "node: {name: n1}\n")
	bad := writeFile(t, "node: {nmae: n1}\ngossip: {profile: moon}\n")
	cases := []struct {
		args   string
		code   int
		stdout string // has to contain
		stderr string // has to contain
	}{
		{"", 0, "Available Commands:", ""},
		{"help members", 0, "did not refute in time", ""},
		{"--help", 0, "fairlead dev", ""},
		{"members --help", 0, "--api", ""},
		{"config", 0, "validate", ""},
		{"version", 0, "fairlead v0.1.0 (go1.", ""},

		{"membres", 2, "", `unknown command "membres", did you mean "members"?`},
		{"frobnicate", 2, "", `unknown command "frobnicate"`},
		{"completion", 0, "zsh", ""},
		{"completion tcsh", 2, "", `unknown command "tcsh"`},
		{"help membres", 2, "", `unknown command "membres", did you mean "members"?`},
		{"help config shwo", 2, "", `did you mean "show"?`},
		{"help config show", 0, "Secrets are masked", ""},
		{"config shwo", 2, "", `did you mean "show"?`},
		{"members --nope", 2, "", "unknown flag: --nope"},
		{"members extra", 2, "", `fairlead members takes no arguments, got "extra"`},
		{"members -o yaml", 2, "", `--output is "yaml": want text or json`},
		{"members -o", 2, "", "flag needs an argument"},
		{"events --since yesterday", 2, "", `--since is "yesterday"`},
		{"config validate a b", 2, "", "at most 1 argument"},
		{"man", 2, "", "man wants one directory"},
		{"agent n1", 2, "", "takes no arguments"},
		{"agent --gossip.bnid x", 2, "", "unknown flag: --gossip.bnid; did you mean --gossip.bind?"},
		{"agent --data-dir x", 2, "", "did you mean --node.data_dir?"},
		{"members --ouptut json", 2, "", "did you mean --output?"},
		{"config validate --config a b", 2, "", "takes one file"},

		{"members --api /nonexistent/api.sock", 1, "", "no agent answers at /nonexistent/api.sock: is it running?"},
		{"events --api 127.0.0.1:1", 1, "", "no agent answers at 127.0.0.1:1"},
		{"leave --api /nonexistent/api.sock", 1, "", "start it with `fairlead agent`"},
		{"config show --api /nonexistent/api.sock", 1, "", "--api or FAIRLEAD_API"},
		{"agent --config /nonexistent.yaml", 1, "", "/nonexistent.yaml: cannot read the configuration file"},
		{"agent --config " + good + " --gossip.bind 0.0.0.0:7400", 1, "", "flag --gossip.bind: gossip.bind: is 0.0.0.0:7400, beyond loopback"},

		{"config validate " + good, 0, "ok\n", ""},
		{"config validate " + bad, 1, "", "did you mean node.name?"},
		{"config validate " + bad, 1, "", `moon`},
		{"config validate --config " + good, 0, "ok\n", ""},
		{"config validate --config " + bad, 1, "", `moon`},
		{"config validate /nonexistent.yaml", 1, "", "cannot read"},
		{"config show --config " + good, 0, "cluster.name", ""},
		{"config show --config " + bad, 1, "", "node.nmae"},
		{"leave --restart --hold 31s", 2, "", "--hold is 31s: want 1ms to 30s"},
		{"leave --hold 10s", 2, "", "--hold goes with --restart"},
		{"register web --port 99999", 2, "", `--port is "99999": want a whole number from 0 to 65535`},
		{"leave --restart --hold soon", 2, "", `--hold is "soon": want a duration with its unit`},
	}
	for _, c := range cases {
		t.Run(c.args, func(t *testing.T) {
			cmd := newCommand(t)
			if code := cmd.run(strings.Fields(c.args)...); code != c.code {
				t.Errorf("exit code %d, want %d", code, c.code)
			}
			if out := cmd.out.String(); !strings.Contains(out, c.stdout) || c.code != 0 && out != "" {
				t.Errorf("stdout %q, want %q", out, c.stdout)
			}
			if out := cmd.err.String(); !strings.Contains(out, c.stderr) || c.code == 0 && out != "" {
				t.Errorf("stderr %q, want %q", out, c.stderr)
			}
			if c.code == 2 && !strings.Contains(cmd.err.String(), "--help") {
				t.Errorf("a usage error that shows no way out: %q", cmd.err.String())
			}
		})
	}
}

// Nobody is to believe that a file was checked which is not there.
func TestValidateWithoutAFile(t *testing.T) {
	if _, err := os.Stat(defaultConfig); err == nil {
		t.Skipf("this host has %s", defaultConfig)
	}
	cmd := newCommand(t)
	if code := cmd.run("config", "validate"); code != 0 || cmd.out.String() != "ok\n" || !strings.Contains(cmd.err.String(), "warning: there is no "+defaultConfig+": only the environment was checked") {
		t.Errorf("code %d: %s%s", code, cmd.out.String(), cmd.err.String())
	}
}

func TestVersionJSON(t *testing.T) {
	cmd := newCommand(t)
	cmd.run("version", "-o", "json")
	var v map[string]string
	if err := json.Unmarshal([]byte(cmd.out.String()), &v); err != nil || v["version"] != "v0.1.0" || v["go_version"] == "" || v["platform"] == "" {
		t.Errorf("%v: %s", err, cmd.out.String())
	}
}

func TestBuildVersionIsNeverEmpty(t *testing.T) {
	if SystemEnv("").Version == "" || SystemEnv("v9").Version != "v9" {
		t.Errorf("versions %q and %q", SystemEnv("").Version, SystemEnv("v9").Version)
	}
}

// The scripts are complete and pass the shells that are here.
func TestCompletion(t *testing.T) {
	for shell, mark := range map[string]string{"bash": "__start_fairlead", "zsh": "#compdef fairlead", "fish": "complete -c fairlead"} {
		t.Run(shell, func(t *testing.T) {
			cmd := newCommand(t)
			if code := cmd.run("completion", shell); code != 0 || !strings.Contains(cmd.out.String(), mark) {
				t.Fatalf("exit code %d, %d bytes without %q: %s", code, len(cmd.out.String()), mark, cmd.err.String())
			}
			path, err := exec.LookPath(shell)
			if err != nil {
				return // the script was made; only its syntax stays unchecked
			}
			check := exec.Command(path, "-n")
			check.Stdin = strings.NewReader(cmd.out.String())
			if out, err := check.CombinedOutput(); err != nil {
				t.Errorf("%s refuses it: %v\n%s", shell, err, out)
			}
		})
	}
}

// What the scripts ask the program for.
func TestCompletedWords(t *testing.T) {
	dir := newCommand(t).installPlugins(t, "good", "so")
	for args, want := range map[string][]string{
		"mem":                                 {"members"},
		"config ":                             {"show", "validate"},
		"agent --gossip.profile ":             {"lan", "wan", "local"},
		"members --output ":                   {"text", "json"},
		"agent --advertise-address":           {"--advertise-address"},
		"plugin info ":                        {"good", "so"},
		"plugin probe good ":                  {"so"},
		"plugin restart ":                     {"good", "so"},
		"plugin conform --only ":              {"identity", "reconcile"},
		"plugin conform --traffic --only ":    {"table", "life"},
		"plugin conform --traffic --without ": {"ends=", "udp="},
	} {
		cmd := newCommand(t)
		cmd.Environ = append(cmd.Environ, "FAIRLEAD_PLUGIN_DIRS="+dir)
		words := append([]string{"__complete"}, strings.Split(args, " ")...)
		if code := cmd.run(words...); code != 0 {
			t.Errorf("%q: exit code %d: %s", args, code, cmd.err.String())
		}
		for _, w := range want {
			if !strings.Contains("\n"+cmd.out.String(), "\n"+w) {
				t.Errorf("%q offers %q, want %s", args, cmd.out.String(), w)
			}
		}
	}
}

func TestManPages(t *testing.T) {
	read := func() map[string]string {
		cmd := newCommand(t)
		dir := filepath.Join(t.TempDir(), "man1")
		if code := cmd.run("man", dir); code != 0 {
			t.Fatalf("exit code %d: %s", code, cmd.err.String())
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		pages := make(map[string]string)
		for _, e := range entries {
			text, err := os.ReadFile(filepath.Join(dir, e.Name()))
			if err != nil {
				t.Fatal(err)
			}
			pages[e.Name()] = string(text)
		}
		return pages
	}
	first, second := read(), read()
	var each func(*cobra.Command)
	each = func(c *cobra.Command) {
		if !c.IsAvailableCommand() && c.HasParent() {
			return // hidden
		}
		name := strings.ReplaceAll(c.CommandPath(), " ", "-") + ".1"
		if !strings.Contains(first[name], ".SH NAME") || !strings.Contains(first[name], ".SH SYNOPSIS") {
			t.Errorf("%s: %.80q", name, first[name])
		}
		if first[name] != second[name] {
			t.Errorf("%s differs between two runs", name)
		}
		for _, sub := range c.Commands() {
			each(sub)
		}
	}
	each((&app{env: newCommand(t).Env}).root())
	if page := first["fairlead-completion-bash.1"]; !strings.Contains(page, ".SH SYNOPSIS") {
		t.Errorf("of the shell's: %.80q", page)
	}
	if !strings.Contains(first["fairlead-agent.1"], "gossip.bind") {
		t.Error("fairlead-agent.1 lacks the configuration flags")
	}
	cmd := newCommand(t)
	if code := cmd.run("man", writeFile(t, "")); code != 1 {
		t.Errorf("pages into a file: exit code %d", code)
	}
	if code := cmd.run("man", t.TempDir(), "-o", "json"); code != 0 || !strings.Contains(cmd.out.String(), `fairlead-leave.1"`) {
		t.Errorf("JSON: %d: %s", code, cmd.out.String())
	}
}

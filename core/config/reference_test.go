package config

import (
	"bytes"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/caarlos0/env/v11"
	"github.com/spf13/pflag"
)

func TestEveryKeyIsDocumented(t *testing.T) {
	seen := map[string]bool{}
	for _, k := range append(Keys(), EntryKeys()...) {
		if k.Path == "" || strings.HasSuffix(k.Path, ".") || seen[k.Path] {
			t.Errorf("path %q is empty, unfinished or used twice", k.Path)
		}
		seen[k.Path] = true
		if !strings.HasSuffix(k.Doc, ".") || len(k.Doc) < 10 {
			t.Errorf("%s: its doc %q is not a sentence", k.Path, k.Doc)
		}
		if k.Type == "number" && k.Unit == "" {
			t.Errorf("%s: a number without a unit", k.Path)
		}
	}
	for _, k := range Keys() {
		for _, name := range []string{k.Env, k.Flag} {
			if seen[name] && name != k.Path {
				t.Errorf("%s: name %q used twice", k.Path, name)
			}
		}
	}
}

// env reads exactly the keys that Keys lists: a tag that one of them misread
// would be a key that silently takes no variable.
func TestEnvLibrarySeesTheSameKeys(t *testing.T) {
	params, err := env.GetFieldParamsWithOptions(&Config{}, env.Options{TagName: "key", PrefixTagName: "section"})
	if err != nil {
		t.Fatal(err)
	}
	var got, want []string
	for _, p := range params {
		got = append(got, p.Key)
	}
	for _, k := range Keys() {
		want = append(want, k.Path)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("env sees\n%q\nwant\n%q", got, want)
	}
}

func TestFlags(t *testing.T) {
	set := pflag.NewFlagSet("agent", pflag.ContinueOnError)
	RegisterFlags(set)
	for _, k := range Keys() {
		f := set.Lookup(k.Path)
		if f == nil {
			t.Errorf("no flag --%s", k.Path)
			continue
		}
		if f.Usage != k.Doc || f.DefValue != k.Default || f.Value.Type() == "" {
			t.Errorf("flag --%s: %+v", k.Path, f)
		}
	}
	if set.Lookup("advertise-address") == nil {
		t.Error("no flag --advertise-address")
	}
	cfg, _, _ := mustLoad(t, sources{file: "-", args: []string{"--node.in_memory", "--log.level=info", "--log.level=warn"}})
	if !cfg.Node.InMemory || cfg.Log.Level != "warn" {
		t.Errorf("in_memory %v, level %s", cfg.Node.InMemory, cfg.Log.Level)
	}
	// A flag set without our flags is no source, not a crash.
	if _, _, _, err := Load(Options{Hostname: "h1", Flags: pflag.NewFlagSet("other", pflag.ContinueOnError)}); err != nil {
		t.Error(err)
	}
}

func TestDocumentsAreUpToDate(t *testing.T) {
	reference, err := os.ReadFile("../../docs/config.md")
	if err != nil {
		t.Fatal(err)
	}
	if string(reference) != Reference() {
		t.Error("docs/config.md is old: run go generate ./core/config")
	}
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	renewed, err := ReplaceTable(readme)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(readme, renewed) {
		t.Error("the table in README.md is old: run go generate ./core/config")
	}
}

func TestReplaceTable(t *testing.T) {
	out, err := ReplaceTable([]byte("before\n" + tableBegin + "\nold\n" + tableEnd + "\nafter\n"))
	if err != nil || !strings.HasPrefix(string(out), "before\n"+tableBegin+"\n| key |") || !strings.HasSuffix(string(out), "|\n"+tableEnd+"\nafter\n") {
		t.Errorf("%v: %s", err, out)
	}
	again, err := ReplaceTable(out)
	if err != nil || !bytes.Equal(out, again) {
		t.Errorf("not stable: %v", err)
	}
	for _, bad := range []string{"", tableBegin, tableEnd + tableBegin} {
		if _, err := ReplaceTable([]byte(bad)); err == nil || !strings.Contains(err.Error(), tableBegin) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestDidYouMean(t *testing.T) {
	candidates := []string{"name", "data_dir", "advertise", "in_memory"}
	for name, want := range map[string]string{
		"nmae": "name", "naem": "name", "Name": "name", "data-dir": "data_dir", "datadir": "data_dir", "dataDir": "data_dir",
		"adverise": "advertise", "advertised": "advertise", "memory": "in_memory", "zzz": "", "": "", "x": "",
		strings.Repeat("n", 10000): "",
	} {
		got := strings.TrimSuffix(strings.TrimPrefix(DidYouMean(name, candidates), "; did you mean "), "?")
		if got != want {
			t.Errorf("%.20q: %q, want %q", name, got, want)
		}
	}
}

func TestFormatDuration(t *testing.T) {
	for _, s := range []string{"0s", "100ms", "1s", "1m", "10m", "1h", "20h", "1h5m", "1m30s", "1h0m5s"} {
		cfg := Defaults()
		if why := parseOne(cfg, Key{Path: "shutdown_timeout"}, s); why != "" {
			t.Fatal(why)
		}
		if got := formatDuration(cfg.ShutdownTimeout); got != s {
			t.Errorf("%s became %s", s, got)
		}
	}
}

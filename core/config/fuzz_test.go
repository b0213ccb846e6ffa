package config

import (
	"reflect"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// FuzzLoad: no input crashes Load, every finding says what it is about, and
// what loads can be written and read again.
func FuzzLoad(f *testing.F) {
	f.Add(full, "FAIRLEAD_NODE_NAME=x\nFAIRLEAD_PLUGIN_A_B=c", "[{name: a}]")
	f.Add("plugins: {a: {b: [1.5, .5, 1e3, '', {c: d}]}}", "FAIRLEAD_PLUGINS={a: {b: 1}}", "")
	f.Add("a: &a [*a]\n<<: {b: c}\n? [x]\n: y", "FAIRLEAD_CLUSTER_JOIN=,,a,", "- {port: 1, name: a}")
	f.Add("\ufeffnode:\n\tname: a\n---\n", "FAIRLEAD_VIP_POOLS=10.0.0.0/8,::/0", "\x00")
	f.Fuzz(func(t *testing.T, file, environ, services string) {
		set := pflag.NewFlagSet("agent", pflag.ContinueOnError)
		RegisterFlags(set)
		if services != "" {
			if err := set.Set("services", services); err != nil {
				t.Fatal(err)
			}
		}
		o := sources{file: file, env: strings.Split(environ, "\n")}.options(t)
		o.Flags = set
		cfg, origins, _, err := Load(o)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "config: ") {
				t.Errorf("finding without a prefix: %v", err)
			}
			return
		}
		cfg.Show(origins)
		y, err := cfg.YAML()
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{string(y), string(cfg.JSON())} {
			again, _, _ := mustLoad(t, sources{file: text})
			if !reflect.DeepEqual(cfg, again) {
				t.Errorf("got %+v\nwant %+v\nfrom %s", again, cfg, text)
			}
		}
	})
}

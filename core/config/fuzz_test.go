package config

import (
	"reflect"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// FuzzParseServices: no text crashes it, every finding says where, and what is
// taken can be written and read again.
func FuzzParseServices(f *testing.F) {
	f.Add("name: web\nport: 80\ninstances:\n- {id: a, address: '127.0.0.1:1', weight: 0, checks: [{tcp: true, interval: 1s}, {grpc: '', interval: 1m}]}")
	f.Add("services: [{name: db, port: 1, protocol: both, affinity: 1m, hosts: [a], routes: [{headers: {X: '1'}, methods: [GET]}]}]")
	f.Add(`{"name": "a", "port": 1, "instances": [{"id": "a", "address": "[::1]:1", "checks": [{"http": "http://127.0.0.1:1/x", "interval": "1s"}]}]}`)
	f.Add("services:\n- \nname: x")
	f.Fuzz(func(t *testing.T, text string) {
		list, _, err := ParseServices("f.yaml", []byte(text))
		if err != nil {
			if !strings.HasPrefix(err.Error(), "config: f.yaml") {
				t.Errorf("finding without its place: %v", err)
			}
			return
		}
		again, _, err := ParseServices("again", ServicesJSON(list))
		if err != nil || len(list) != 0 && !reflect.DeepEqual(again, list) {
			t.Errorf("%v: got %+v\nwant %+v", err, again, list)
		}
	})
}

// FuzzLoad: no input crashes Load, every finding says what it is about, and
// what loads can be written and read again.
func FuzzLoad(f *testing.F) {
	f.Add(full, "FAIRLEAD_NODE_NAME=x\nFAIRLEAD_PLUGIN_A_B=c", "[{name: a}]")
	f.Add("plugins: {a: {b: [1.5, .5, 1e3, '', {c: d}]}}", "FAIRLEAD_PLUGINS={a: {b: 1}}", "")
	f.Add("a: &a [*a]\n<<: {b: c}\n? [x]\n: y", "FAIRLEAD_CLUSTER_JOIN=,,a,", "- {port: 1, name: a}")
	f.Add("\ufeffnode:\n\tname: a\n---\n", "FAIRLEAD_VIP_POOLS=10.0.0.0/8,::/0", "\x00")
	f.Add("plugins: {a: {b: \"\\t\\n\"}}", "FAIRLEAD_PLUGIN_A_C=\t\n", "")
	f.Add("", "FAIRLEAD_PLUGIN_A_B=\xff", "")
	f.Add("", "FAIRLEAD_CLUSTER_SECRET_FILE=\xff", "")
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

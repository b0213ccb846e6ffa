package config

import (
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"
)

const full = `
node: {name: "7", data_dir: "/a b: c", advertise: "fd00::1", in_memory: true}
cluster: {name: "true", join: ["10.0.0.1", "null"], secret_file: '#s', server: false, bootstrap_expect: -1}
gossip: {bind: "[::]:7400", profile: wan, insecure: true}
rpc: {listen: off, max_handshakes: 7, max_frame_bytes: 65536, max_queue_bytes: 1048576}
raft: {heartbeat: 1500us, election: 90s, voters: 5, peers: [{name: a, addr: "10.0.0.1:1"}]}
api: {socket: off, listen: "0.0.0.0:1", tls: {cert: c, key: k, client_ca: "é\U0001F600"}}
store: {kind: embedded, tls: {cert: c, key: k, ca: a}}
dataplane: off
plugins:
  l7: {listen: x, n: 1, f: 3.0, e: 1e300, b: true, s: "0123", list: [1, {a: "\"\\\u2028\n"}], nested: {api_token: t0p}, password: hunter2, token_file: /t}
  empty: {}
vip_pools: []
services:
- {name: web, port: 80, vip: 10.0.0.1, intercept: ["127.0.0.1:1"], instances: [{id: a, address: "127.0.0.1:1", checks: [{http: "/x?y=[z]", interval: 1s}, {tcp: true, interval: 500ms}, {tcp: "127.0.0.1:2", interval: 1s}, {grpc: "", interval: 1m, timeout: 3s}, {grpc: a.b, interval: 1s, success_before_passing: 2, failures_before_critical: 0}]}]}
- {name: db, port: 5432, protocol: both, on_empty: refuse, balance: hash, affinity: 5m, hosts: [db.example.com, "fd00::1"], drain: 30s, routes: [{host: a, path_prefix: /x, headers: {X-A: "true", B: "1 2"}, methods: [GET]}]}
shutdown_timeout: 1m
`

func fullSources() sources {
	// The file above with timings that pass.
	return sources{file: strings.NewReplacer("1500us", "15ms", "90s", "1m").Replace(full)}
}

func TestOutputReadsAsTheSameConfig(t *testing.T) {
	etcd := sources{file: "cluster: {bootstrap_expect: 0}\nstore: {kind: etcd, endpoints: ['https://etcd:2379']}"}
	for name, s := range map[string]sources{"defaults": {file: "-"}, "full": fullSources(), "etcd": etcd} {
		cfg, _, _ := mustLoad(t, s)
		y, err := cfg.YAML()
		if err != nil {
			t.Fatal(err)
		}
		for format, text := range map[string]string{"YAML": string(y), "JSON": string(cfg.JSON())} {
			again, _, _ := mustLoad(t, sources{file: text, host: "another"})
			if !reflect.DeepEqual(cfg, again) {
				t.Errorf("%s, %s: got\n%+v\nwant\n%+v\nfrom\n%s", name, format, again, cfg, text)
			}
		}
		if !json.Valid(cfg.JSON()) {
			t.Errorf("%s: not JSON: %s", name, cfg.JSON())
		}
	}
}

// What Show prints for a key is what a variable accepts for it.
func TestShownValuesReadAsVariables(t *testing.T) {
	cfg, origins, _ := mustLoad(t, fullSources())
	var env []string
	for _, k := range Keys() {
		if k.Path != "plugins" {
			env = append(env, k.Env+"="+textOf(k.field(cfg)))
		}
	}
	again, _, _ := mustLoad(t, sources{file: "-", env: env})
	again.Plugins = cfg.Plugins
	if !reflect.DeepEqual(cfg, again) {
		t.Errorf("got\n%+v\nwant\n%+v", again, cfg)
	}
	if len(cfg.Show(origins)) < len(Keys()) {
		t.Error("Show leaves keys out")
	}
}

func TestShow(t *testing.T) {
	s := fullSources()
	s.env = []string{"FAIRLEAD_LOG_LEVEL=debug", "FAIRLEAD_PLUGIN_L7_MODE=x"}
	s.args = []string{"--raft.voters=7"}
	cfg, origins, _ := mustLoad(t, s)
	shown := map[string]Entry{}
	for _, e := range cfg.Show(origins) {
		if _, dup := shown[e.Key]; dup {
			t.Errorf("%s shown twice", e.Key)
		}
		shown[e.Key] = e
	}
	for key, want := range map[string]string{
		"node.data_dir":         "/a b: c from " + testFile + ":2",
		"node.advertise":        "fd00::1 from " + testFile + ":2",
		"cluster.join":          "10.0.0.1,null from " + testFile + ":3",
		"raft.voters":           "7 from flag --raft.voters",
		"raft.peers":            `[{"name":"a","addr":"10.0.0.1:1"}] from ` + testFile + ":6",
		"http.listen":           "127.0.0.1:7403 from default",
		"log.level":             "debug from env FAIRLEAD_LOG_LEVEL",
		"plugins.l7.mode":       "x from env FAIRLEAD_PLUGIN_L7_MODE",
		"plugins.l7.password":   "******** from " + testFile + ":11",
		"plugins.l7.nested":     `{"api_token":"********"} from ` + testFile + ":11",
		"plugins.l7.token_file": "/t from " + testFile + ":11",
		"plugins.empty":         "{} from " + testFile + ":12",
		"shutdown_timeout":      "1m from " + testFile + ":17",
	} {
		if e := shown[key]; e.Value+" from "+e.Origin != want {
			t.Errorf("%s: %s from %s, want %s", key, e.Value, e.Origin, want)
		}
	}
	if cfg.Plugins["l7"]["password"] != "hunter2" {
		t.Error("masking changed the configuration itself")
	}
}

func TestMaskedHidesEverySecret(t *testing.T) {
	cfg, _, _ := mustLoad(t, sources{file: `
plugins: {x: {api-key: S1, Password: S2, list: [{clientSecret: S3}], cert_path: /p}}
`})
	cfg.Store.Endpoints = []string{"https://user:S4@etcd:1", "https://plain:1"}
	masked := cfg.Masked()
	y, err := masked.YAML()
	if err != nil {
		t.Fatal(err)
	}
	for _, out := range []string{string(y), string(masked.JSON())} {
		for _, secret := range []string{"S1", "S2", "S3", "S4"} {
			if strings.Contains(out, secret) {
				t.Errorf("%s leaks in %s", secret, out)
			}
		}
		for _, open := range []string{"/p", "etcd:1", "https://plain:1"} {
			if !strings.Contains(out, open) {
				t.Errorf("%s is hidden in %s", open, out)
			}
		}
	}
}

func TestChanged(t *testing.T) {
	a, _, _ := mustLoad(t, sources{file: "log: {level: warn}\n"})
	b, _, _ := mustLoad(t, sources{file: "log: {level: info}\nraft: {voters: 5}\nplugins: {l7: {a: 1}}\n"})
	var got []string
	for _, k := range Changed(a, b) {
		got = append(got, k.Path)
		if k.Live != (k.Path == "log.level" || k.Path == "plugins") {
			t.Errorf("%s live: %v", k.Path, k.Live)
		}
	}
	if want := []string{"raft.voters", "plugins", "log.level"}; !reflect.DeepEqual(got, want) {
		t.Errorf("changed %q, want %q", got, want)
	}
	if len(Changed(a, a)) != 0 {
		t.Error("a configuration differs from itself")
	}
}

// The shipped example loads, names every key, and differs from its defaults
// only by what a small cluster writes.
func TestExampleFile(t *testing.T) {
	text, err := os.ReadFile("../../docs/fairlead.example.yaml")
	if err != nil {
		t.Fatal(err)
	}
	cfg, origins, _ := mustLoad(t, sources{file: string(text)})
	for _, k := range Keys() {
		if _, ok := origins.written(k.Path); !ok {
			t.Errorf("the example leaves %s out", k.Path)
		}
	}
	if len(cfg.Services) != 1 || cfg.Services[0].Instances[0].Checks[0].HTTP != "/healthz" {
		t.Errorf("services %+v", cfg.Services)
	}
}

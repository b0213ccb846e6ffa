package config

import (
	"errors"
	"io/fs"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestDefaultsLoadWithoutAnythingWritten(t *testing.T) {
	cfg, origins, warnings := mustLoad(t, sources{file: "-"})
	want := Defaults()
	want.Node.Name = "h1"
	if !reflect.DeepEqual(cfg, want) {
		t.Errorf("got %+v\nwant %+v", cfg, want)
	}
	if len(origins) != 0 || len(warnings) != 0 {
		t.Errorf("defaults have origins %v and warnings %v", origins, warnings)
	}
	if got := cfg.AdvertiseAddr(); got != netip.MustParseAddrPort("127.0.0.1:7400") {
		t.Errorf("advertise %s, want the bind address", got)
	}
}

// The example of DESIGN §11, with gossip.insecure as long as gossip is not encrypted.
func TestDesignExampleLoads(t *testing.T) {
	cfg, _, _ := mustLoad(t, sources{file: `
node:      {name: n1, data_dir: /var/lib/fairlead, advertise: 10.9.0.1, in_memory: false}
cluster:   {name: prod, join: ["10.9.0.2:7400"], secret_file: /etc/fairlead/secret, server: true, bootstrap_expect: 3}
gossip:    {bind: "0.0.0.0:7400", profile: lan, insecure: true}
rpc:       {listen: "0.0.0.0:7401"}
raft:      {heartbeat: 100ms, election: 1s, voters: 3, peers: []}
api:       {socket: /run/fairlead/api.sock, listen: "127.0.0.1:7402", tls: {cert: "", key: "", client_ca: ""}, insecure: false}
http:      {listen: "127.0.0.1:7403"}
store:     {kind: embedded}     # or etcd with endpoints and tls
dataplane: "auto,l7"
plugins:   {l7: {listen: "127.0.0.1:8080"}}
vip_pools: [10.200.0.0/16]
dns:       {listen: "127.0.0.1:15353", zone: mesh.internal}
services:  # instances that run on this node; also services.d/*.yaml, "fairlead register", API
  - name: web                     # namespace: default
    port: 80                      # the service's port on its VIP
    vip: 10.200.0.10              # optional; else allocated
    intercept: ["127.0.0.1:8001"] # optional further frontends on this node
    instances:
      - {id: web-1, address: "127.0.0.1:9001", host_port: 19001, checks: [{http: "/healthz", interval: 2s, timeout: 1s}]}
`})
	addr := netip.MustParseAddrPort
	want := []Service{{
		Namespace: "default", Name: "web", Port: 80, VIP: netip.MustParseAddr("10.200.0.10"),
		Protocol: "tcp", OnEmpty: "pass", Balance: "default", Hosts: []string{}, Routes: []Route{},
		Intercept: []netip.AddrPort{addr("127.0.0.1:8001")},
		Instances: []Instance{{
			ID: "web-1", Address: addr("127.0.0.1:9001"), HostPort: 19001, Weight: 1,
			Checks: []Check{{HTTP: "/healthz", Interval: 2 * time.Second, Timeout: time.Second, SuccessBeforePassing: 1, FailuresBeforeCritical: 1}},
		}},
	}}
	if !reflect.DeepEqual(cfg.Services, want) {
		t.Errorf("services %+v\nwant %+v", cfg.Services, want)
	}
	if got := cfg.AdvertiseAddr(); got != addr("10.9.0.1:7400") {
		t.Errorf("advertise %s", got)
	}
	if got := cfg.Plugins["l7"]["listen"]; got != "127.0.0.1:8080" {
		t.Errorf("plugins.l7.listen = %v", got)
	}
}

// Each key is set in all layers below one, and that one has to win.
func TestPrecedenceAndOrigin(t *testing.T) {
	file := "cluster:\n  name: from-file\n"
	env := []string{"FAIRLEAD_CLUSTER_NAME=from-env"}
	args := []string{"--cluster.name=from-flag"}
	for _, tc := range []struct {
		layers        sources
		value, origin string
	}{
		{sources{file: "-"}, "fairlead", "default"},
		{sources{file: file}, "from-file", testFile + ":2"},
		{sources{file: file, env: env}, "from-env", "env FAIRLEAD_CLUSTER_NAME"},
		{sources{file: file, env: env, args: args}, "from-flag", "flag --cluster.name"},
		{sources{file: file, env: env, args: []string{}}, "from-env", "env FAIRLEAD_CLUSTER_NAME"},
		{sources{file: "-", args: args}, "from-flag", "flag --cluster.name"},
	} {
		cfg, origins, _ := mustLoad(t, tc.layers)
		if cfg.Cluster.Name != tc.value || origins.Of("cluster.name").String() != tc.origin {
			t.Errorf("%+v: %s from %s, want %s from %s", tc.layers, cfg.Cluster.Name, origins.Of("cluster.name"), tc.value, tc.origin)
		}
	}
}

// "A written value counts, 0, false and "" included": in each layer, over
// values below it that differ.
func TestWrittenZeroValuesCount(t *testing.T) {
	full := `
cluster: {server: true, bootstrap_expect: 3, join: ["10.0.0.1"], secret_file: /s}
api: {socket: /run/x.sock, listen: "127.0.0.1:1"}
dataplane: l7
vip_pools: [10.1.0.0/16]
services: [{name: web, port: 80}]
`
	zero := map[string]func(*Config) any{
		"cluster.server":           func(c *Config) any { return c.Cluster.Server },
		"cluster.bootstrap_expect": func(c *Config) any { return c.Cluster.BootstrapExpect },
		"cluster.join":             func(c *Config) any { return len(c.Cluster.Join) },
		"cluster.secret_file":      func(c *Config) any { return c.Cluster.SecretFile },
		"api.socket":               func(c *Config) any { return c.API.Socket },
		"api.listen":               func(c *Config) any { return c.API.Listen.AddrPort().IsValid() },
		"dataplane":                func(c *Config) any { return len(c.Dataplane) },
		"vip_pools":                func(c *Config) any { return len(c.VIPPools) },
		"services":                 func(c *Config) any { return len(c.Services) },
	}
	layers := map[string]sources{
		"file": {file: `
cluster: {server: false, bootstrap_expect: 0, join: [], secret_file: ""}
api: {socket: "", listen: ""}
dataplane: ""
vip_pools: []
services: []
`},
		"env": {file: full, env: []string{
			"FAIRLEAD_CLUSTER_SERVER=false", "FAIRLEAD_CLUSTER_BOOTSTRAP_EXPECT=0", "FAIRLEAD_CLUSTER_JOIN=", "FAIRLEAD_CLUSTER_SECRET_FILE=",
			"FAIRLEAD_API_SOCKET=", "FAIRLEAD_API_LISTEN=", "FAIRLEAD_DATAPLANE=", "FAIRLEAD_VIP_POOLS=", "FAIRLEAD_SERVICES=",
		}},
		"flag": {file: full, args: []string{
			"--cluster.server=false", "--cluster.bootstrap_expect=0", "--cluster.join=", "--cluster.secret_file=",
			"--api.socket=", "--api.listen=", "--dataplane=", "--vip_pools=", "--services=",
		}},
	}
	for name, s := range layers {
		cfg, origins, _ := mustLoad(t, s)
		for key, get := range zero {
			if got := get(cfg); !reflect.ValueOf(got).IsZero() {
				t.Errorf("%s: %s = %v, want the written zero value", name, key, got)
			}
			if o := origins.Of(key).String(); o == "default" || (name != "file" && !strings.HasPrefix(o, name)) {
				t.Errorf("%s: origin of %s is %s", name, key, o)
			}
		}
	}
}

func TestEmptyWhereNoValueIsEmpty(t *testing.T) {
	wantErrors(t, sources{file: "-", env: []string{
		"FAIRLEAD_CLUSTER_SERVER=", "FAIRLEAD_RAFT_VOTERS=", "FAIRLEAD_RAFT_ELECTION=", "FAIRLEAD_LOG_LEVEL=",
	}},
		"env FAIRLEAD_CLUSTER_SERVER: cluster.server: is empty; expected true or false, or nothing at all to have the default",
		"env FAIRLEAD_RAFT_ELECTION: raft.election: is empty; expected a duration",
		"env FAIRLEAD_RAFT_VOTERS: raft.voters: is empty; expected a whole number",
		`env FAIRLEAD_LOG_LEVEL: log.level: is ""; expected debug, info, warn, error`,
	)
}

func TestOffAndPortZero(t *testing.T) {
	cfg, _, _ := mustLoad(t, sources{
		file: "api: {socket: off, listen: off}\ngossip: {bind: 127.0.0.1:0}\ndataplane: off\n",
		env:  []string{"FAIRLEAD_HTTP_LISTEN=off"}, args: []string{"--dns.listen=off", "--rpc.listen=[::1]:0", "--cluster.secret_file=/s"},
	})
	if !cfg.API.Listen.Off() || !cfg.HTTP.Listen.Off() || !cfg.DNS.Listen.Off() || cfg.API.SocketPath() != "" || len(cfg.Dataplane) != 0 {
		t.Errorf("off is not off: %+v", cfg)
	}
	if cfg.Gossip.Bind.Port() != 0 || cfg.RPC.Listen.Off() {
		t.Errorf("port 0: bind %s, rpc %s", cfg.Gossip.Bind, cfg.RPC.Listen)
	}
	if cfg.Node.Name != "h1" || Defaults().API.SocketPath() == "" {
		t.Error("name or socket lost")
	}
}

func TestListsInVariablesAndFlags(t *testing.T) {
	want := []string{"10.0.0.1:7400", "seed.example.com:7400", "[fd00::2]:7400"}
	for _, s := range []sources{
		{file: "-", env: []string{"FAIRLEAD_CLUSTER_JOIN= 10.0.0.1:7400 , seed.example.com,, fd00::2,"}},
		{file: "-", args: []string{"--cluster.join=10.0.0.1", "--cluster.join=seed.example.com,[fd00::2]"}},
		{file: "cluster: {join: [10.0.0.1, seed.example.com, 'fd00::2']}"},
	} {
		cfg, _, _ := mustLoad(t, s)
		if got := cfg.JoinAddresses(); !reflect.DeepEqual(got, want) {
			t.Errorf("%+v: %q, want %q", s, got, want)
		}
	}
	cfg, origins, _ := mustLoad(t, sources{
		file: "services: [{name: a, namespace: x, port: 1}]\nnode: {name: n2}\nraft: {peers: [{name: a, addr: '10.0.0.1:7401'}]}",
		env:  []string{`FAIRLEAD_SERVICES=[{"name":"b","port":2}]`}, args: []string{"--raft.peers=- {name: n2, addr: '10.0.0.2:7401'}"},
	})
	if len(cfg.Services) != 1 || cfg.Services[0].Name != "b" || cfg.Services[0].Namespace != "default" {
		t.Errorf("services %+v", cfg.Services)
	}
	if len(cfg.Raft.Peers) != 1 || cfg.Raft.Peers[0].Name != "n2" {
		t.Errorf("peers %+v", cfg.Raft.Peers)
	}
	if got := origins.Of("services[0].namespace").String(); got != "env FAIRLEAD_SERVICES" {
		t.Errorf("origin of a list entry is %s; the file's must be forgotten", got)
	}
	wantErrors(t, sources{file: "cluster: {join: [a, b]}", env: []string{"FAIRLEAD_CLUSTER_JOIN=a,b:x"}},
		`env FAIRLEAD_CLUSTER_JOIN: cluster.join[1]: is "b:x"`)
}

func TestAliasFlag(t *testing.T) {
	cfg, origins, _ := mustLoad(t, sources{file: "-", args: []string{"--advertise-address=127.0.0.9:17400"}})
	if cfg.AdvertiseAddr() != netip.MustParseAddrPort("127.0.0.9:17400") || origins.Of("node.advertise").String() != "flag --advertise-address" {
		t.Errorf("%s from %s", cfg.AdvertiseAddr(), origins.Of("node.advertise"))
	}
	wantErrors(t, sources{file: "-", args: []string{"--advertise-address=127.0.0.9", "--node.advertise=127.0.0.8"}},
		"flag --advertise-address: node.advertise: is the same key as --node.advertise, which is also set; keep one")
}

func TestAdvertiseIsOneFormOfAnAddress(t *testing.T) {
	for written, want := range map[string]string{
		"::ffff:127.0.0.9": "127.0.0.9:7400", "[::ffff:127.0.0.9]:1": "127.0.0.9:1", "[::1]": "[::1]:7400", "::1": "[::1]:7400",
	} {
		cfg, _, _ := mustLoad(t, sources{file: "-", env: []string{"FAIRLEAD_NODE_ADVERTISE=" + written}})
		if got := cfg.AdvertiseAddr().String(); got != want {
			t.Errorf("%s: %s, want %s", written, got, want)
		}
	}
}

// It may be right behind a redirect, so it is no error.
func TestAdvertiseBeyondALoopbackBindWarns(t *testing.T) {
	_, _, warnings := mustLoad(t, sources{file: "node: {advertise: 10.9.0.1}"})
	want := testFile + ":1: node.advertise is 10.9.0.1, but gossip.bind 127.0.0.1:7400 listens on loopback only, so other hosts reach it only through a redirect; set gossip.bind"
	if len(warnings) != 1 || warnings[0] != want {
		t.Errorf("got %q, want %q", warnings, want)
	}
}

func TestDerivedRPCListen(t *testing.T) {
	for _, tc := range []struct {
		file, want string
	}{
		{"", "off"},
		{"cluster: {secret_file: /s}", "127.0.0.1:7401"},
		{"cluster: {secret_file: /s}\ngossip: {bind: '10.0.0.1:7400', insecure: true}", "10.0.0.1:7401"},
		{"cluster: {secret_file: /s}\nrpc: {listen: off}", "off"},
		{"cluster: {secret_file: /s}\nrpc: {listen: '127.0.0.1:1'}", "127.0.0.1:1"},
	} {
		if cfg, _, _ := mustLoad(t, sources{file: tc.file}); cfg.RPC.Listen.String() != tc.want {
			t.Errorf("%s: rpc.listen %s, want %s", tc.file, cfg.RPC.Listen, tc.want)
		}
	}
}

func TestUnreadableFile(t *testing.T) {
	_, _, _, err := Load(Options{File: "/nope.yaml", Hostname: "h1", ReadFile: func(string) ([]byte, error) { return nil, fs.ErrNotExist }})
	if !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("cause lost: %v", err)
	}
	if want := "config: /nope.yaml: cannot read the configuration file; give a readable file with --config: file does not exist"; err.Error() != want {
		t.Errorf("got  %s\nwant %s", err, want)
	}
}

func TestWarningsForWrittenKeysOnly(t *testing.T) {
	_, _, warnings := mustLoad(t, sources{
		file: "plugins: {l7: {listen: x}}\nservices: [{name: a, port: 1}]\nvip_pools: []\nnode: {name: a}\ncluster: {bootstrap_expect: -1, server: true, secret_file: ''}\n",
		env:  []string{"FAIRLEAD_RAFT_VOTERS=5"}, args: []string{"--dns.listen=off"},
	})
	want := []string{
		"flag --dns.listen: dns.listen is accepted but this version does not use it yet",
	}
	if !reflect.DeepEqual(warnings, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(warnings, "\n"), strings.Join(want, "\n"))
	}
}

// A row that names no key would warn about nothing, for ever.
func TestUnbuiltRowsNameKeys(t *testing.T) {
	for _, row := range unbuilt() {
		found := false
		for _, k := range Keys() {
			found = found || k.Path == row || (strings.HasSuffix(row, ".") && strings.HasPrefix(k.Path, row))
		}
		if !found {
			t.Errorf("unbuilt row %q matches no key", row)
		}
	}
}

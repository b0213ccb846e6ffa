package config

import (
	"strings"
	"testing"
)

func TestRules(t *testing.T) {
	service := func(s string) string { return "services: [" + s + "]" }
	instance := func(s string) string { return service("{name: a, port: 1, instances: [" + s + "]}") }
	check := func(s string) string { return instance("{id: a, address: '127.0.0.1:1', checks: [" + s + "]}") }
	name63, name64 := strings.Repeat("a", 63), strings.Repeat("a", 64)
	open := "gossip: {bind: '0.0.0.0:7400', insecure: true}\n"

	for name, tc := range map[string]struct {
		file string
		want string // part of the only finding; "" if the file is right
	}{
		"name longest":     {"node: {name: " + name63 + "}\ncluster: {name: " + name63 + "}", ""},
		"name charset":     {"node: {name: Web_1.site-A}", ""},
		"name too long":    {"node: {name: " + name64 + "}", "node.name: is \"" + name64 + "\"; a name has 1 to 63"},
		"name empty":       {"node: {name: ''}", `1:14: node.name: is ""; a name has`},
		"name blank":       {"node: {name: 'a b'}", `node.name: is "a b"`},
		"name umlaut":      {"node: {name: zürich}", "node.name: is"},
		"name hyphen":      {"node: {name: -a}", `node.name: is "-a"`},
		"cluster empty":    {"cluster: {name: ''}", `cluster.name: is ""`},
		"cluster too long": {"cluster: {name: " + name64 + "}", "cluster.name: is"},
		"no data dir":      {"node: {data_dir: ''}", "node.data_dir: is empty; name a directory, or set node.in_memory: true"},
		"in memory":        {"node: {data_dir: '', in_memory: true}", ""},

		"advertise ip and port":  {open + "node: {advertise: '10.9.0.1:17400'}", ""},
		"advertise v6":           {open + "node: {advertise: 'fd00::1'}", ""},
		"advertise missing":      {open, "node.advertise: is needed because gossip.bind is 0.0.0.0:7400, which names no address; set node.advertise"},
		"advertise missing v6":   {"gossip: {bind: '[::]:7400', insecure: true}", "node.advertise: is needed because gossip.bind is [::]:7400"},
		"advertise unspecified":  {open + "node: {advertise: 0.0.0.0}", "node.advertise: is 0.0.0.0, which no other node can reach"},
		"advertise v6 any":       {open + "node: {advertise: '[::]:7400'}", "node.advertise: is [::]:7400, which no other node can reach"},
		"advertise multicast":    {open + "node: {advertise: 224.0.0.1}", "not the address of one host"},
		"advertise broadcast":    {open + "node: {advertise: 255.255.255.255}", "not the address of one host"},
		"advertise zone":         {open + "node: {advertise: 'fe80::1%eth0'}", `the zone "eth0" means nothing on other hosts`},
		"advertise unreachable":  {"gossip: {bind: '10.0.0.1:7400', insecure: true}\nnode: {advertise: 127.0.0.1}", "is the loopback address 127.0.0.1, but gossip.bind 10.0.0.1:7400 does not listen there"},
		"advertise behind a NAT": {"gossip: {bind: '10.0.0.1:7400', insecure: true}\nnode: {advertise: 192.0.2.1}", ""},

		"gossip beyond loopback": {"gossip: {bind: '10.0.0.1:7400'}", "1:16: gossip.bind: is 10.0.0.1:7400, beyond loopback, but gossip is not encrypted yet: anyone who reaches the port can forge membership; protect the port by other means and set gossip.insecure: true, or bind to 127.0.0.1"},
		"gossip any":             {"gossip: {bind: '0.0.0.0:7400'}\nnode: {advertise: 10.0.0.1}", "set gossip.insecure: true"},
		"gossip loopback net":    {"gossip: {bind: '127.8.0.1:7400'}", ""},
		"gossip loopback v6":     {"gossip: {bind: '[::1]:7400'}", ""},
		"gossip with a secret":   {"gossip: {bind: '10.0.0.1:7400'}\ncluster: {secret_file: /s}", "gossip.insecure: true"},
		"gossip empty":           {"gossip: {bind: ''}", "gossip.bind: is empty"},
		"gossip multicast":       {"gossip: {bind: '224.0.0.1:7400', insecure: true}", "gossip.bind: is the multicast address"},

		"join forms":        {"cluster: {join: [10.0.0.1, '10.0.0.1:1', 'fd00::1', '[fd00::1]', '[fd00::1]:7400', seed, seed.example.com., 'Seed_1.example:7400']}", ""},
		"join port 0":       {"cluster: {join: ['10.0.0.1:0']}", `1:18: cluster.join[0]: is "10.0.0.1:0"; set host:port, such as 10.9.0.2:7400`},
		"join port":         {"cluster: {join: [a, 'a:x']}", `cluster.join[1]: is "a:x"`},
		"join large port":   {"cluster: {join: ['a:65536']}", "cluster.join[0]"},
		"join empty":        {"cluster: {join: ['']}", "cluster.join[0]"},
		"join no host":      {"cluster: {join: [':7400']}", "cluster.join[0]"},
		"join mistyped ip":  {"cluster: {join: ['10.0.0.256']}", "cluster.join[0]"},
		"join bare v6 port": {"cluster: {join: ['[fd00::1']}", "cluster.join[0]"},
		"join brackets v4":  {"cluster: {join: ['[10.0.0.1]:1']}", "cluster.join[0]"},
		"join any":          {"cluster: {join: ['0.0.0.0:7400']}", "0.0.0.0 is not the address of one host; set host:port"},
		"join url":          {"cluster: {join: ['http://a:7400']}", "cluster.join[0]"},
		"bootstrap zero":    {"cluster: {bootstrap_expect: 0}", ""},
		"bootstrap auto":    {"cluster: {bootstrap_expect: -1}", ""},
		"bootstrap minus":   {"cluster: {bootstrap_expect: -2}", "cluster.bootstrap_expect: is -2"},
		"bootstrap many":    {"cluster: {bootstrap_expect: 10}", "cluster.bootstrap_expect: is 10"},

		"heartbeat low":      {"raft: {heartbeat: 9ms}", "raft.heartbeat: is 9ms; set 10ms to 10s"},
		"heartbeat negative": {"raft: {heartbeat: -1s}", "raft.heartbeat: is -1s"},
		"election high":      {"raft: {election: 61s}", "raft.election: is 1m1s; set 50ms to 1m"},
		"election near":      {"raft: {election: 499ms}", "raft.election: is 499ms, less than 5 heartbeats of 100ms"},
		"election least":     {"raft: {election: 500ms}", ""},
		"voters even":        {"raft: {voters: 4}", "raft.voters: is 4; set 1, 3, 5, 7 or 9"},
		"voters zero":        {"raft: {voters: 0}", "raft.voters: is 0"},
		"voters minus":       {"raft: {voters: -1}", "raft.voters: is -1"},
		"voters many":        {"raft: {voters: 11}", "raft.voters: is 11"},

		"api open":          {"api: {listen: '0.0.0.0:7402'}", "api.listen: is 0.0.0.0:7402, beyond loopback, without TLS: whoever reaches the port controls the agent; set api.tls.cert and api.tls.key, or api.insecure: true"},
		"api insecure":      {"api: {listen: '0.0.0.0:7402', insecure: true}", ""},
		"api tls":           {"api: {listen: '0.0.0.0:7402', tls: {cert: c, key: k, client_ca: ca}}", ""},
		"api cert only":     {"api: {listen: '0.0.0.0:7402', tls: {cert: c}}", "api.tls.cert: is set without api.tls.key; set both or none"},
		"api key only":      {"api: {tls: {key: k}}", "api.tls.key: is set without api.tls.cert"},
		"api client ca":     {"api: {tls: {client_ca: ca}}", "api.tls.client_ca: is set without api.tls.cert"},
		"api socket long":   {"api: {socket: /" + strings.Repeat("s", maxSocketPath) + "}", "api.socket: has 101 bytes, but the path of a Unix socket may have 100"},
		"api socket fits":   {"api: {socket: /" + strings.Repeat("s", maxSocketPath-1) + "}", ""},
		"same port":         {"http: {listen: '127.0.0.1:7402'}", "http.listen: is 127.0.0.1:7402, which api.listen (default) uses too"},
		"same port 0":       {"http: {listen: '127.0.0.1:0'}\napi: {listen: '127.0.0.1:0'}", ""},
		"http beyond":       {"http: {listen: '0.0.0.0:7403'}", ""},
		"store etcd":        {"store: {kind: etcd, endpoints: ['10.0.0.1:2379', 'https://etcd.example:2379', 'http://[::1]:2379']}", ""},
		"store no endpoint": {"store: {kind: etcd}", "store.endpoints: is empty, but store.kind is etcd"},
		"store ignored":     {"store: {endpoints: ['a:1']}", "store.endpoints: is set, but store.kind is embedded"},
		"store endpoint":    {"store: {kind: etcd, endpoints: [etcd]}", `store.endpoints[0]: is "etcd"; set host:port`},
		"store cert":        {"store: {tls: {cert: c}}", "store.tls.cert: is set without store.tls.key"},

		"dataplane":        {"dataplane: iptables,l7,my-plane", ""},
		"dataplane two l4": {"dataplane: ebpf,l7,iptables", ""}, // iptables may be there for forwarded traffic only
		"dataplane twice":  {"dataplane: l7,l7", "dataplane: names l7 twice"},
		"dataplane name":   {"dataplane: L7", `dataplane: names the provider "L7"`},
		"dataplane dash":   {"dataplane: -l7", "dataplane: names the provider"},
		"dataplane off":    {"dataplane: 'off,l7'", "dataplane: holds off beside other names"},

		"pools":         {"vip_pools: [10.1.0.0/16, 'fd00:1::/64', 10.2.0.0/30]", ""},
		"pool bits":     {"vip_pools: [10.1.0.1/16]", "vip_pools[0]: is 10.1.0.1/16, which has bits beyond the prefix length; set 10.1.0.0/16"},
		"pool loopback": {"vip_pools: [127.0.0.0/8]", "a VIP cannot be a loopback"},
		"pool small":    {"vip_pools: [10.1.0.0/31]", "with room for no VIP"},
		"pool overlap":  {"vip_pools: [10.0.0.0/8, 10.1.0.0/16]", "vip_pools[1]: is 10.1.0.0/16, which overlaps 10.0.0.0/8 of vip_pools[0]"},
		"pool empty":    {"vip_pools: ['']", "vip_pools[0]: is empty"},
		"zone":          {"dns: {zone: a.b.}", ""},
		"zone empty":    {"dns: {zone: ''}", `dns.zone: is ""`},
		"zone blank":    {"dns: {zone: 'a b'}", "dns.zone: is"},
		"zone long":     {"dns: {zone: " + strings.Repeat("a.", 101) + "aa}", "dns.zone: has 204 bytes"},
		"shutdown":      {"shutdown_timeout: 0", "shutdown_timeout: is 0s; set 100ms to 10m"},
		"shutdown long": {"shutdown_timeout: 11m", "shutdown_timeout: is 11m"},

		"service":           {service("{name: a, port: 1}, {name: a, namespace: b, port: 1}"), ""},
		"service name":      {service("{name: A, port: 1}"), `services[0].name: is "A"; a name has 1 to 63 lower-case`},
		"service unnamed":   {service("{port: 1}"), `services[0].name: is ""`},
		"service namespace": {service("{name: a, namespace: a_b, port: 1}"), "services[0].namespace"},
		"service built in":  {service("{name: a, namespace: raft, port: 1}"), "services[0].namespace: is raft, which has the services that the servers of the store publish themselves"},
		"service twice":     {service("{name: a, port: 1}, {name: a, namespace: default, port: 1}"), "services[1].name: is default/a, like services[0]"},
		"service port 0":    {service("{name: a, port: 0}"), "services[0].port: is 0 or missing"},
		"service vip":       {service("{name: a, port: 1, vip: 127.0.0.1}"), "services[0].vip: is 127.0.0.1"},
		"intercept port":    {service("{name: a, port: 1, intercept: ['127.0.0.1:0']}"), "services[0].intercept[0]: is \"127.0.0.1:0\""},
		"intercept twice":   {service("{name: a, port: 1, intercept: ['127.0.0.1:1']}, {name: b, port: 1, intercept: ['127.0.0.1:1']}"), "services[1].intercept[0]: is 127.0.0.1:1, which services[0].intercept[0] captures too"},
		"instance id":       {instance("{address: '127.0.0.1:1'}"), `services[0].instances[0].id: is ""`},
		"instance twice":    {instance("{id: a, address: '127.0.0.1:1'}, {id: a, address: '127.0.0.1:2'}"), `services[0].instances[1].id: is "a", like that of instances[0]`},
		"instance address":  {instance("{id: a}"), `services[0].instances[0].address: is ""; set the ip:port`},
		"instance any":      {instance("{id: a, address: '0.0.0.0:1'}"), "services[0].instances[0].address"},
		"instance weight 0": {instance("{id: a, address: '127.0.0.1:1', weight: 0}"), ""},
		"instance weight":   {instance("{id: a, address: '127.0.0.1:1', weight: 65536}"), "services[0].instances[0].weight: is 65536; set 0 to 65535"},

		"protocol":            {service("{name: a, port: 1, protocol: both}"), ""},
		"protocol sctp":       {service("{name: a, port: 1, protocol: sctp}"), `services[0].protocol: is "sctp"; expected tcp, udp, both`},
		"on_empty":            {service("{name: a, port: 1, on_empty: drop}"), `services[0].on_empty: is "drop"; expected pass, refuse`},
		"balance":             {service("{name: a, port: 1, balance: roundrobin}"), `services[0].balance: is "roundrobin"; expected default, random, round-robin, least-load, hash; did you mean round-robin?`},
		"affinity":            {service("{name: a, port: 1, affinity: 25h}"), "services[0].affinity: is 25h; set 0s to 24h"},
		"drain":               {service("{name: a, port: 1, drain: -1s}"), "services[0].drain: is -1s; set 0s to 1h"},
		"hosts":               {service("{name: a, port: 1, hosts: [shop.example.com, Shop, 'x.y.', '[fd00::1]', 10.0.0.1, '*.example.com', '*']}"), ""},
		"host with a port":    {service("{name: a, port: 1, hosts: ['shop:80']}"), `services[0].hosts[0]: is "shop:80"; set a host as requests name it, without a port`},
		"host with a star":    {service("{name: a, port: 1, hosts: ['a.*.example.com']}"), `services[0].hosts[0]: is "a.*.example.com"`},
		"host of a star":      {service("{name: a, port: 1, hosts: ['*.']}"), `services[0].hosts[0]: is "*."`},
		"host empty":          {service("{name: a, port: 1, hosts: ['']}"), `services[0].hosts[0]: is ""`},
		"route":               {service("{name: a, port: 1, routes: [{path_prefix: /api, methods: [GET], headers: {x-a: b}}]}"), ""},
		"route empty":         {service("{name: a, port: 1, routes: [{}]}"), "services[0].routes[0]: matches every request; set at least one of"},
		"route prefix":        {service("{name: a, port: 1, routes: [{path_prefix: api}]}"), `services[0].routes[0].path_prefix: is "api"; set how the path begins`},
		"route host":          {service("{name: a, port: 1, routes: [{host: a/b}]}"), `services[0].routes[0].host: is "a/b"`},
		"route method":        {service("{name: a, port: 1, routes: [{methods: [get]}]}"), `services[0].routes[0].methods[0]: is "get"; set a method in capitals`},
		"route header":        {service("{name: a, port: 1, routes: [{headers: {'a b': c}}]}"), `services[0].routes[0].headers: names the header "a b"`},
		"route header number": {service("{name: a, port: 1, routes: [{headers: {a: [b]}}]}"), "services[0].routes[0].headers.a: is a list; expected text"},

		"check":              {check("{http: /healthz, interval: 1s}"), ""},
		"check path":         {check("{http: healthz, interval: 1s}"), `services[0].instances[0].checks[0].http: is "healthz"; set the path`},
		"check url":          {check("{http: 'http://127.0.0.1:9001/x?y', interval: 1s}, {http: 'http://[::1]:1', interval: 1s}"), ""},
		"check url host":     {check("{http: 'http://web/x', interval: 1s}"), `checks[0].http: is "http://web/x"; set the path`},
		"check url https":    {check("{http: 'https://127.0.0.1:1/', interval: 1s}"), "checks[0].http: is"},
		"check tcp":          {check("{tcp: true, interval: 1s}, {tcp: '10.0.0.1:1', interval: 1s}"), ""},
		"check tcp name":     {check("{tcp: web, interval: 1s}"), `checks[0].tcp: is "web"; expected true, or ip:port`},
		"check tcp any":      {check("{tcp: '0.0.0.0:1', interval: 1s}"), "checks[0].tcp: is 0.0.0.0:1; set true, or the ip:port"},
		"check tcp false":    {check("{tcp: false, interval: 1s}"), "checks[0]: says not what to check"},
		"check grpc":         {check("{grpc: '', interval: 1s}, {grpc: a.B, interval: 1s}"), ""},
		"check grpc blank":   {check("{grpc: 'a b', interval: 1s}"), `checks[0].grpc: is "a b"; expected the name of a service`},
		"check unknown":      {check("{icmp: x, http: /, interval: 1s}"), "checks[0].icmp: unknown key"},
		"check no kind":      {check("{interval: 1s}"), "checks[0]: says not what to check; set one of http, tcp and grpc"},
		"check two kinds":    {check("{http: /, tcp: true, interval: 1s}"), "checks[0]: is http and tcp at once; make each a check of its own"},
		"check no interval":  {check("{http: /}"), "checks[0].interval: is 0s or missing; set the time between two checks, 100ms to 1h"},
		"check interval":     {check("{http: /, interval: 10ms, timeout: 5ms}"), "checks[0].interval: is 10ms; set 100ms to 1h"},
		"check timeout":      {check("{http: /, interval: 1s, timeout: 2s}"), "checks[0].timeout: is 2s, longer than the interval of 1s"},
		"check timeout is 0": {check("{http: /, interval: 1s, timeout: 0}"), "checks[0].timeout: is 0s"},
		"check short":        {check("{http: /, interval: 500ms}"), ""},
		"check count":        {check("{http: /, interval: 1s, failures_before_critical: 101}"), "checks[0].failures_before_critical: is 101; set 0 to 100"},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.want == "" {
				mustLoad(t, sources{file: tc.file})
				return
			}
			wantErrors(t, sources{file: tc.file}, tc.want)
		})
	}
}

func TestNoHostName(t *testing.T) {
	wantErrors(t, sources{file: "-", host: "-"}, "default: node.name: is not set and this host has no name; set node.name")
	wantErrors(t, sources{file: "-", host: "bad host"}, `default: node.name: is "bad host"`)
	mustLoad(t, sources{file: "node: {name: n1}", host: "-"})
}

// A Config made in Go is held to the same rules, without origins.
func TestValidateWithoutLoad(t *testing.T) {
	cfg := Defaults()
	cfg.Node.Name = "n1"
	if errs := cfg.Validate(nil); len(errs) != 0 {
		t.Fatal(errs)
	}
	cfg.Gossip.Profile, cfg.Store.Kind, cfg.Log.Level = "moon", "paper", "loud"
	errs := cfg.Validate(nil)
	if len(errs) != 3 || !strings.Contains(errs[0].Error(), `config: default: gossip.profile: is "moon"; expected lan, wan, local`) {
		t.Errorf("%v", errs)
	}
}

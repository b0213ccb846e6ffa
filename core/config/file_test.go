package config

import (
	"strings"
	"testing"
)

func TestStrictFile(t *testing.T) {
	at := testFile + ":"
	for name, tc := range map[string]struct {
		file string
		want []string
	}{
		"unknown key":            {"gossip:\n  bnid: x\n", []string{at + "2:3: gossip.bnid: unknown key; did you mean gossip.bind?"}},
		"unknown section":        {"gosip: {bind: x}\n", []string{at + "1:1: gosip: unknown key; did you mean gossip?"}},
		"key of another section": {"data_dir: /x\n", []string{at + "1:1: data_dir: unknown key; did you mean node.data_dir?"}},
		"hyphen for underscore":  {"node: {data-dir: /x}\n", []string{"node.data-dir: unknown key; did you mean node.data_dir?"}},
		"wild key":               {"gossip: {zzzzzz: 1}\n", []string{"unknown key; known here: bind, profile, insecure"}},
		"key in an entry":        {"services:\n- {name: a, prot: 1, port: 2}\n", []string{at + "2:13: services[0].prot: unknown key; did you mean services[0].port?"}},
		"nested entry":           {"services: [{name: a, port: 2, instances: [{id: a, adress: '1.2.3.4:5', address: '1.2.3.4:5'}]}]", []string{"services[0].instances[0].adress: unknown key; did you mean services[0].instances[0].address?"}},
		"empty key":              {"'': 1\n", []string{`"": unknown key`}},
		"control key":            {"\"a\\u001bb\": 1\n", []string{`"a\x1bb": unknown key`}},
		"duplicate":              {"log:\n  level: info\n  level: warn\n", []string{at + "3:3: log.level: written twice, first on line 2; keep one"}},
		"duplicate section":      {"log: {}\nlog: {}\n", []string{at + "2:1: log: written twice, first on line 1"}},
		"duplicate in plugin":    {"plugins: {x: {a: {b: 1, b: 2}}}", []string{"plugins.x.a.b: written twice"}},
		"bool wanted":            {"node: {in_memory: yes}\n", []string{at + `1:19: node.in_memory: is "yes"; expected true or false`}},
		"quoted bool":            {"node: {in_memory: 'true'}\n", []string{`is "true"; expected true or false without quotes`}},
		"number wanted":          {"raft: {voters: many}\n", []string{`raft.voters: is "many"; expected a whole number`}},
		"float for number":       {"raft: {voters: 3.0}\n", []string{`raft.voters: is "3.0"; expected a whole number`}},
		"hex for number":         {"raft: {voters: 0x3}\n", []string{`raft.voters: is "0x3"; expected a whole number`}},
		"huge number":            {"raft: {voters: 3000000000}\n", []string{"expected a whole number"}},
		"port too large":         {"services: [{name: a, port: 65536}]\n", []string{`services[0].port: is "65536"; expected a port from 0 to 65535`}},
		"unit missing":           {"raft: {election: 1000}\n", []string{`raft.election: is "1000"; expected a duration with its unit`}},
		"bool for text":          {"node: {name: true}\n", []string{`node.name: is "true"; expected text, so put it in quotes`}},
		"list for text":          {"node: {name: [a]}\n", []string{"node.name: is a list; expected text"}},
		"map for text":           {"node: {name: {a: 1}}\n", []string{"node.name: is a mapping; expected text"}},
		"text for list":          {"cluster: {join: 10.0.0.1}\n", []string{`cluster.join: is "10.0.0.1"; expected a list`}},
		"text for section":       {"node: n1\n", []string{`node: is "n1"; expected keys with values`}},
		"list at the root":       {"- node\n", []string{at + "1:1: is a list; expected keys with values"}},
		"text at the root":       {"hello\n", []string{at + `1:1: is "hello"; expected keys with values`}},
		"null value":             {"node:\n  name:\n", []string{at + "2:8: node.name: has no value; expected text; write a value or remove the line"}},
		"null list":              {"vip_pools:\n", []string{"vip_pools: has no value; expected a list"}},
		"null entry":             {"services:\n-\n", []string{"services[0]: has no value; expected keys"}},
		"not an address":         {"gossip: {bind: localhost:7400}\n", []string{`gossip.bind: is "localhost:7400"; expected ip:port such as 127.0.0.1:7400 or [::1]:7400`}},
		"listener without ip":    {"http: {listen: ':7403'}\n", []string{`http.listen: is ":7403"; expected ip:port such as 127.0.0.1:7400 or [::1]:7400, or off`}},
		"gossip cannot be off":   {"gossip: {bind: off}\n", []string{`gossip.bind: is "off"; expected ip:port`}},
		"not a prefix":           {"vip_pools: [10.0.0.0]\n", []string{at + `1:13: vip_pools[0]: is "10.0.0.0"; expected a prefix such as`}},
		"not an ip":              {"services: [{name: a, port: 1, vip: web}]\n", []string{`services[0].vip: is "web"; expected an IP address`}},
		"advertise name":         {"node: {advertise: myhost}\n", []string{`node.advertise: is "myhost"; expected an IP address such as 10.9.0.1, with or without a port`}},
		"advertise port 0":       {"node: {advertise: '127.0.0.1:0'}\n", []string{"port 0 cannot be advertised"}},
		"enum":                   {"gossip: {profile: lna}\n", []string{`gossip.profile: is "lna"; expected lan, wan, local; did you mean lan?`}},
		"control character":      {"node: {name: \"a\\x07b\"}\n", []string{`node.name: holds the control character '\a' at byte 1`}},
		"alias":                  {"node: {name: &n x}\ncluster: {name: *n}\n", []string{at + "2:17: cluster.name: aliases and anchors are not supported; write the value out"}},
		"alias to itself":        {"plugins: {l7: {a: &a [*a]}}\n", []string{"plugins.l7.a: aliases and anchors are not supported"}},
		"merge key":              {"node: &n {name: a}\ncluster:\n  <<: *n\n", []string{at + "3:3: cluster: keys are plain names here; aliases and merge keys are not supported"}},
		"mapping as key":         {"? {a: b}\n: c\n", []string{"keys are plain names here"}},
		"binary":                 {"node: {name: !!binary aGk=}\n", []string{"node.name: is \"aGk=\"; expected text"}},
		"own tag":                {"node: {name: !secret x}\n", []string{"node.name: is \"x\"; expected text"}},
		"second document":        {"log: {level: info}\n---\nlog: {level: warn}\n", []string{at + "2: a second document starts here; a configuration is one document, remove the --- line"}},
		"bad second document":    {"log: {level: info}\n---\n{\n", []string{"not valid YAML"}},
		"tab":                    {"node:\n\tname: a\n", []string{at + "2: not valid YAML: this line is indented with a tab; YAML wants spaces"}},
		"unclosed":               {"node: {name: a\n", []string{"not valid YAML: did not find expected ',' or '}'"}},
		"not text":               {"\xff\xfe\xff", []string{"not valid YAML: "}},
		"invalid utf-8":          {"node: {name: \xff}\n", []string{"not valid YAML: "}},
		"NUL":                    {"node: {name: \x00}\n", []string{"not valid YAML: control characters are not allowed"}},
		"too large":              {strings.Repeat("#", maxFileBytes+1), []string{"has 4194305 bytes, more than the 4194304 allowed"}},
		"plugin name":            {"plugins: {L7: {}}\n", []string{"plugins.L7: a plugin's name has 1 to 63 lower-case letters"}},
		"plugin infinity":        {"plugins: {l7: {a: .inf}}\n", []string{`plugins.l7.a: is ".inf"; expected text, a number of 64 bits`}},
		"plugin huge number":     {"plugins: {l7: {a: 18446744073709551615}}\n", []string{"expected text, a number of 64 bits"}},
		"plugin null":            {"plugins: {l7: {a: }}\n", []string{"plugins.l7.a: has no value"}},
		"plugin not a map":       {"plugins: {l7: 5}\n", []string{`plugins.l7: is "5"; expected keys with values`}},
		"long value":             {"log: {level: " + strings.Repeat("x", 1000) + "}\n", []string{strings.Repeat("x", 64) + `"…; expected`}},
		"all are reported": {"nod: 1\nlog: {levle: info, format: xml}\nraft: {voters: 2}\ngossip: {bind: '0.0.0.0:7400'}\nnode: {advertise: 10.0.0.1}\n", []string{
			at + "1:1: nod: unknown key; did you mean node?",
			at + "2:7: log.levle: unknown key; did you mean log.level?",
			at + `2:28: log.format: is "xml"; expected text, json`,
			at + "3:16: raft.voters: is 2; set 1, 3, 5, 7 or 9",
			at + "4:16: gossip.bind: is 0.0.0.0:7400, beyond loopback",
		}},
	} {
		t.Run(name, func(t *testing.T) { wantErrors(t, sources{file: tc.file}, tc.want...) })
	}
}

func TestLenientFile(t *testing.T) {
	for name, file := range map[string]string{
		"empty":               "",
		"comments only":       "# nothing\n\n",
		"document mark only":  "---\n",
		"end mark":            "log: {level: warn}\n...\n",
		"byte order mark":     "\ufefflog: {level: warn}\n",
		"windows lines":       "log:\r\n  level: warn\r\n",
		"sections of comment": "node:\n  # name: a\nlog:\nplugins:\n  l7:\n",
		"null root":           "null\n",
		"json":                `{"log": {"level": "warn"}}`,
		"number as a name":    "node: {name: 7}\n",
		"date as a name":      "node: {name: 2001-01-01}\n",
		"tab after a value":   "log: {level: warn}\t# comment\n",
		"dataplane as a list": "dataplane: [ebpf, l7]\n",
		"v4 mapped advertise": "node: {advertise: '::ffff:127.0.0.1'}\n",
		"free plugin values":  "plugins: {l7: {a: 1, b: 1.5, c: true, d: [x, {y: z}], e: '0123', f: 2001-01-01}}\n",
	} {
		t.Run(name, func(t *testing.T) {
			cfg, _, _ := mustLoad(t, sources{file: file})
			if strings.Contains(file, "warn") && cfg.Log.Level != "warn" {
				t.Errorf("level %s", cfg.Log.Level)
			}
		})
	}
}

// A value that cannot be read is reported once, not again by the rules that
// would see the default in its place.
func TestUnreadableValueSilencesItsRules(t *testing.T) {
	wantErrors(t, sources{file: "gossip: {bind: '10.0.0.1:7400', insecure: maybe}\n"}, `gossip.insecure: is "maybe"`)
	wantErrors(t, sources{file: "store: {kind: redis, endpoints: ['a:1']}\n"}, `store.kind: is "redis"`)
	wantErrors(t, sources{file: "services: [{name: a, port: x}]\n"}, `services[0].port: is "x"`)
}

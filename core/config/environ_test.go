package config

import "testing"

func TestEnvironmentNames(t *testing.T) {
	wantErrors(t, sources{file: "-", env: []string{
		"FAIRLEAD_CLUSTER_NMAE=x", "FAIRLEAD_FOO=1", "FAIRLEAD_L7_LISTEN=127.0.0.1:1", "FAIRLEAD_PLUGIN_X=1", "FAIRLEAD_PLUGIN_=1",
		"FAIRLEAD_PLUGIN_DIR=/x", "FAIRLEAD_SERVICES_0_NAME=web", "FAIRLEAD_=1", "FAIRLEAD_node_name=x",
	}},
		"env FAIRLEAD_: unknown variable; unset it, or correct its name",
		"env FAIRLEAD_CLUSTER_NMAE: unknown variable; unset it, or correct its name; did you mean FAIRLEAD_CLUSTER_NAME?",
		"env FAIRLEAD_FOO: unknown variable",
		"env FAIRLEAD_L7_LISTEN: is for an L7 proxy that runs by itself; for the one of this agent use FAIRLEAD_PLUGIN_L7_LISTEN",
		"env FAIRLEAD_PLUGIN_: does not name a plugin's setting; the form is FAIRLEAD_PLUGIN_<NAME>_<KEY>",
		"env FAIRLEAD_PLUGIN_DIR: does not name a plugin's setting",
		"env FAIRLEAD_PLUGIN_X: does not name a plugin's setting",
		"env FAIRLEAD_SERVICES_0_NAME: unknown variable",
		"env FAIRLEAD_node_name: unknown variable; unset it, or correct its name; did you mean FAIRLEAD_NODE_NAME?",
	)
}

func TestReservedAndForeignVariables(t *testing.T) {
	_, origins, _ := mustLoad(t, sources{file: "-", env: []string{
		"FAIRLEAD_API=/run/x.sock", "FAIRLEAD_PLUGIN_DIRS=/a:/b", "FAIRLEAD_BIN=/usr/bin/fairlead", "FAIRLEAD_TEST_SCALE=0.1",
		"PATH=/bin", "MYFAIRLEAD_X=1", "garbage", "=",
	}})
	if len(origins) != 0 {
		t.Errorf("origins %v", origins)
	}
}

func TestWrongValuesNameTheVariable(t *testing.T) {
	wantErrors(t, sources{file: "-", env: []string{
		"FAIRLEAD_RAFT_VOTERS=x", "FAIRLEAD_GOSSIP_BIND=x", "FAIRLEAD_NODE_IN_MEMORY=maybe", "FAIRLEAD_VIP_POOLS=10.0.0.0/8,x",
		"FAIRLEAD_SERVICES=[{", "FAIRLEAD_RAFT_PEERS=[{nmae: a}]", "FAIRLEAD_HTTP_LISTEN=x", "FAIRLEAD_RAFT_ELECTION=10",
		"FAIRLEAD_CLUSTER_NAME=a\x1bb", "FAIRLEAD_LOG_FORMAT=jsn", "FAIRLEAD_STORE_KIND=etcd",
	}},
		`env FAIRLEAD_NODE_IN_MEMORY: node.in_memory: is "maybe"; expected true or false`,
		`env FAIRLEAD_CLUSTER_NAME: cluster.name: holds the control character`,
		`env FAIRLEAD_GOSSIP_BIND: gossip.bind: is "x"; expected ip:port`,
		`env FAIRLEAD_RAFT_ELECTION: raft.election: is "10"; expected a duration with its unit`,
		`env FAIRLEAD_RAFT_VOTERS: raft.voters: is "x"; expected a whole number`,
		`env FAIRLEAD_RAFT_PEERS: raft.peers[0].nmae: unknown key; did you mean raft.peers[0].name?`,
		`env FAIRLEAD_HTTP_LISTEN: http.listen: is "x"; expected ip:port such as 127.0.0.1:7400 or [::1]:7400, or off`,
		`env FAIRLEAD_VIP_POOLS: vip_pools: is "10.0.0.0/8,x"; expected a prefix`,
		`env FAIRLEAD_SERVICES: services: not valid YAML`,
		`env FAIRLEAD_LOG_FORMAT: log.format: is "jsn"; expected text, json; did you mean json?`,
		`default: store.endpoints: is empty, but store.kind is etcd`,
	)
}

func TestLastOfTwoEqualVariablesCounts(t *testing.T) {
	cfg, _, _ := mustLoad(t, sources{file: "-", env: []string{"FAIRLEAD_NODE_NAME=a", "FAIRLEAD_NODE_NAME=b=c"[:20]}})
	if cfg.Node.Name != "b" {
		t.Errorf("name %q", cfg.Node.Name)
	}
}

func TestPluginVariables(t *testing.T) {
	cfg, origins, _ := mustLoad(t, sources{
		file: "dataplane: my-plane\nplugins:\n  l7: {listen: a, mode: x}\n  my: {a: 1}\n",
		env: []string{
			"FAIRLEAD_PLUGIN_L7_LISTEN=127.0.0.1:1", "FAIRLEAD_PLUGIN_MY_PLANE_MAX_ENTRIES=007", "FAIRLEAD_PLUGIN_MY_X=",
			"FAIRLEAD_PLUGIN_OTHER_SOME_KEY=v", `FAIRLEAD_PLUGINS={"my": {"b": 2}, "l7": {listen: y}}`,
		},
		args: []string{"--plugins=l7: {mode: z}"},
	})
	for _, tc := range []struct {
		plugin, key string
		value       any
		origin      string
	}{
		{"l7", "listen", "127.0.0.1:1", "env FAIRLEAD_PLUGIN_L7_LISTEN"},
		{"l7", "mode", "z", "flag --plugins"},
		{"my", "a", 1, testFile + ":4"},
		{"my", "b", 2, "env FAIRLEAD_PLUGINS"},
		{"my", "x", "", "env FAIRLEAD_PLUGIN_MY_X"},
		{"my-plane", "max_entries", "007", "env FAIRLEAD_PLUGIN_MY_PLANE_MAX_ENTRIES"},
		{"other", "some_key", "v", "env FAIRLEAD_PLUGIN_OTHER_SOME_KEY"},
	} {
		if got := cfg.Plugins[tc.plugin][tc.key]; got != tc.value {
			t.Errorf("%s.%s = %#v, want %#v", tc.plugin, tc.key, got, tc.value)
		}
		if got := origins.Of("plugins." + tc.plugin + "." + tc.key).String(); got != tc.origin {
			t.Errorf("origin of %s.%s is %s, want %s", tc.plugin, tc.key, got, tc.origin)
		}
	}
}

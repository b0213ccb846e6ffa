package config

import (
	"fmt"
	"strings"
	"testing"
)

// setOf is a file with a static set of so many servers, h1 being the first, and
// further lines.
func setOf(n int, lines ...string) sources {
	var peers []string
	for i := 1; i <= n; i++ {
		peers = append(peers, fmt.Sprintf("{name: h%d, addr: '10.0.0.%d:7401'}", i, i))
	}
	return sources{file: fmt.Sprintf("raft: {peers: [%s]}\n%s", strings.Join(peers, ", "), strings.Join(lines, "\n"))}
}

const withSecret = "cluster: {secret_file: /s}"

// Each line says by itself what is wrong and what to do; "" is for what is right.
func TestServersAreChecked(t *testing.T) {
	for name, tc := range map[string]struct {
		sources
		want string
	}{
		"one":                     {setOf(1), ""},
		"three":                   {setOf(3, withSecret), ""},
		"nine":                    {setOf(9, withSecret), ""},
		"ten":                     {setOf(10, withSecret), "1:15: raft.peers: has 10 servers; set at most 9"},
		"three without secret":    {setOf(3), "raft.peers: names other nodes, which are reached under mutual TLS only; set cluster.secret_file, the same on all, to a file that `fairlead keygen --out FILE` made"},
		"another without secret":  {sources{file: setOf(1).file, host: "h2"}, "raft.peers: names other nodes"},
		"another":                 {sources{file: setOf(3, withSecret, "rpc: {listen: off}").file, host: "h7"}, ""},
		"another, that asks only": {sources{file: setOf(3, "cluster: {secret_file: /s, server: false}").file, host: "h7"}, ""},
		"no port":                 {setOf(3, withSecret, "rpc: {listen: off}"), "rpc.listen: is off, but raft.peers names this node a server"},
		"one without port":        {setOf(1, withSecret, "rpc: {listen: off}"), ""},
		"no server":               {setOf(3, "cluster: {secret_file: /s, server: false}"), "raft.peers[0]: is this node, but cluster.server is false; set cluster.server: true"},
		"one, no server":          {setOf(1, "cluster: {server: false}"), "raft.peers[0]: is this node, but cluster.server is false"},
		"etcd":                    {setOf(1, "store: {kind: etcd, endpoints: ['10.0.0.1:2379']}"), "raft.peers: is set, but store.kind is etcd, which has servers of its own"},
		"bootstrap":               {setOf(3, "cluster: {secret_file: /s, bootstrap_expect: 3}"), "cluster.bootstrap_expect: is 3, but raft.peers names the servers"},
		"bootstrap 0":             {setOf(3, "cluster: {secret_file: /s, bootstrap_expect: 0}"), "cluster.bootstrap_expect: is 0, but raft.peers"},

		"same name":        {sources{file: withSecret + "\nraft: {peers: [{name: a, addr: '10.0.0.1:1'}, {name: a, addr: '10.0.0.2:1'}, {name: b, addr: '10.0.0.3:1'}]}"}, `raft.peers[1].name: is "a", like that of raft.peers[0]`},
		"same address":     {sources{file: withSecret + "\nraft: {peers: [{name: a, addr: '10.0.0.1:1'}, {name: b, addr: '10.0.0.1:1'}, {name: c, addr: '10.0.0.3:1'}]}"}, "raft.peers[1].addr: is 10.0.0.1:1, like that of raft.peers[0]"},
		"same, mapped":     {sources{file: withSecret + "\nraft: {peers: [{name: a, addr: '10.0.0.1:1'}, {name: b, addr: '[::ffff:10.0.0.1]:1'}, {name: c, addr: '10.0.0.3:1'}]}"}, "raft.peers[1].addr"},
		"without name":     {sources{file: withSecret + "\nraft: {peers: [{addr: '10.0.0.1:1'}]}"}, `raft.peers[0].name: is ""; a name has`},
		"without address":  {sources{file: withSecret + "\nraft: {peers: [{name: a}]}"}, `2:16: raft.peers[0].addr: is ""; set the server's rpc.listen address`},
		"port 0":           {sources{file: withSecret + "\nraft: {peers: [{name: a, addr: '10.0.0.1:0'}]}"}, `raft.peers[0].addr: is "10.0.0.1:0"`},
		"any address":      {sources{file: withSecret + "\nraft: {peers: [{name: a, addr: '0.0.0.0:1'}]}"}, `raft.peers[0].addr: is "0.0.0.0:1"`},
		"multicast":        {sources{file: withSecret + "\nraft: {peers: [{name: a, addr: '224.0.0.1:1'}]}"}, `raft.peers[0].addr: is "224.0.0.1:1"`},
		"unreadable":       {sources{file: withSecret + "\nraft: {peers: [{name: a, addr: x}, {name: b, addr: '10.0.0.1:1'}]}"}, `raft.peers[0].addr: is "x"; expected ip:port`},
		"no port, no file": {sources{file: "rpc: {listen: '127.0.0.1:7401'}"}, "1:15: rpc.listen: is 127.0.0.1:7401, but there is no cluster.secret_file"},

		"handshakes least": {sources{file: "rpc: {max_handshakes: 1, max_frame_bytes: 65536, max_queue_bytes: 1048576}"}, ""},
		"handshakes most":  {sources{file: "rpc: {max_handshakes: 4096, max_frame_bytes: 16777216, max_queue_bytes: 1073741824}"}, ""},
		"no handshakes":    {sources{file: "rpc: {max_handshakes: 0}"}, "rpc.max_handshakes: is 0; set 1 to 4096"},
		"many handshakes":  {sources{file: "rpc: {max_handshakes: 4097}"}, "rpc.max_handshakes: is 4097"},
		"small frames":     {sources{file: "rpc: {max_frame_bytes: 65535}"}, "rpc.max_frame_bytes: is 65535; set 65536 to 16777216"},
		"large frames":     {sources{file: "rpc: {max_frame_bytes: 16777217}"}, "rpc.max_frame_bytes: is 16777217"},
		"small queue":      {sources{file: "rpc: {max_queue_bytes: 1048575}"}, "rpc.max_queue_bytes: is 1048575; set 1048576 to 1073741824"},
		"large queue":      {sources{file: "rpc: {max_queue_bytes: 1073741825}"}, "rpc.max_queue_bytes: is 1073741825"},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.want != "" {
				wantErrors(t, tc.sources, tc.want)
				return
			}
			if _, _, warnings := mustLoad(t, tc.sources); len(warnings) != 0 {
				t.Errorf("warnings %q", warnings)
			}
		})
	}
}

// What works, but is hardly meant, is a warning that names its place.
func TestServersWarn(t *testing.T) {
	for name, tc := range map[string]struct {
		sources
		want string
	}{
		"even":         {setOf(4, withSecret), testFile + ":1: raft.peers has 4 servers, which survive no more failures than 3; set an odd number"},
		"another port": {setOf(3, withSecret, "rpc: {listen: '127.0.0.1:7409'}"), testFile + ":1: raft.peers[0] says that this node is reached at 10.0.0.1:7401, but rpc.listen is 127.0.0.1:7409"},
		"any port":     {setOf(3, withSecret, "rpc: {listen: '127.0.0.1:0'}"), "but rpc.listen is 127.0.0.1:0"},
		"in memory":    {setOf(3, withSecret, "node: {in_memory: true}"), testFile + ":3: node.in_memory is true on a server of several: when it is restarted it has forgotten what it voted for"},
		"misspelt":     {sources{file: setOf(3, "cluster: {secret_file: /s, server: true}").file, host: "h33"}, testFile + ":2: cluster.server is true, but raft.peers names no h33, so this node is no server"},
	} {
		_, _, warnings := mustLoad(t, tc.sources)
		if len(warnings) != 1 || !strings.Contains(warnings[0], tc.want) {
			t.Errorf("%s: %q, want %s", name, warnings, tc.want)
		}
	}
	if _, _, warnings := mustLoad(t, setOf(1, "node: {in_memory: true}")); len(warnings) != 0 {
		t.Errorf("alone, in memory: %q", warnings)
	}
}

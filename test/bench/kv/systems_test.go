package kv

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Equal for all.
const (
	heartbeat = 100  // ms
	election  = 1000 // ms
)

// system is a program that can be started as a cluster.
type system struct {
	name    string // of its column
	etcd    bool
	version string
	flags   string // as printed
	// command is what starts a member of a cluster; it may write into the member's
	// directory. It is called again when the member is started again.
	command func(m *member) (*exec.Cmd, error)
}

// etcd is the program at path.
func etcd(t *testing.T, path string, peerTLS bool) system {
	t.Helper()
	out, err := exec.Command(path, "--version").Output()
	if err != nil {
		t.Fatalf("%s --version: %v", path, err)
	}
	line, _, _ := strings.Cut(string(out), "\n")
	version := strings.TrimPrefix(line, "etcd Version: ")
	flags := []string{
		fmt.Sprintf("--heartbeat-interval=%d", heartbeat), fmt.Sprintf("--election-timeout=%d", election), "--pre-vote=true",
		"--snapshot-count=10000", "--quota-backend-bytes=8589934592", "--logger=zap", "--log-level=error",
	}
	scheme := "http"
	if peerTLS {
		scheme, flags = "https", append(flags, "--peer-auto-tls")
	}
	return system{name: "etcd " + version, etcd: true, version: line, flags: "etcd " + strings.Join(flags, " "), command: func(m *member) (*exec.Cmd, error) {
		var cluster []string
		for _, o := range m.cluster.members {
			cluster = append(cluster, fmt.Sprintf("%s=%s://%s", o.name, scheme, o.peer))
		}
		client, peer := "http://"+m.client.String(), scheme+"://"+m.peer.String()
		return exec.Command(path, append([]string{
			"--name", m.name, "--data-dir", filepath.Join(m.dir, "etcd"),
			"--listen-client-urls", client, "--advertise-client-urls", client,
			"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", strings.Join(cluster, ","),
		}, flags...)...), nil
	}}
}

// fairlead is the program at path.
func fairlead(t *testing.T, name, path string) system {
	t.Helper()
	out, err := exec.Command(path, "version").Output()
	if err != nil {
		t.Fatalf("%s version: %v", path, err)
	}
	line, _, _ := strings.Cut(string(out), "\n")
	var secret [32]byte
	if _, err := rand.Read(secret[:]); err != nil {
		t.Fatal(err)
	}
	return system{name: name, version: line, flags: "fairlead agent, dataplane off, http.listen off", command: func(m *member) (*exec.Cmd, error) {
		file := filepath.Join(m.dir, "secret")
		if err := os.WriteFile(file, []byte(hex.EncodeToString(secret[:])+"\n"), 0o600); err != nil {
			return nil, err
		}
		var join, peers []string
		for _, o := range m.cluster.members {
			join = append(join, fmt.Sprintf("%q", o.gossip))
			peers = append(peers, fmt.Sprintf("{name: %s, addr: %q}", o.name, o.peer))
		}
		text := fmt.Sprintf(`node: {name: %s, data_dir: %s}
cluster: {name: bench, join: [%s], secret_file: %s}
gossip: {bind: %q, profile: local}
rpc: {listen: %q}
raft: {heartbeat: %dms, election: %dms, peers: [%s]}
api: {socket: %s, listen: %q}
http: {listen: off}
dns: {listen: off}
dataplane: off
`, m.name, filepath.Join(m.dir, "data"), strings.Join(join, ", "), file, m.gossip, m.peer, heartbeat, election, strings.Join(peers, ", "),
			filepath.Join(m.dir, "api.sock"), m.client)
		path2 := filepath.Join(m.dir, "fairlead.yaml")
		return exec.Command(path, "agent", "--config", path2), os.WriteFile(path2, []byte(text), 0o600)
	}}
}

// built is the program of FAIRLEAD_BIN, or one built from the sources.
func (b *bench) built() string {
	b.t.Helper()
	if path := os.Getenv("FAIRLEAD_BIN"); path != "" {
		abs, err := filepath.Abs(path)
		if err != nil {
			b.t.Fatal(err)
		}
		return abs
	}
	return b.build("../../..", "./cmd/fairlead")
}

// build compiles a package of the module in a folder.
func (b *bench) build(folder, pkg string) string {
	b.t.Helper()
	abs, err := filepath.Abs(filepath.Join(folder, pkg))
	if err != nil {
		b.t.Fatal(err)
	}
	path := filepath.Join(b.dir, filepath.Base(abs))
	cmd := exec.Command("go", "build", "-C", folder, "-trimpath", "-o", path, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // as make build
	if out, err := cmd.CombinedOutput(); err != nil {
		b.t.Fatalf("build %s in %s: %v\n%s", pkg, folder, err, out)
	}
	return path
}

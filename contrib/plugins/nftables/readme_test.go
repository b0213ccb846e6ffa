package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/contrib/plugins/nftables/internal/netspace"
	"github.com/fairlead/fairlead/contrib/plugins/nftables/internal/plane"
)

// section returns the shell block below a heading of README.md.
func section(t *testing.T, heading string, n int) string {
	t.Helper()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "\n## "+heading+"\n")
	rest, _, _ = strings.Cut(rest, "\n## ")
	blocks := strings.Split(rest, "```sh\n")
	if len(blocks) < n+1 {
		t.Fatalf("README.md has %d shell blocks below %q, want %d", len(blocks)-1, heading, n)
	}
	block, _, _ := strings.Cut(blocks[n], "```")
	return block
}

// fairlead is the agent: that of FAIRLEAD_BIN, else a fresh one.
func fairlead(t *testing.T) string {
	t.Helper()
	if path := os.Getenv("FAIRLEAD_BIN"); path != "" {
		return path
	}
	path := filepath.Join(t.TempDir(), "fairlead")
	if out, err := exec.Command("go", "build", "-C", "../../..", "-o", path, "./cmd/fairlead").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

// shell runs a block of the README as it is written, but for the names of places.
func shell(t *testing.T, block string, env []string) {
	t.Helper()
	cmd := exec.Command("bash", "-eu")
	cmd.Stdin, cmd.Env = strings.NewReader(block), append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s\n%v\n%s", block, err, out)
	}
}

// TestReadme builds and installs the data plane as README.md says, and has an agent
// lead a connection by it.
func TestReadme(t *testing.T) {
	netspace.Require(t)
	agent := fairlead(t)
	dir, err := os.MkdirTemp("", "nftr-") // short: there will be sockets in it
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	lib := filepath.Join(dir, "lib")
	places := strings.NewReplacer("/usr/local/lib/fairlead", lib, "/etc/fairlead/fairlead.yaml", filepath.Join(dir, "fairlead.yaml"),
		"fairlead-dataplane-nftables .", filepath.Join(dir, "fairlead-dataplane-nftables")+" .",
		"./fairlead-dataplane-nftables", filepath.Join(dir, "fairlead-dataplane-nftables")+" --only identity,probe,config,health",
		"0755 fairlead-dataplane-nftables", "0755 "+filepath.Join(dir, "fairlead-dataplane-nftables"))
	path := []string{"PATH=" + filepath.Dir(agent) + ":" + os.Getenv("PATH")}
	shell(t, places.Replace(section(t, "Build and test", 1)), path)
	shell(t, places.Replace(section(t, "Install", 1)), path)

	backend, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer backend.Close()
	go func() {
		for {
			c, err := backend.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, "hello")
			c.Close()
		}
	}()
	socket := filepath.Join(dir, "api.sock")
	config := fmt.Sprintf(`
node: {name: n1, data_dir: %s/data, advertise: 127.0.0.1}
gossip: {bind: "127.0.0.1:7400"}
api: {socket: %s, listen: "off"}
http: {listen: "off"}
dns: {listen: "off"}
services:
  - {name: web, port: 80, vip: 10.200.0.10, instances: [{id: web-1, address: "%v"}]}
`, dir, socket, backend.Addr())
	if err := os.WriteFile(filepath.Join(dir, "fairlead.yaml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	run := places.Replace(section(t, "Install", 2))
	run = strings.ReplaceAll(run, "nftables,l7", "nftables") // the proxy is not built here
	run = strings.Replace(run, "\nfairlead agent", "\nexec fairlead agent", 1)
	cmd := exec.Command("bash", "-eu", "-c", run)
	log := &strings.Builder{}
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), path...), log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stop := func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	}
	defer func() {
		stop()
		if t.Failed() {
			t.Log(log.String())
		}
		if _, err := plane.New().Cleanup(context.Background(), cleanAll()); err != nil {
			t.Error(err)
		}
	}()
	until := time.Now().Add(2 * time.Minute)
	for {
		err := hello("10.200.0.10:80")
		if err == nil {
			break
		}
		if time.Now().After(until) {
			t.Fatalf("the service is not reached: %v", err)
		}
		<-time.After(100 * time.Millisecond) // until the next try
	}
	for { // the agent learns that it is ready after the kernel did
		out, ready := listed(t, agent, socket, filepath.Join(lib, "fairlead-dataplane-nftables"))
		if ready {
			break
		}
		if time.Now().After(until) {
			t.Fatalf("it is not ready: %s", out)
		}
		<-time.After(100 * time.Millisecond) // until the next look
	}
}

// listed reports whether an agent has the plugin of that path, and says that it is ready.
func listed(t *testing.T, agent, socket, path string) (out []byte, ready bool) {
	t.Helper()
	var list struct {
		Plugins []struct{ Name, State, Path string }
	}
	out, err := exec.Command(agent, "plugin", "list", "--api", socket, "-o", "json").Output()
	if err == nil {
		err = json.Unmarshal(out, &list)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, p := range list.Plugins {
		if p.Name == "nftables" {
			return out, p.State == "ready" && p.Path == path
		}
	}
	return out, false
}

func hello(address string) error {
	c, err := net.DialTimeout("tcp", address, 20*time.Second)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		return err
	}
	if b, err := io.ReadAll(c); err != nil || string(b) != "hello" {
		return fmt.Errorf("read %q, %w", b, err)
	}
	return nil
}

// TestReadmeKnowsTheSettings: each setting has its row.
func TestReadmeKnowsTheSettings(t *testing.T) {
	var schema struct{ Properties map[string]any }
	if err := json.Unmarshal(plane.New().Info().ConfigSchema, &schema); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	for key := range schema.Properties {
		if !strings.Contains(string(text), "\n| `"+key+"` |") {
			t.Errorf("README.md does not tell of %s", key)
		}
	}
	if !strings.Contains(string(text), `"version": "`+plane.Version+`"`) {
		t.Errorf("the manifest of README.md has another version than %s", plane.Version)
	}
}

// TestImports: this module uses of Fairlead what a stranger may.
func TestImports(t *testing.T) {
	out, err := exec.Command("go", "list", "-f", `{{join .Imports "\n"}}{{"\n"}}{{join .TestImports "\n"}}`, "./...").Output()
	if err != nil {
		t.Fatal(err)
	}
	const project = "github.com/fairlead/fairlead/"
	seen := 0
	for line := range strings.Lines(string(out)) {
		path, ours := strings.CutPrefix(strings.TrimSpace(line), project)
		if !ours || strings.HasPrefix(path, "contrib/plugins/nftables/") {
			continue
		}
		seen++
		if path != "dataplane" && !strings.HasPrefix(path, "dataplane/") {
			t.Errorf("imports %s", path)
		}
	}
	if seen == 0 {
		t.Error("saw no import of dataplane")
	}
}

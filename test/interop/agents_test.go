package interop

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/fairlead/fairlead/test/port"
)

// agent is one process of Fairlead.
type agent struct {
	dir    string // state; socket and log are beside it
	api    string // host:port of clients
	args   []string
	cmd    *exec.Cmd
	exited chan struct{}
}

func newAgent(dir, name string, args ...string) (*agent, error) {
	api, err := port.Pick()
	if err != nil {
		return nil, err
	}
	a := &agent{dir: filepath.Join(dir, name), api: api}
	a.args = append([]string{
		"agent", "--node.name", name, "--node.data_dir", a.dir, "--gossip.bind", "127.0.0.1:0", "--api.socket", a.socket(), "--api.listen", api,
		"--http.listen", "off", "--dns.listen", "off", "--dataplane", "off",
	}, args...)
	return a, os.MkdirAll(dir, 0o700)
}

func (a *agent) socket() string { return a.dir + ".sock" }
func (a *agent) log() string    { return a.dir + ".log" }

func (a *agent) start() error {
	log, err := os.OpenFile(a.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	a.cmd = exec.Command(program, a.args...)
	a.cmd.Stdout, a.cmd.Stderr = log, log
	// It does not outlive a test that is killed.
	a.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := a.cmd.Start(); err != nil {
		return err
	}
	a.exited = make(chan struct{})
	go func(cmd *exec.Cmd, exited chan struct{}) {
		_ = cmd.Wait()
		close(exited)
	}(a.cmd, a.exited)
	return nil
}

// end sends a signal and waits until the process is gone.
func (a *agent) end(s os.Signal) {
	if a.cmd == nil || a.cmd.Process == nil {
		return
	}
	_ = a.cmd.Process.Signal(s)
	patience := time.AfterFunc(30*time.Second, func() { _ = a.cmd.Process.Kill() })
	defer patience.Stop()
	<-a.exited
}

// cluster is a store: those who serve it, and where.
type cluster struct {
	agents    []*agent
	endpoints []string
	turn      int
}

// startOne starts one agent alone.
func startOne(dir string) (*cluster, error) {
	a, err := newAgent(dir, "n1")
	if err != nil {
		return nil, err
	}
	return startAll(a)
}

// startSet starts three servers, and an agent that is none.
func startSet(dir string) (*cluster, error) {
	secret, random := filepath.Join(dir, "secret"), make([]byte, 32)
	_, _ = rand.Read(random)
	err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(secret, []byte(base64.RawURLEncoding.EncodeToString(random)+"\n"), 0o600))
	var addresses, peers []string
	for i := range 3 {
		at, failed := port.Pick()
		err = errors.Join(err, failed)
		addresses, peers = append(addresses, at), append(peers, fmt.Sprintf("{name: n%d, addr: %q}", i+1, at))
	}
	var all []*agent
	for i := range 4 {
		args := []string{"--cluster.secret_file", secret, "--raft.peers", "[" + strings.Join(peers, ", ") + "]"}
		if i < len(addresses) {
			args = append(args, "--rpc.listen", addresses[i])
		} else {
			args = append(args, "--cluster.server=false", "--rpc.listen", "127.0.0.1:0")
		}
		a, failed := newAgent(dir, fmt.Sprintf("n%d", i+1), args...)
		err, all = errors.Join(err, failed), append(all, a)
	}
	if err != nil {
		return nil, err
	}
	return startAll(all...)
}

// startAll starts agents, and waits until a leader answers by each of them.
func startAll(all ...*agent) (*cluster, error) {
	c := &cluster{agents: all}
	for _, a := range all {
		c.endpoints = append(c.endpoints, a.api)
		if err := a.start(); err != nil {
			c.stop()
			return nil, err
		}
	}
	for _, a := range all {
		if err := a.answers(); err != nil {
			var logs strings.Builder
			c.tell(func(text string) { logs.WriteString(text) })
			c.stop()
			return nil, fmt.Errorf("%s: %w\n%s", a.dir, err, &logs)
		}
	}
	return c, nil
}

// answers waits until a leader answers by this agent.
func (a *agent) answers() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	go func() {
		select {
		case <-a.exited:
			cancel()
		case <-ctx.Done():
		}
	}()
	conn, err := grpc.NewClient("unix://"+a.socket(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	pause := time.NewTicker(20 * time.Millisecond)
	defer pause.Stop()
	for {
		_, err := pb.NewKVClient(conn).Range(ctx, &pb.RangeRequest{Key: []byte("x")}, grpc.WaitForReady(true))
		if err == nil || ctx.Err() != nil {
			return err
		}
		<-pause.C
	}
}

// stop ends all agents.
func (c *cluster) stop() {
	var all sync.WaitGroup
	for _, a := range c.agents {
		all.Go(func() { a.end(syscall.SIGTERM) })
	}
	all.Wait()
}

// tell says the end of each agent's log.
func (c *cluster) tell(say func(string)) {
	for _, a := range c.agents {
		log, _ := os.ReadFile(a.log())
		lines := bytes.SplitAfter(log, []byte("\n"))
		say(fmt.Sprintf("%s ends with\n%s", a.log(), bytes.Join(lines[max(0, len(lines)-20):], nil)))
	}
}

// endpoint is one after the other of those that serve the store.
func (c *cluster) endpoint() string {
	c.turn++
	return c.endpoints[c.turn%len(c.endpoints)]
}

// own starts a store for one test.
func own(t *testing.T, start func(dir string) (*cluster, error)) *cluster {
	t.Helper()
	dir, err := os.MkdirTemp(work, "own-") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	c, err := start(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.stop()
		if t.Failed() {
			c.tell(func(text string) { t.Log(text) })
		}
	})
	return c
}

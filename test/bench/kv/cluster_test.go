package kv

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
)

// patience is for what takes a moment on an idle machine.
const patience = time.Minute

// servers is the size of a cluster.
const servers = 3

// member is one process of a cluster. It keeps its addresses and its directory
// when it is started again.
type member struct {
	cluster              *cluster
	name, dir            string
	client, peer, gossip netip.AddrPort

	cmd   *exec.Cmd
	ended chan struct{}
	out   *lines
}

// cluster is three processes of one system.
type cluster struct {
	system
	t       *testing.T
	members []*member
	conns   []*conn // connection i is to member i mod 3
}

// newCluster lays out a cluster below the directory of the run. Nothing is started.
func (b *bench) newCluster(s system) *cluster {
	b.t.Helper()
	dir, err := os.MkdirTemp(b.dir, "")
	if err != nil {
		b.t.Fatal(err)
	}
	c := &cluster{system: s, t: b.t}
	for i := range servers {
		m := &member{cluster: c, name: fmt.Sprintf("n%d", i+1)}
		m.dir = filepath.Join(dir, m.name)
		m.client, m.peer, m.gossip = b.ports.next(b.t), b.ports.next(b.t), b.ports.next(b.t)
		if err := os.Mkdir(m.dir, 0o700); err != nil {
			b.t.Fatal(err)
		}
		c.members = append(c.members, m)
	}
	for i := range connections {
		conn, err := dial(c.members[i%servers])
		if err != nil {
			b.t.Fatal(err)
		}
		b.t.Cleanup(conn.close)
		c.conns = append(c.conns, conn)
	}
	b.t.Cleanup(c.kill)
	return c
}

// start starts all members at once and waits until they serve.
func (c *cluster) start() {
	c.t.Helper()
	for _, m := range c.members {
		m.start()
	}
	c.serving()
}

// serving waits until all members agree on a leader and answer a linearizable
// read.
func (c *cluster) serving() {
	c.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := c.served()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("%s does not serve after %v: %v\n%s", c.name, patience, err, c.said())
		}
		for _, m := range c.members {
			select {
			case <-m.ended:
				c.t.Fatalf("%s: %s ended by itself\n%s", c.name, m.name, m.out)
			default:
			}
		}
		pause(20 * time.Millisecond)
	}
}

func (c *cluster) served() error {
	ctx, cancel := context.WithTimeout(c.t.Context(), 5*time.Second)
	defer cancel()
	var leader uint64
	for i, m := range c.members {
		st, err := c.conns[i].maintenance.Status(ctx, &etcdserverpb.StatusRequest{})
		switch {
		case err != nil:
			return fmt.Errorf("%s: %w", m.name, err)
		case st.Leader == 0:
			return fmt.Errorf("%s knows no leader", m.name)
		case leader != 0 && st.Leader != leader:
			return errors.New("members do not agree on the leader")
		}
		leader = st.Leader
		if err := c.conns[i].get(ctx, "nothing", true, 0); err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
	}
	return nil
}

// leader is the index of the member that leads.
func (c *cluster) leader() int {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	for ; ; pause(20 * time.Millisecond) { // until none is elected while they are asked
		for i := range c.members {
			st, err := c.conns[i].maintenance.Status(ctx, &etcdserverpb.StatusRequest{})
			if err != nil {
				c.t.Fatalf("%s: %v", c.name, err)
			}
			if st.Leader == st.Header.MemberId {
				return i
			}
		}
	}
}

// kill ends all members that run, at once.
func (c *cluster) kill() {
	for _, m := range c.members {
		m.signal()
	}
	for _, m := range c.members {
		m.wait()
	}
}

// cpu is what all members have used.
func (c *cluster) cpu() (sum time.Duration) {
	c.t.Helper()
	for _, m := range c.members {
		sum += cpuOf(c.t, m.cmd.Process.Pid)
	}
	return sum
}

// said is what the members wrote.
func (c *cluster) said() (all string) {
	for _, m := range c.members {
		all += fmt.Sprintf("%s:\n%s", m.name, m.out)
	}
	return all
}

func (m *member) start() {
	t := m.cluster.t
	t.Helper()
	cmd, err := m.cluster.command(m)
	if err != nil {
		t.Fatal(err)
	}
	m.cmd, m.out, m.ended = cmd, &lines{}, make(chan struct{})
	cmd.Dir, cmd.Stdout, cmd.Stderr = m.dir, m.out, m.out
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + m.dir} // no variable of either program
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatalf("%s: %v", m.cluster.name, err)
	}
	ended := m.ended
	go func() {
		_ = cmd.Wait() // it is killed
		close(ended)
	}()
}

// signal kills the member; it may not be gone yet.
func (m *member) signal() {
	if m.cmd != nil {
		_ = m.cmd.Process.Kill()
	}
}

func (m *member) wait() {
	if m.cmd != nil {
		<-m.ended
	}
}

// pause lets time pass: the measurement is of time itself.
func pause(d time.Duration) { <-time.After(d) }

// lines keeps the end of what a process says.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.buf.Len() > 64<<10 {
		l.buf.Reset()
	}
	return l.buf.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
)

// cluster is agents that were told of one of them only. Some are to be servers of one
// group, and the others have to find it.
type cluster struct {
	*storeFleet // its nodes are those that clients ask: all, unless a test says else
	servers     []*storeNode
	others      []*storeNode
	secret      string
	draw        draw
}

// newCluster lays out agents of which expect are to form a group together. Nothing is
// started.
func newCluster(t *testing.T, servers, others, expect int) *cluster {
	t.Helper()
	c := &cluster{storeFleet: &storeFleet{fleet: newFleet(t, servers+others), kind: ours(t), timeout: callTimeout}, secret: newSecret(), draw: newDraw(t)}
	for i, a := range c.agents {
		a.join = []string{c.agents[0].node.Addr().String() + ":7400"} // one's own is ignored
		n := c.node(a, c.secret, "--cluster.bootstrap_expect", strconv.Itoa(expect))
		if i < servers {
			c.servers = append(c.servers, n)
		} else {
			a.args = append(a.args, "--cluster.server=false")
			c.others = append(c.others, n)
		}
	}
	c.nodes = slices.Concat(c.servers, c.others)
	return c
}

// startCluster starts all agents and waits until they are one cluster.
func startCluster(t *testing.T, servers, others int) *cluster {
	t.Helper()
	c := newCluster(t, servers, others, servers)
	c.up(c.nodes...)
	c.formed(c.servers...)
	return c
}

func (c *cluster) up(nodes ...*storeNode) {
	c.t.Helper()
	for _, n := range nodes {
		n.up()
	}
}

// formed waits until servers are of one group that one of them leads, and every agent
// that runs answers clients; it returns how long that took, and which group it is.
func (c *cluster) formed(servers ...*storeNode) (time.Duration, string) {
	c.t.Helper()
	var group string
	took := c.eventually(30*time.Second, "one group", func() (err error) {
		if group, err = c.one(servers...); err != nil {
			return err
		}
		for _, n := range c.nodes {
			if n.runs() {
				err = errors.Join(err, n.answers())
			}
		}
		return err
	})
	return took, group
}

// one returns the group of some servers, if they are all of one and follow one leader.
func (c *cluster) one(servers ...*storeNode) (string, error) {
	group := ""
	for _, n := range servers {
		id, err := n.identity()
		if err != nil {
			return "", err
		}
		if group == "" {
			group = id.Group
		}
		if id.Group != group {
			c.t.Fatalf("two groups: %s is of %s, others of %s", n.name, id.Group, group)
		}
	}
	_, err := c.leads(servers...)
	return group, err
}

// runs reports whether the agent was started and has not ended.
func (n *storeNode) runs() bool {
	if n.proc == nil {
		return false
	}
	select {
	case <-n.proc.Done():
		return false
	default:
		return true
	}
}

// answers is nil if a client of the agent reads what is not old.
func (n *storeNode) answers() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if _, err := n.kv().Range(ctx, &pb.RangeRequest{Key: []byte(storePrefix)}); err != nil {
		return fmt.Errorf("%s does not answer clients: %w", n.name, err)
	}
	return nil
}

// serverIdentity is what a server keeps on disk of who it is.
type serverIdentity struct {
	Group string `json:"cluster_id"`
	ID    string `json:"raft_id"`
}

func (n *storeNode) identity() (serverIdentity, error) {
	var id serverIdentity
	text, err := os.ReadFile(filepath.Join(n.dir, "raft.json"))
	if err == nil {
		err = json.Unmarshal(text, &id)
	}
	return id, err
}

// raftID waits until the node is a server and returns its id.
func (n *storeNode) raftID() string {
	n.t.Helper()
	var id serverIdentity
	eventually(n.t, 30*time.Second, func() (err error) {
		id, err = n.identity()
		return err
	}, "%s is a server", n.name)
	return id.ID
}

// awaits is what `fairlead raft status` says of an agent that is no server.
func (n *storeNode) awaits() (string, error) {
	text, err := n.run("raft", "status", "-o", "json")
	var st struct {
		Reason string `json:"not_server"`
		Server bool   `json:"server"`
	}
	if len(text) == 0 {
		return "", err
	}
	if err := json.Unmarshal(text, &st); err != nil {
		return "", err
	}
	if st.Server {
		return "", fmt.Errorf("%s is a server", n.name)
	}
	return st.Reason, nil
}

// says is nil when `fairlead raft status` says something of what the agent waits for.
func (n *storeNode) says(want ...string) func() error {
	return func() error {
		got, err := n.awaits()
		if err != nil {
			return err
		}
		for _, w := range want {
			if !strings.Contains(got, w) {
				return fmt.Errorf("%s says %q, want %q in it", n.name, got, w)
			}
		}
		return nil
	}
}

// peer is one server in `fairlead raft list-peers`.
type peer struct{ Name, ID, Addr, Role string }

// listPeers returns the servers by id.
func (n *storeNode) listPeers() (map[string]peer, error) {
	text, err := n.run("raft", "list-peers", "-o", "json")
	if err != nil {
		return nil, err
	}
	var list []peer
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, err
	}
	by := map[string]peer{}
	for _, p := range list {
		by[p.ID] = p
	}
	return by, nil
}

// votes is nil when exactly these servers are voters, as all of them see it.
func (c *cluster) votes(servers ...*storeNode) error {
	for _, n := range servers {
		all, err := n.listPeers()
		if err != nil {
			return err
		}
		voters := 0
		for _, p := range all {
			if p.Role != "learner" {
				voters++
			}
		}
		for _, m := range servers {
			id, err := m.identity()
			if err != nil {
				return err
			}
			if p, ok := all[id.ID]; !ok || p.Role == "learner" {
				return fmt.Errorf("%s does not see %s vote: %+v", n.name, m.name, all)
			}
		}
		if voters != len(servers) {
			return fmt.Errorf("%s sees %d voters, want %d: %+v", n.name, voters, len(servers), all)
		}
	}
	return nil
}

// vote waits until exactly these servers are voters, as all of them see it.
func (c *cluster) vote(servers ...*storeNode) {
	c.t.Helper()
	c.eventually(20*time.Second, "they vote", func() error { return c.votes(servers...) })
}

// learns is nil when a server is a learner, as another one sees it.
func (n *storeNode) learns(seenBy *storeNode) error {
	id, err := n.identity()
	if err != nil {
		return err
	}
	all, err := seenBy.listPeers()
	if err != nil {
		return err
	}
	if all[id.ID].Role != "learner" {
		return fmt.Errorf("%s sees %s as %+v, want a learner", seenBy.name, n.name, all[id.ID])
	}
	return nil
}

// wipe takes the node's disk away.
func (n *storeNode) wipe() {
	n.t.Helper()
	if err := errors.Join(os.RemoveAll(n.dir), os.MkdirAll(n.dir, 0o700)); err != nil {
		n.t.Fatal(err)
	}
}

// terminate asks agents to end, all at once, and waits until they have.
func (c *cluster) terminate(nodes ...*storeNode) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for _, n := range nodes {
		n.proc.Signal(syscall.SIGTERM)
	}
	for _, n := range nodes {
		if err := n.proc.Wait(ctx); err != nil {
			c.t.Fatalf("%s ended with %v", n.name, err)
		}
	}
}

// killAll ends agents by SIGKILL, all at once.
func (c *cluster) killAll(nodes ...*storeNode) {
	c.t.Helper()
	for _, n := range nodes {
		n.proc.Signal(syscall.SIGKILL)
	}
	for _, n := range nodes {
		n.kill()
	}
}

// moves gives the node another address.
func (n *storeNode) moves(to netip.Addr) {
	was := n.node.Addr().String()
	n.node.SetAddr(to)
	for i, a := range n.args {
		n.args[i] = strings.ReplaceAll(a, was+":7401", to.String()+":7401")
	}
}

// system puts a key of the system keyspace by the agent's socket.
func (n *storeNode) system(key, value string) error {
	conn, err := grpc.NewClient("unix:"+n.socket(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(context.Background(), "fairlead-keyspace", "system"), 5*time.Second)
	defer cancel()
	_, err = pb.NewKVClient(conn).Put(ctx, &pb.PutRequest{Key: []byte(key), Value: []byte(value)})
	return err
}

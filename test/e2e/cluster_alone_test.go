package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/fairlead/fairlead/core/etcdstore"
	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/test/scale"
)

// TestClusterWithoutServers: all servers of the store are killed, whoever's they are.
// The agents that are none go on to route to each other, and see it when one of them
// dies, and when it is back. When the servers are back, nothing has flapped.
func TestClusterWithoutServers(t *testing.T) {
	for kind, layout := range map[storeKind]func(*testing.T) *cluster{
		agents: func(t *testing.T) *cluster { return newCluster(t, 3, 3, 3) },
		etcds:  func(t *testing.T) *cluster { return newEtcdCluster(t, 3) },
	} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			withoutServers(t, layout(t))
		})
	}
}

func withoutServers(t *testing.T, c *cluster) {
	looks, stays, dies := c.others[0], c.others[1], c.others[2]
	proxy := looks.proxies()
	c.up(c.servers...)
	c.up(c.others...)
	c.leader(c.servers...)
	instance := dies.agent.runs(instancePort, dies.name)
	stays.agent.runs(instancePort, stays.name)
	for i, n := range []*storeNode{stays, dies} {
		n.must("register", "web", "--port", "80", "--instance", fmt.Sprint("web-", i), "--address", n.url(instancePort))
	}
	all := []string{"web-0@" + stays.name + "=ready", "web-1@" + dies.name + "=ready"}
	c.eventually(10*time.Second, "both are routed to", looks.places("web", all...))
	c.eventually(10*time.Second, "both answer through the proxy", proxy.reaches(stays.name, dies.name))
	c.copied("test/before")
	had := dies.copy()
	load := newLoad(t, looks.node, webRate/2, looks.url(proxyPort))
	flaps := (&webs{fleet: c.fleet}).witness(&web{agent: stays.agent}, proxy)

	seen := len(looks.events())
	c.killAll(c.servers...)
	killed := time.Now()
	for _, n := range c.others {
		c.eventually(20*time.Second, n.name+" follows nobody", n.followsNobody)
	}
	lasts(2 * electionTimeout)
	for _, n := range c.others {
		n.ages(killed)
	}
	c.eventually(10*time.Second, "both are routed to on", looks.places("web", all...))

	instance.Kill()
	dies.kill()
	c.eventually(20*time.Second, "its death is seen", looks.places("web", all[0], "web-1@"+dies.name+"=node-dead"))
	c.eventually(10*time.Second, "the proxy leaves it out", proxy.reaches(stays.name))
	load.flows(webRate / 2)
	dies.agent.runs(instancePort, dies.name)
	c.up(dies)
	c.eventually(20*time.Second, "it is back", looks.places("web", all...))
	c.eventually(10*time.Second, "the proxy sends to it again", proxy.reaches(stays.name, dies.name))
	// It has it from its disk.
	if got := dies.copy(); got.Cluster != had.Cluster || got.Revision != had.Revision || got.Keys != had.Keys || got.Server != "" {
		t.Errorf("%s began anew with %+v, and had %+v", dies.name, got, had)
	}
	dies.ages(killed)

	// Who comes back before anybody missed it long enough would only be seen to refute.
	for _, name := range c.inGossip() {
		c.eventually(20*time.Second, "the death of "+name+" is seen", func() error { return looks.sees(name, model.StateDead, netip.Addr{}) })
	}
	c.up(c.servers...)
	c.leader(c.servers...)
	c.copied("test/after")
	lasts(2 * electionTimeout)
	for _, n := range c.others {
		// The exit code says whether something is wrong.
		n.must("raft", "status")
		if got := n.copy(); got.Cluster != had.Cluster || got.Revision <= had.Revision || got.Server == "" || got.Age == nil {
			t.Errorf("%s has %+v, and had %+v", n.name, got, had)
		}
	}
	load.flows(webRate / 2)
	c.eventually(10*time.Second, "both are routed to on", looks.places("web", all...))
	flaps()
	load.faultless()
	looks.sawOneRestart(seen, c.inGossip(dies)...)
}

// newEtcdCluster lays out agents whose store is three servers of Debian's etcd, each
// on a node of its own. Nothing is started.
func newEtcdCluster(t *testing.T, others int) *cluster {
	t.Helper()
	ours(t)
	needsEtcd(t)
	f := newFleet(t, 3+others)
	part := func(kind storeKind, of []*agent) *storeFleet {
		return &storeFleet{fleet: &fleet{t: t, topo: f.topo, agents: of}, kind: kind, timeout: callTimeout}
	}
	c, servers, secret := &cluster{storeFleet: part(agents, f.agents[3:])}, part(etcds, f.agents[:3]), newSecret()
	var endpoints []string
	for _, a := range servers.agents {
		c.servers = append(c.servers, servers.node(a, secret))
		endpoints = append(endpoints, "http://"+a.url(etcdPort))
	}
	for _, a := range c.agents {
		a.join = []string{c.agents[0].url(7400)} // one's own is ignored
		c.others = append(c.others, c.node(a, secret, "--store.kind", "etcd", "--store.endpoints", strings.Join(endpoints, ",")))
	}
	return c
}

// proxies has the agent host the L7 data plane.
func (n *storeNode) proxies() *web {
	n.t.Helper()
	w := &web{agent: n.agent}
	n.install("l7", "l7")
	n.env = []string{"FAIRLEAD_PLUGIN_DIRS=" + n.pluginDir()}
	n.args = append(n.args, "--dataplane", "l7", "--plugins", text(n.t, object{"l7": object{"listen": n.url(proxyPort)}}))
	return w
}

// systemCopy is what an agent that is no server has of the system's keyspace.
type systemCopy struct {
	Cluster  string `json:"cluster_id"`
	Revision int64
	Keys     int
	Age      *float64 `json:"age_seconds"`
	Server   string
	Problem  string
}

func (n *storeNode) copy() systemCopy {
	n.t.Helper()
	out, err := n.run("raft", "status", "-o", "json")
	var st struct{ Copy systemCopy }
	if len(out) > 0 { // with another exit code if something is wrong
		err = json.Unmarshal(out, &st)
	}
	if err != nil {
		n.t.Fatalf("%s: %v", n.name, err)
	}
	return st.Copy
}

// copied puts a key of the system's keyspace and waits until all but the servers have it.
func (c *cluster) copied(key string) {
	c.t.Helper()
	had := c.others[0].copy()
	c.eventually(10*time.Second, key+" is written", func() error {
		if c.servers[0].f.kind == agents {
			return c.others[0].system(key, "value")
		}
		ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
		defer cancel()
		_, err := c.servers[0].kv().Put(ctx, &pb.PutRequest{Key: []byte(etcdstore.Prefix("e2e") + key), Value: []byte("value")})
		return err
	})
	c.eventually(20*time.Second, "all have a copy", func() error {
		first := c.others[0].copy()
		for _, n := range c.others {
			if got := n.copy(); got.Problem != "" || got.Revision <= had.Revision || got.Revision != first.Revision || got.Keys == 0 {
				return fmt.Errorf("%s has %+v", n.name, got)
			}
		}
		return nil
	})
}

func (n *storeNode) followsNobody() error {
	if got := n.copy(); got.Problem == "" || got.Server != "" {
		return fmt.Errorf("it has %+v", got)
	}
	return nil
}

// ages fails the test unless the agent says that its copy is older than the death of
// the servers, and how much.
func (n *storeNode) ages(killed time.Time) {
	n.t.Helper()
	least := time.Since(killed).Seconds()
	got := n.copy()
	// A busy machine reads late what they had said.
	if got.Age == nil || *got.Age < least-scale.Bound(0, time.Second).Seconds() || *got.Age > least+scale.Bound(10*time.Second, time.Minute).Seconds() {
		n.t.Errorf("%s has %+v, want an age of %.1f s or little more", n.name, got, least)
	}
	out, err := n.cli("raft", "status")
	if err == nil || !strings.Contains(err.Error(), "no server is followed") || !strings.Contains(out, "s ago\n") {
		n.t.Errorf("%s says %q, %v", n.name, out, err)
	}
}

// inGossip are the names that gossip has of the servers and some more.
func (c *cluster) inGossip(more ...*storeNode) (names []string) {
	for _, n := range slices.Concat(c.servers, more) {
		if n.f.kind == agents {
			names = append(names, n.name)
		}
	}
	return names
}

// sawOneRestart fails the test unless, since so many events, the agent saw those that
// were killed die once and come back once, and nothing else.
func (n *storeNode) sawOneRestart(since int, killed ...string) {
	n.t.Helper()
	saw := map[string][]string{}
	all := n.events()
	for i, e := range all {
		excused := starved(all, i) || e.Kind == "refuted" && scale.Factor() < 1
		if i >= since && e.Kind != "record" && !excused {
			saw[e.Member.Name] = append(saw[e.Member.Name], e.Kind)
		}
	}
	want := map[string][]string{}
	for _, name := range killed {
		want[name] = []string{"suspected", "died", "revived"}
	}
	if !maps.EqualFunc(saw, want, slices.Equal) {
		n.t.Errorf("%s saw %v, want %v", n.name, saw, want)
	}
}

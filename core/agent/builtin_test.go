package agent

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/core/config"
	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/record"
	"github.com/fairlead/fairlead/test/await"
)

func TestBuiltinVIPs(t *testing.T) {
	for pool, want := range map[string][2]string{
		"10.200.0.0/16": {"10.200.255.254", "10.200.255.253"},
		"10.1.0.0/30":   {"10.1.0.2", "10.1.0.1"},
		"10.1.0.64/27":  {"10.1.0.94", "10.1.0.93"},
		"0.0.0.0/0":     {"255.255.255.254", "255.255.255.253"},
		"fd00:1::/64":   {"fd00:1::ffff:ffff:ffff:fffe", "fd00:1::ffff:ffff:ffff:fffd"},
	} {
		leader, servers := builtinVIPs(netip.MustParsePrefix(pool))
		if got := [2]string{leader.String(), servers.String()}; got != want {
			t.Errorf("%s: %v, want %v", pool, got, want)
		}
	}
}

func TestWhoPublishesTheBuiltinServices(t *testing.T) {
	for _, c := range []struct {
		name, listen string
		with         func(*config.Config)
		at, why      string // at: "" if they are not published
	}{
		{"on all addresses", "0.0.0.0:7402", nil, "10.9.0.1:7402", ""},
		{"on all of both families", "[::]:7402", nil, "10.9.0.1:7402", ""},
		{"on the advertised one", "10.9.0.1:7402", nil, "10.9.0.1:7402", ""},
		{"on loopback", "127.0.0.1:7402", nil, "", ""},
		{"on loopback of the other family", "[::1]:7402", nil, "", ""},
		{"off", "", nil, "", ""},
		{"in the clear", "0.0.0.0:7402", func(c *config.Config) { c.API.TLS = config.APITLS{} }, "", ""},
		{"without a pool", "0.0.0.0:7402", func(c *config.Config) { c.VIPPools = nil }, "", ""},
		{"where others do not come", "10.8.0.1:7402", nil, "", "api.listen is on 10.8.0.1 and the node advertises 10.9.0.1"},
		{"with a pool of the other family", "0.0.0.0:7402", func(c *config.Config) {
			c.VIPPools = []netip.Prefix{netip.MustParsePrefix("fd00::/64")}
		}, "", "vip_pools is fd00::/64"},
	} {
		cfg := config.Defaults()
		cfg.Gossip.Bind = netip.MustParseAddrPort("10.9.0.1:7400")
		cfg.API.TLS = config.APITLS{Cert: "c", Key: "k"}
		if c.with != nil {
			c.with(cfg)
		}
		b, why := newBuiltin(cfg, c.listen)
		switch {
		case (b != nil) != (c.at != "") || !strings.Contains(why, c.why) || (why != "") != (c.why != ""):
			t.Errorf("%s: %+v, %q", c.name, b, why)
		case b != nil && (b.at.String() != c.at || b.leader.String() != "10.200.255.254"):
			t.Errorf("%s: %+v", c.name, b)
		}
	}
}

func TestStatesOfBuiltinInstances(t *testing.T) {
	const critical, passing, draining = model.InstanceCritical, model.InstancePassing, model.InstanceDraining
	b := &builtin{}
	for _, c := range []struct {
		name     string
		server   record.Server
		stopping bool
		want     []model.InstanceState
	}{
		{"waits for a group", record.Server{}, false, []model.InstanceState{critical, critical}},
		{"follows", record.Server{Group: 1}, false, []model.InstanceState{critical, passing}},
		{"leads", record.Server{Group: 1, Term: 4}, false, []model.InstanceState{passing, passing}},
		{"stops", record.Server{Group: 1}, true, []model.InstanceState{critical, draining}},
		{"stops and leads still", record.Server{Group: 1, Term: 4}, true, []model.InstanceState{passing, draining}},
	} {
		if got := b.states(&c.server, c.stopping); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// publish has an agent publish the built-in services though its API is on loopback.
func (r *running) publishes(t *testing.T) {
	t.Helper()
	b := &builtin{at: netip.MustParseAddrPort(r.listening("api.listen"))}
	b.leader, b.servers = builtinVIPs(r.config().VIPPools[0])
	r.services.mu.Lock()
	r.services.builtin = b
	part := r.services.server
	r.services.mu.Unlock()
	r.services.setServer(part)
}

// roles is what an agent says that the members are, by name.
func (r *running) roles(t *testing.T) map[string]string {
	t.Helper()
	members, err := r.api.Members(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, m := range members {
		out[m.Name] = m.Role
	}
	return out
}

func TestBuiltinServicesOfASet(t *testing.T) {
	var all []*running
	for i, cfg := range staticSet(t) {
		if i > 0 {
			cfg.Cluster.Join = []string{all[0].members.LocalAddr().String()}
		}
		all = append(all, start(t, Options{Loaded: loaded(cfg)}))
	}
	servers, other := all[:3], all[3]
	leader := func() *running {
		for _, r := range servers {
			if s := r.storage.server(); s != nil && s.State().Leads() {
				return r
			}
		}
		return nil
	}
	for _, r := range servers {
		await.For(t, "every server to know what it is", func() bool {
			r.services.mu.Lock()
			defer r.services.mu.Unlock()
			return r.services.server != nil
		})
		r.publishes(t)
	}
	shown := func(is *running) func() bool {
		return func() bool {
			lead, instances, roles := "", "", other.roles(t)
			for _, r := range servers {
				name, reason, role := r.config().Node.Name, "not-leader", "follower"
				if r == is {
					reason, role = "ready", "leader"
				}
				if roles[name] != role {
					return false
				}
				lead += name + "/api:" + reason + " "
				instances += name + "/api:ready "
			}
			return roles["n4"] == "member" && other.endpoints(t, "raft/leader") == strings.TrimSpace(lead) &&
				other.endpoints(t, "raft/servers") == strings.TrimSpace(instances)
		}
	}
	// On a busy machine the office may change hands by itself.
	var first *running
	await.For(t, "an agent to see who leads, and calls to prefer it", func() bool {
		first = leader()
		return first != nil && shown(first)() && other.leaderAddress() == first.listening("rpc.listen")
	})
	list, err := first.api.Services(t.Context())
	if err != nil || len(list.Services) != 2 || list.Services[0].Source != sourceBuiltin || list.Services[0].VIP != "10.200.255.254" {
		t.Errorf("services %+v, %v", list, err)
	}

	// Nobody else says anything of them.
	for what, err := range map[string]error{
		"deregister": func() error { _, err := first.api.Deregister(t.Context(), "raft/leader", ""); return err }(),
		"maintain":   func() error { _, err := first.api.Maintenance(t.Context(), true, "raft/leader", ""); return err }(),
		"register": func() error {
			_, err := first.api.Register(t.Context(), "test", "{name: leader, namespace: raft, port: 1}", false)
			return err
		}(),
	} {
		if err == nil || !strings.Contains(err.Error(), "servers of the store") {
			t.Errorf("%s: %v", what, err)
		}
	}

	// It follows the leader.
	var to *running
	for _, r := range servers {
		if r != first {
			to = r
		}
	}
	await.For(t, "an agent to see that another one leads, and calls to prefer it", func() bool {
		if l := leader(); l != nil && l != to {
			_ = l.storage.server().Transfer(storeCall(t), to.storage.server().ID())
		}
		return shown(to)() && other.leaderAddress() == to.listening("rpc.listen")
	})
}

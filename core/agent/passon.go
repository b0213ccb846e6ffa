package agent

import (
	"google.golang.org/grpc"

	"github.com/fairlead/fairlead/core/api/forward"
	"github.com/fairlead/fairlead/core/raft/transport"
	"github.com/fairlead/fairlead/core/view"
)

// passOn has calls to the store answered by the servers that are known, or says why
// there is no store. Ended is the server that answered them before, nil if none did:
// when it comes too late, another one does already.
func (a *Agent) passOn(ended *serving, why string) {
	st := a.storage
	st.turn.Lock()
	defer st.turn.Unlock()
	if st.served.Load() != ended {
		return
	}
	st.agents.Unset(why)
	st.passes = false
	switch {
	case a.config().Store.Kind == "etcd":
		st.front.Unset("store.kind is etcd: what users keep is in that cluster itself, at store.endpoints")
		return
	case st.forwarder == nil:
		st.front.Unset(why + ", and without cluster.secret_file it cannot ask one")
		return
	}
	st.front.Set(st.forwarder)
	st.passes = true
}

// answer begins with a server. It reports whether others go on to answer clients: they
// may have seen more there than this server has, which is to catch up first.
func (a *Agent) answer(now *serving) (behind bool) {
	st := a.storage
	st.turn.Lock()
	defer st.turn.Unlock()
	st.served.Store(now)
	if !st.passes {
		st.front.Set(now.api)
	}
	return st.passes
}

// takeOver has clients answered by a server that caught up, if it still is this
// agent's.
func (a *Agent) takeOver(now *serving) {
	st := a.storage
	st.turn.Lock()
	defer st.turn.Unlock()
	if st.served.Load() == now {
		st.front.Set(now.api)
		st.passes = false
	}
}

// newForwarder returns what passes calls on to servers, one for the whole life of the
// agent: calls under way stay with it when a server opens here.
func (a *Agent) newForwarder() (*forward.Forwarder, error) {
	st := a.storage
	return forward.New(forward.Config{
		Servers: a.otherServers,
		Leader:  a.leaderAddress,
		Dial: func(s forward.Server, options ...grpc.DialOption) (*grpc.ClientConn, error) {
			return transport.Dial(st.keeper, s.Address, s.Node, options...)
		},
		Log: a.log.With("part", "forward"),
	})
}

// otherServers are those of raft.peers, or those that gossip knows of the group that
// most of them are in.
func (a *Agent) otherServers() []forward.Server {
	cfg := a.config()
	var out []forward.Server
	if len(cfg.Raft.Peers) > 0 {
		for _, p := range cfg.Raft.Peers {
			if p.Name != cfg.Node.Name {
				out = append(out, forward.Server{Name: p.Name, Node: p.Name, Address: p.Addr.String()})
			}
		}
		return out
	}
	near := a.neighbours()
	members := map[uint64]int{}
	group := uint64(0)
	for _, n := range near {
		if g := n.Server.Group; g != 0 && n.State.Live() {
			members[g]++
			if most := members[group]; members[g] > most || members[g] == most && g < group {
				group = g
			}
		}
	}
	for _, n := range near {
		if group != 0 && n.Server.Group == group && n.State.Live() {
			out = append(out, forward.Server{Name: n.Name, Node: n.Name, Address: n.Server.RPC.String()})
		}
	}
	return out
}

// leaderAddress is where gossip has the server that leads, "" if nobody is known to.
func (a *Agent) leaderAddress() string {
	v := a.planes.views.Latest()
	for s := range v.Shards() {
		if n := v.Node(s.Leader); n != nil && n.Role == view.RoleLeader {
			return n.Server().RPC.String()
		}
	}
	return ""
}

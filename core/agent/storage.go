package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/fairlead/fairlead/core/api/etcd"
	"github.com/fairlead/fairlead/core/api/forward"
	"github.com/fairlead/fairlead/core/config"
	"github.com/fairlead/fairlead/core/identity"
	"github.com/fairlead/fairlead/core/raft/transport"
	"github.com/fairlead/fairlead/core/server"
)

// storage is this agent's part in the cluster's store: the port where agents meet,
// and the server, if it is one. Nil fields are what it has not.
type storage struct {
	keeper *identity.Keeper
	port   *transport.Port
	part   *server.Part
	why    string // there is no part
	// front is where clients find the store, and agents is where other agents do: a
	// server only, so that nothing is passed on in circles.
	front, agents *etcd.Front
	forwarder     *forward.Forwarder
	follower      follower

	served atomic.Pointer[serving] // nil: this agent is no server now
	turn   sync.Mutex              // who answers at the front is changed under it
	passes bool                    // of turn: others do, by the forwarder
}

// server is the one that this agent is, or nil.
func (st *storage) server() *server.Server {
	if st == nil || st.part == nil {
		return nil
	}
	return st.part.Server()
}

// startStorage opens the agents' port, and this agent's part in the store.
func (a *Agent) startStorage(c *cleanups, b bound) error {
	st := a.storage
	if err := a.startPort(c, b.rpc); err != nil {
		return err
	}
	if st.keeper != nil {
		var err error
		if st.forwarder, err = a.newForwarder(); err != nil {
			return err
		}
		c.add(func(context.Context) { st.forwarder.Stop() })
	}
	if err := a.startFollower(c); err != nil {
		return err
	}
	c.add(func(context.Context) { st.front.Stop() })
	if st.why = a.noPart(); st.why == "" {
		if err := a.startPart(c, b); err != nil {
			return err
		}
		a.stopFollower(c)
	} else {
		a.log.Info("this agent is no server of the store", "reason", st.why)
	}
	a.passOn(nil, st.reason())
	if st.port != nil {
		st.agents.Register(st.port, etcd.ByMetadata)
		c.add(func(context.Context) { st.agents.Stop() })
		go func() {
			if err := st.port.Serve(); err != nil {
				a.log.Error("the agents' port stopped answering", "error", err)
			}
		}()
	}
	return nil
}

// reason says why this agent is no server.
func (st *storage) reason() string {
	if why := st.awaits(); why != "" {
		return "this agent is no server: " + why
	}
	return "this agent is no server now"
}

// awaits says why this agent has no part in the store, or what that waits for.
func (st *storage) awaits() string {
	if st.part != nil {
		return st.part.Awaits()
	}
	return st.why
}

// waits says what this agent's part in the store waits for, or what is wrong with the
// group; nothing if it has none.
func (st *storage) waits() string {
	if st.part == nil {
		return ""
	}
	return st.part.Awaits()
}

// lacks says what the servers lack of what is aimed at, if this one leads.
func (st *storage) lacks() string {
	if now := st.served.Load(); now != nil && now.control != nil {
		return now.control.Why()
	}
	return ""
}

// noPart says why this agent has no part in the store, "" if it has one.
func (a *Agent) noPart() string {
	cfg := a.config()
	switch {
	case !cfg.Cluster.Server:
		return "cluster.server is false"
	case cfg.Store.Kind != "embedded":
		return "store.kind is " + cfg.Store.Kind
	case len(cfg.Raft.Peers) > 0:
		if !slices.ContainsFunc(cfg.Raft.Peers, func(p config.RaftPeer) bool { return p.Name == cfg.Node.Name }) {
			return "raft.peers does not name it"
		}
	case a.storage.port == nil && !a.alone() && !a.wasServer():
		return "it is not alone, and without cluster.secret_file and rpc.listen it cannot talk to other servers"
	}
	return ""
}

// alone reports whether this node begins a store of its own at once: nobody is named
// that it could wait for.
func (a *Agent) alone() bool {
	cfg := a.config()
	switch cfg.Cluster.BootstrapExpect {
	case 1:
		return a.storage.port == nil || len(cfg.Cluster.Join) == 0 && !a.members.Rejoins()
	case config.AutomaticBootstrap:
		return len(cfg.Cluster.Join) == 0 && !a.members.Rejoins()
	}
	return false
}

// wasServer reports whether the data directory is one of a server. What is wrong with
// it is said when it is opened.
func (a *Agent) wasServer() bool {
	if a.dataDir() == "" {
		return false
	}
	_, known, err := server.ReadIdentity(a.dataDir())
	return known || err != nil
}

// startPart opens the server half.
func (a *Agent) startPart(c *cleanups, b bound) error {
	cfg, st := a.config(), a.storage
	pc := server.PartConfig{
		Config: server.Config{
			Cluster: cfg.Cluster.Name, Node: cfg.Node.Name, NodeID: a.members.Snapshot().Self.ID,
			Dir: a.dataDir(), RPC: a.rpcAddress(b.rpc), API: a.clientURLs(b.tcp),
			Keeper: st.keeper, Limits: portLimits(cfg),
			HeartbeatInterval: cfg.Raft.Heartbeat, ElectionTimeout: cfg.Raft.Election,
			Neighbours: a.neighbours,
			OnChange: func() {
				if now := st.served.Load(); now != nil {
					now.api.Applied()
					now.own.Applied()
				}
			},
			Log: a.log.With("part", "store"), Metrics: a.opts.Metrics,
		},
		Expect:   max(cfg.Cluster.BootstrapExpect, 0),
		Alone:    len(cfg.Raft.Peers) == 0 && a.alone(),
		Announce: a.services.setServer,
		Serving:  a.serveStore,
		Lacks:    st.lacks,
	}
	if st.port != nil {
		pc.Port = st.port
	}
	for _, p := range cfg.Raft.Peers {
		pc.Set = append(pc.Set, server.Peer{Name: p.Name, Addr: p.Addr})
	}
	var err error
	switch st.part, err = server.StartPart(pc); {
	case errors.Is(err, syscall.ENOSPC):
		// As with a disk that fills up later: what else the agent does goes on.
		a.log.Error("this agent is no server of the store until it is restarted: free some space", "error", err)
		st.part, st.why = nil, err.Error()
		return nil
	case err != nil:
		return fmt.Errorf("agent: the store does not open: %w", err)
	}
	c.add(st.part.Close)
	return nil
}

// handOver gives the leadership of the store to another server, if it is here.
func (st *storage) handOver(ctx context.Context) {
	if s := st.server(); s != nil {
		s.HandOver(ctx)
	}
}

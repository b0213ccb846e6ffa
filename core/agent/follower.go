package agent

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"google.golang.org/grpc"

	"github.com/fairlead/fairlead/core/api"
	"github.com/fairlead/fairlead/core/etcdstore"
	system "github.com/fairlead/fairlead/core/follow"
	"github.com/fairlead/fairlead/core/raft/transport"
	"github.com/fairlead/fairlead/core/server"
)

// copyFile is the last known good copy of the system's keyspace.
const copyFile = "system.copy"

// follower is this agent's way to the system's keyspace.
type follower struct {
	source system.Source
	// serve says that this agent is a server now, or, with nil, none.
	serve func(*system.Local)
	stop  func()
	// accept has servers followed that are refused.
	accept func(context.Context, uint64) (system.Accepted, error)
	now    func() time.Time
}

// startFollower begins to follow the system's keyspace, wherever it is.
func (a *Agent) startFollower(c *cleanups) error {
	cfg, st := a.config(), a.storage
	log, file := a.log.With("part", "follow"), ""
	if dir := a.dataDir(); dir != "" {
		file = filepath.Join(dir, copyFile)
	}
	if cfg.Store.Kind == "etcd" {
		s, err := etcdstore.Open(etcdstore.Config{
			Cluster: cfg.Cluster.Name, Endpoints: cfg.Store.Endpoints,
			TLS:  etcdstore.TLS{Cert: cfg.Store.TLS.Cert, Key: cfg.Store.TLS.Key, CA: cfg.Store.TLS.CA},
			File: file, Now: a.opts.Now, Log: log, Metrics: a.opts.Metrics,
		})
		if err != nil {
			return err
		}
		st.follower = follower{source: s, serve: func(*system.Local) {}, stop: s.Stop, accept: s.Accept, now: a.opts.Now}
	} else {
		f, err := system.Start(system.Config{
			Servers: func() (out []system.Server) {
				if st.keeper == nil {
					return nil
				}
				for _, s := range a.otherServers() {
					out = append(out, system.Server(s))
				}
				return out
			},
			Dial: func(s system.Server, options ...grpc.DialOption) (*grpc.ClientConn, error) {
				return transport.Dial(st.keeper, s.Address, s.Node, options...)
			},
			Nobody: a.nobody(), File: file, Of: "the system keyspace of " + cfg.Cluster.Name,
			Now: a.opts.Now, Log: log, Metrics: a.opts.Metrics,
		})
		if err != nil {
			return err
		}
		st.follower = follower{source: f, serve: f.Serve, stop: f.Stop, accept: f.Accept, now: a.opts.Now}
	}
	a.stopFollower(c)
	return nil
}

// stopFollower has it end; it may end before. A server's is to end before the server
// does, so that it leaves no copy.
func (a *Agent) stopFollower(c *cleanups) {
	c.add(func(context.Context) { a.storage.follower.stop() })
}

// nobody says why no server is known.
func (a *Agent) nobody() string {
	if a.storage.keeper == nil {
		return "this agent is no server of the store, and without cluster.secret_file it cannot ask one"
	}
	return "no live server of the store is known: gossip names none, and raft.peers is empty"
}

// ownSource is what a server of this agent has.
func (a *Agent) ownSource(s *server.Server) (*system.Local, error) {
	return system.NewLocal(system.LocalConfig{
		Name: a.config().Node.Name, Cluster: s.Identity().Cluster, View: s.View,
		Leader: func() bool { return s.State().Leader != 0 }, Now: a.opts.Now,
	})
}

// copied says what is known of the system's keyspace.
func (f follower) copied() *api.RaftCopy {
	st := f.source.Status()
	c := &api.RaftCopy{Revision: st.Revision, Keys: st.Keys, Server: st.Server, Address: st.Address, Problem: st.Problem}
	if st.Cluster != 0 {
		c.ClusterID = fmt.Sprintf("%016x", st.Cluster)
	}
	c.Age, c.AgeKnown = st.Age(f.now())
	return c
}

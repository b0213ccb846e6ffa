package agent

import (
	"context"
	"sync"
	"time"

	"github.com/fairlead/fairlead/core/api/etcd"
	"github.com/fairlead/fairlead/core/control"
	"github.com/fairlead/fairlead/core/control/voters"
	system "github.com/fairlead/fairlead/core/follow"
	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/server"
)

// serving is what goes on beside a server that clients are answered by.
type serving struct {
	api     *etcd.Server
	own     *system.Local
	control *control.Controller // nil: the servers are a static set
	stop    context.CancelFunc
	running sync.WaitGroup
}

// serveStore has clients answered by a server, or, if it is nil, by others.
func (a *Agent) serveStore(s *server.Server) {
	st, cfg := a.storage, a.config()
	if old := st.served.Swap(nil); old != nil {
		st.follower.serve(nil)
		a.passOn(nil, "this agent is no server now")
		old.api.Stop()
		old.stop()
		old.running.Wait()
	}
	if s == nil {
		return
	}
	own, err := a.ownSource(s)
	if err != nil {
		a.log.Error("the store's own keys cannot be shown", "error", err)
		return
	}
	now := &serving{own: own, api: etcd.New(etcd.Config{Store: replicated{s}, MinLease: minLease(cfg.Raft.Election), Log: a.log.With("part", "store")})}
	ctx, cancel := context.WithCancel(context.Background())
	now.stop = cancel
	if len(s.Identity().Set) == 0 && st.port != nil { // before anybody sees it
		now.control = control.New(control.Config{
			Server: s, Known: func() []voters.Server { return a.servers(s) },
			Rules: voters.Rules{Target: cfg.Raft.Voters}, Log: a.log.With("part", "control"),
		})
	}
	behind := a.answer(now)
	st.follower.serve(own)
	st.agents.Set(now.api)
	if now.control != nil {
		now.running.Go(func() { now.control.Run(ctx) })
	}
	now.running.Go(func() {
		if behind {
			if _, err := s.Read(ctx); err == nil {
				a.takeOver(now)
			}
		}
		select {
		case <-ctx.Done():
		case <-s.Done():
			if s.Err() != nil {
				now.api.Stop()
				a.passOn(now, "this agent's server failed, see its log or `fairlead raft status`")
			}
		}
	})
}

// neighbours are the other nodes as the store wants them.
func (a *Agent) neighbours() []server.Neighbour {
	v := a.planes.views.Latest()
	var out []server.Neighbour
	for n := range v.Nodes() {
		if n.ID == v.Self || n.Record == nil || n.Record.Definition.Server == nil {
			continue
		}
		out = append(out, server.Neighbour{ID: n.ID, Name: n.Name, State: n.Value.State, Since: n.Since, Server: n.Record.Definition.Server})
	}
	return out
}

// servers are those of a server's group that gossip knows, for who decides on them.
func (a *Agent) servers(s *server.Server) []voters.Server {
	id := s.Identity()
	out := []voters.Server{{ID: id.Server, Name: a.config().Node.Name, State: voters.Alive}}
	for _, n := range a.neighbours() {
		if n.Server.Group == id.Cluster {
			out = append(out, voters.Server{ID: n.Server.ID, Name: n.Name, State: livenessOf(n.State), Since: n.Since})
		}
	}
	return out
}

func livenessOf(s model.State) voters.Liveness {
	switch s {
	case model.StateDead:
		return voters.Dead
	case model.StateLeft:
		return voters.Left
	}
	return voters.Alive
}

// minLease is the shortest lease with which a client outlives a change of leader:
// etcd's rule, one and a half election timeouts, in whole seconds.
func minLease(election time.Duration) time.Duration {
	return (3*election/2 + time.Second - 1).Truncate(time.Second)
}

// replicated is a server in the words of the etcd API.
type replicated struct{ *server.Server }

var _ etcd.Store = replicated{}

// Header implements etcd.Store.
func (r replicated) Header() etcd.Header {
	st, id := r.State(), r.Identity()
	return etcd.Header{ClusterID: id.Cluster, MemberID: id.Server, Term: st.Term, Leader: st.Leader}
}

// Status implements etcd.Store.
func (r replicated) Status() etcd.Status {
	st := r.Server.Status()
	index, _ := st.View.Applied()
	out := etcd.Status{ClusterID: st.Identity.Cluster, MemberID: st.Identity.Server, Term: st.Term, Leader: st.Leader, Index: index}
	for _, m := range st.Members {
		one := etcd.Member{ID: m.ID, Name: m.Name, ClientURLs: m.API, Learner: m.Learner}
		if m.RPC != "" {
			one.PeerURLs = []string{"https://" + m.RPC}
		}
		out.Members = append(out.Members, one)
	}
	return out
}

package server

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/fairlead/fairlead/core/raft"
	"github.com/fairlead/fairlead/core/store"
)

// ServersPrefix is where servers publish their names and addresses in the system
// keyspace: ServersPrefix and the id, 16 hexadecimal digits.
const ServersPrefix = "servers/"

// Record is the value of such a key, as JSON.
type Record struct {
	Name string   `json:"name"`
	RPC  string   `json:"rpc,omitempty"` // host:port
	API  []string `json:"api,omitempty"` // URLs
}

// Member is a server of the group.
type Member struct {
	Record
	ID      uint64
	Learner bool
}

// roster is who is in the group; it is not altered once made.
type roster struct {
	members []Member          // by id
	known   map[uint64]Member // these, and others that say that they are of the group
}

// newRoster joins the membership, what servers published and gossip, and the static
// set. Nil for conf is those that the group began with; nil for v that nobody
// published anything.
func newRoster(c *Config, id Identity, conf *pb.ConfState, v *store.View) *roster {
	r := &roster{known: map[uint64]Member{}}
	voters, learners, outgoing := id.voters(), []uint64(nil), []uint64(nil)
	if conf != nil {
		voters, learners, outgoing = conf.GetVoters(), slices.Concat(conf.GetLearners(), conf.GetLearnersNext()), conf.GetVotersOutgoing()
	}
	published, told := publishedBy(v), map[uint64]Record{}
	for _, n := range c.neighbours() {
		s := n.Server
		if s == nil || s.Group != id.Cluster && s.Group != 0 {
			continue
		}
		// Where a server is now, gossip knows first; that it is of the group, maybe last.
		at := Record{Name: n.Name, RPC: s.RPC.String(), API: published[s.ID].API}
		told[s.ID] = at
		if _, unneeded := retiredIn(v, s.ID); s.Group == id.Cluster && !unneeded {
			r.known[s.ID] = Member{ID: s.ID, Record: at}
		}
	}
	known := func(server uint64, learner bool) Member {
		m := Member{ID: server, Learner: learner, Record: published[server]}
		if at, ok := told[server]; ok {
			m.Record = at
		}
		if server == id.Server {
			m.Record = c.record()
		} else if i := server - 1; i < uint64(len(id.Set)) {
			m.Name = id.Set[i]
		}
		for _, p := range c.Set {
			if p.Name == m.Name {
				m.RPC = p.Addr.String()
			}
		}
		r.known[server] = m
		return m
	}
	// Those that a change takes out have a say until it is over, but are named no more.
	for _, server := range outgoing {
		known(server, false)
	}
	for _, server := range voters {
		r.members = append(r.members, known(server, false))
	}
	for _, server := range learners {
		if !slices.Contains(voters, server) {
			r.members = append(r.members, known(server, true))
		}
	}
	return r
}

// reach returns a server that messages may go to and come from: also one that is no
// member here, as this server may be the last to hear of it, or be new itself.
func (r *roster) reach(id uint64) (Member, bool) {
	m, ok := r.known[id]
	return m, ok
}

// record is what this server publishes.
func (c *Config) record() Record { return Record{Name: c.Node, RPC: c.RPC, API: c.API} }

// publishedBy returns what servers said of themselves.
func publishedBy(v *store.View) map[uint64]Record {
	out := map[uint64]Record{}
	if v == nil {
		return out
	}
	found, err := v.Range(store.System, store.RangeOp{Range: store.WithPrefix(ServersPrefix)})
	if err != nil {
		return out
	}
	for _, kv := range found.KVs {
		id, err := strconv.ParseUint(strings.TrimPrefix(kv.Key, ServersPrefix), 16, 64)
		var r Record
		if err == nil && json.Unmarshal(kv.Value, &r) == nil {
			out[id] = r
		}
	}
	return out
}

// retiredIn reports whether a server was removed, and whether it is not needed any
// more.
func retiredIn(v *store.View, id uint64) (retired, unneeded bool) {
	if v == nil {
		return false, false
	}
	return raft.RetiredIn(v, id)
}

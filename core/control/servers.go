package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/fairlead/fairlead/core/control/voters"
	"github.com/fairlead/fairlead/core/raft"
	"github.com/fairlead/fairlead/core/raft/replica"
	"github.com/fairlead/fairlead/core/store"
)

// LeavingPrefix begins the keys of the system keyspace by which somebody asks that a
// server be removed: behind it is its raft id, 16 hexadecimal digits. The value is
// LeavingForced if that is not to wait for another server in its place. The key goes
// with the server.
const (
	LeavingPrefix = "leaving/"

	LeavingForced = "forced"
)

// LeavingKey is the key by which one server is asked to leave.
func LeavingKey(id uint64) string { return fmt.Sprintf("%s%016x", LeavingPrefix, id) }

// Server is the server that a controller runs beside: a raft.Host.
type Server interface {
	ID() uint64
	State() replica.State
	Changed() <-chan struct{}
	Members() *pb.ConfState
	View() *store.View
	Progress(context.Context) ([]replica.Member, error)
	Change(context.Context, replica.Change) error
	Transfer(ctx context.Context, to uint64) error
	Propose(context.Context, store.Command) (store.Result, error)
}

// Config is what a Controller is made of. All fields are required.
type Config struct {
	Server Server
	// Known returns the servers that gossip knows of the group, this one included, as
	// far as it says: who asked for whose removal is not asked of it.
	Known func() []voters.Server
	Rules voters.Rules
	Log   *slog.Logger
}

// Controller keeps the servers at what is aimed at, while its server leads.
type Controller struct {
	cfg    Config
	why    atomic.Pointer[string]
	unseen voters.Unseen // of who runs
}

const (
	lookEvery     = time.Second
	changeTimeout = 30 * time.Second
)

// New returns a controller, which does nothing before Run.
func New(cfg Config) *Controller { return &Controller{cfg: cfg} }

// Why says what is lacking, as this server knows it: only the leader does.
func (c *Controller) Why() string {
	if why := c.why.Load(); why != nil {
		return *why
	}
	return ""
}

// Run looks at the servers until ctx ends.
func (c *Controller) Run(ctx context.Context) {
	for {
		again := time.NewTimer(lookEvery)
		changed := c.cfg.Server.Changed()
		if c.look(ctx) {
			again.Reset(0) // there may be more to do
		}
		select {
		case <-ctx.Done():
			again.Stop()
			return
		case <-again.C:
		case <-changed:
		}
		again.Stop()
	}
}

// look decides and does one thing; true if something changed.
func (c *Controller) look(ctx context.Context) bool {
	s := c.cfg.Server
	if !s.State().Leads() {
		c.say("")
		c.unseen.Reset()
		return false
	}
	members, err := s.Progress(ctx)
	if err != nil {
		return false
	}
	now, group := time.Now(), c.group(members)
	servers := c.unseen.Complete(now, group, c.servers())
	if c.stepAside(ctx, members, servers) {
		return true
	}
	d := voters.Decide(c.cfg.Rules, now, group, servers)
	if d.Change.IsZero() {
		c.say(d.Why)
		return c.forgetGone(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	err = s.Change(ctx, replica.Change{AddLearners: d.Change.AddLearner, Promote: d.Change.Promote, Remove: d.Change.Remove})
	switch {
	case err == nil:
		c.cfg.Log.Info("the servers of the store changed", "why", d.Why)
		return true
	case errors.Is(err, replica.ErrChangeOpen), errors.Is(err, replica.ErrBehind), errors.Is(err, raft.ErrNotLeader):
		c.cfg.Log.Debug("the servers of the store did not change yet", "why", d.Why, "error", err)
	default:
		c.cfg.Log.Warn("the servers of the store did not change", "why", d.Why, "error", err)
	}
	return false
}

// say remembers what is lacking, and logs it when it changes.
func (c *Controller) say(why string) {
	if was := c.why.Swap(&why); why != "" && (was == nil || *was != why) {
		c.cfg.Log.Info("the servers of the store are not what is aimed at", "state", why)
	}
}

// group is the membership as the leader knows it.
func (c *Controller) group(members []replica.Member) voters.Group {
	conf := c.cfg.Server.Members()
	g := voters.Group{
		Leader: c.cfg.Server.ID(), Voters: conf.GetVoters(), Learners: conf.GetLearners(),
		Joint: len(conf.GetVotersOutgoing()) > 0, Progress: map[uint64]voters.Progress{},
	}
	for _, m := range members {
		g.Progress[m.ID] = voters.Progress{Match: m.Match, Active: m.Active, CaughtUp: m.CaughtUp}
	}
	return g
}

// Remaining leaves out of the servers that gossip knows, for a while, those that were
// removed: they are none to count on. It may alter known.
func Remaining(v *store.View, conf *pb.ConfState, known []voters.Server) []voters.Server {
	return slices.DeleteFunc(known, func(s voters.Server) bool {
		retired, _ := raft.RetiredIn(v, s.ID)
		return retired && !isMember(conf, s.ID)
	})
}

// servers are those that remain of whom gossip knows, with what was asked of them.
func (c *Controller) servers() []voters.Server {
	v := c.cfg.Server.View()
	leaving := leavingIn(v)
	var out []voters.Server
	for _, s := range Remaining(v, c.cfg.Server.Members(), c.cfg.Known()) {
		how, asked := leaving[s.ID]
		s.Leaving, s.Forced = asked, how == LeavingForced
		delete(leaving, s.ID)
		out = append(out, s)
	}
	for id, how := range leaving { // gossip has forgotten it
		out = append(out, voters.Server{ID: id, Leaving: true, Forced: how == LeavingForced})
	}
	return out
}

func isMember(conf *pb.ConfState, id uint64) bool {
	for _, list := range [][]uint64{conf.GetVoters(), conf.GetVotersOutgoing(), conf.GetLearners(), conf.GetLearnersNext()} {
		if slices.Contains(list, id) {
			return true
		}
	}
	return false
}

// stepAside hands the leadership over if this server was asked to leave: it cannot
// remove itself.
func (c *Controller) stepAside(ctx context.Context, members []replica.Member, servers []voters.Server) bool {
	self := c.cfg.Server.ID()
	leaves := map[uint64]bool{}
	for _, s := range servers {
		leaves[s.ID] = s.Leaving
	}
	var to replica.Member
	for _, m := range members {
		// Two that are to leave would hand it to each other, again and again.
		if m.ID != self && m.Active && !m.Learner && !leaves[m.ID] && m.Match >= to.Match {
			to = m
		}
	}
	if !leaves[self] || to.ID == 0 {
		return false
	}
	if err := c.cfg.Server.Transfer(ctx, to.ID); err != nil {
		c.cfg.Log.Warn("this server is to leave, and the leadership stays with it", "error", err)
		return false
	}
	return true
}

// forgetGone drops the wishes that were granted.
func (c *Controller) forgetGone(ctx context.Context) bool {
	for id := range leavingIn(c.cfg.Server.View()) {
		if isMember(c.cfg.Server.Members(), id) {
			continue
		}
		r, err := c.cfg.Server.Propose(ctx, store.Command{
			Space: store.System, Term: c.cfg.Server.State().Term,
			Op: &store.Op{Delete: &store.DeleteOp{Range: store.Range{Key: LeavingKey(id)}}},
		})
		return err == nil && r.Err == nil
	}
	return false
}

// leavingIn returns which servers are asked to leave, and how.
func leavingIn(v *store.View) map[uint64]string {
	found, err := v.Range(store.System, store.RangeOp{Range: store.WithPrefix(LeavingPrefix)})
	if err != nil {
		return nil
	}
	out := map[uint64]string{}
	for _, kv := range found.KVs {
		if id, err := strconv.ParseUint(strings.TrimPrefix(kv.Key, LeavingPrefix), 16, 64); err == nil {
			out[id] = string(kv.Value)
		}
	}
	return out
}

package server

import (
	"context"
	"fmt"
	"path/filepath"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/core/formation"
	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/record"
	"github.com/fairlead/fairlead/core/server/serverpb"
)

// PartConfig is what a Part is made of.
type PartConfig struct {
	// Config is that of the server, once there is one. Without Keeper and Port a node
	// is alone or nothing. NodeID and Neighbours are required with them.
	Config
	// Expect is how many servers form a group together; 0 waits to be added. Alone
	// begins a group of this node at once. A static set has neither.
	Expect int
	Alone  bool

	// Announce tells the other nodes what this one is; nil is nothing. It must not
	// block. Required with a Port.
	Announce func(*record.Server)
	// Serving is told of each server once it is a member of its group, and of nil before
	// it is closed or as soon as it knows that it is a member no more. Optional.
	Serving func(*Server)
	// Lacks says what the servers lack of what is aimed at, as this one knows it while
	// it leads: control.Controller's Why. Optional.
	Lacks func() string
}

// Part is a node's part in the store, as long as its agent runs: it forms a group or
// waits for one, is a server of it, and becomes a new one if it was removed.
//
// One goroutine owns the formation and the server; messages of others come to it by a
// channel.
type Part struct {
	cfg       PartConfig
	relay     *relay
	calls     *calls
	formation *formation.Server // nil: nobody else is there to form anything with
	messages  chan formation.Message
	asks      chan func()   // what is rare, and done by the goroutine
	ended     chan struct{} // the goroutine did
	departs   atomic.Bool   // the node leaves: it becomes no server any more

	mu     sync.Mutex // guards the following two, which the goroutine writes
	server *Server
	awaits string

	// The goroutine's:
	known      bool // own says which server this node is
	serving    bool // the server was told of
	removed    bool // the server knows that it is a member no more
	odd        bool // it is in a group that the formation did not wait for; that was said
	own        Identity
	doubt      *doubt // nil: there is none whether this node may begin
	announced  *record.Server
	leaderless time.Time // since when; zero: it has one
	lookedAt   time.Time // whether this server was removed

	cancel  context.CancelFunc
	running sync.WaitGroup
}

const (
	// formEvery is how often a node looks around that is no server yet, or no more:
	// several times in the formation's Retry. A server does so each lookEvery.
	formEvery = 100 * time.Millisecond
	lookEvery = time.Second
	// messagesAtOnce bounds the messages that wait; others are sent again.
	messagesAtOnce = 256

	formationFile      = "formation.json"
	formationFileBytes = 1 << 20
)

// StartPart opens the server, if this node is one already, and goes on from there.
// Its errors are those of Open.
func StartPart(cfg PartConfig) (*Part, error) {
	p := &Part{cfg: cfg, messages: make(chan formation.Message, messagesAtOnce), asks: make(chan func()), ended: make(chan struct{})}
	if cfg.Serving == nil {
		p.cfg.Serving = func(*Server) {}
	}
	if cfg.Port != nil {
		p.relay = newRelay(cfg.Port)
		p.cfg.Port = p.relay
		serverpb.RegisterServerServer(cfg.Port, service{part: p})
	}
	p.calls = newCalls(&p.cfg.Config)
	if cfg.Dir != "" {
		// What a process that was killed left under its name is believed, so it has to
		// outlast the host as well.
		if err := syncDir(cfg.Dir); err != nil {
			return nil, err
		}
	}
	id, is, err := known(&p.cfg.Config)
	if err != nil {
		return nil, err
	}
	if is {
		if is, err = keeps(cfg.Dir, id); err != nil {
			return nil, err
		}
	}
	switch {
	case !is && len(cfg.Set) > 1 && cfg.Dir != "" && p.relay != nil:
		p.doubt = newDoubt(&p.cfg.Config)
		p.await(p.doubt.text)
	case !is && (len(cfg.Set) > 0 || cfg.Alone):
		if id, err = identify(&p.cfg.Config); err != nil {
			return nil, err
		}
		is = true
	}
	if is {
		if err := p.open(id); err != nil {
			return nil, err
		}
	}
	if err := p.startFormation(); err != nil {
		p.shut(context.Background())
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	p.running.Go(func() { p.run(ctx) })
	return p, nil
}

// Close ends the server, which hands its leadership over first, and all else.
func (p *Part) Close(ctx context.Context) {
	p.cancel()
	p.running.Wait()
	p.shut(ctx)
	p.calls.close()
}

// Server returns the server that this node is now, or nil.
func (p *Part) Server() *Server {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.server
}

// Awaits says what this node waits for to become a server, or what is wrong with the
// group; "" if nothing is.
func (p *Part) Awaits() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.awaits
}

// Recheck is to be called when the secrets changed.
func (p *Part) Recheck() {
	p.calls.reset()
	if s := p.Server(); s != nil {
		s.Recheck()
	}
}

// open opens the server that this node is.
func (p *Part) open(id Identity) error {
	s, err := open(p.cfg.Config, id)
	if err != nil {
		return err
	}
	p.known, p.own, p.removed = true, s.identity, false
	p.mu.Lock()
	p.server = s
	p.mu.Unlock()
	p.serve()
	return nil
}

// serve tells of a server that is a member: one that waits to be added knows nothing.
func (p *Part) serve() {
	if s := p.Server(); s != nil && !p.serving && s.isMember() {
		p.serving = true
		p.cfg.Serving(s)
	}
}

// withdraw takes back that a server serves once it knows that it was removed: clients
// would wait there for a leader that speaks to it no more.
func (p *Part) withdraw(s *Server) {
	if p.serving && !s.isMember() && !s.votes() {
		p.removed = true
		p.unserve()
	}
}

func (p *Part) unserve() {
	if p.serving {
		p.serving = false
		p.cfg.Serving(nil)
	}
}

// shut closes the server.
func (p *Part) shut(ctx context.Context) {
	p.mu.Lock()
	s := p.server
	p.server = nil
	p.mu.Unlock()
	if s == nil {
		return
	}
	p.unserve()
	s.Close(ctx)
}

func (p *Part) run(ctx context.Context) {
	defer close(p.ended)
	for {
		pause := time.NewTimer(lookEvery)
		if p.removed || !p.known && (p.formation != nil || p.doubt != nil) {
			pause.Reset(formEvery)
		}
		var changed, done <-chan struct{}
		if s := p.Server(); s != nil {
			changed, done = s.Changed(), s.Done()
			if s.Err() != nil {
				done = nil
			}
		}
		p.step(ctx, time.Now())
		select {
		case <-ctx.Done():
			pause.Stop()
			return
		case <-pause.C:
		case <-changed: // also when another one leads
		case <-done:
		case m := <-p.messages:
			p.heard(m)
		case f := <-p.asks:
			f()
		}
		pause.Stop()
	}
}

// heard takes a word of another node.
func (p *Part) heard(m formation.Message) {
	if p.formation == nil {
		return
	}
	if err := p.formation.Step(time.Now(), m); err != nil {
		p.cfg.Log.Warn("a word about the formation of a cluster was refused", "from", m.From.String(), "error", err)
	}
}

// step does what is due.
func (p *Part) step(ctx context.Context, now time.Time) {
	near := p.cfg.neighbours()
	if p.doubt != nil {
		p.resolve(ctx, now)
	}
	if p.formation != nil {
		p.formation.Members(now, membersOf(near))
		p.formation.Tick(now)
		if err := p.form(); err != nil {
			p.cfg.Log.Error("this node takes no part in the store: see its data directory, and restart it", "error", err)
			p.formation = nil // nothing that is not on disk is ever said
		}
	}
	if s := p.Server(); s != nil {
		s.nudge()
		p.withdraw(s)
		p.serve()
		p.noteAdded(now, s)
		if p.formation != nil && s.identity.Begun {
			p.formation.Began()
		}
		p.settle(ctx, now, s, near)
	}
	p.announce()
}

// noteAdded tells the formation that a group took this server in.
func (p *Part) noteAdded(now time.Time, s *Server) {
	if p.formation == nil || p.formation.Cluster() != 0 || !s.isMember() {
		return
	}
	if err := p.formation.Added(now, formation.ClusterID(s.identity.Cluster)); err != nil && !p.odd {
		p.odd = true
		p.cfg.Log.Error("this server is in a group that it did not wait for", "error", err)
	}
}

// announce tells the others what this node is, if that is another thing now.
func (p *Part) announce() {
	if p.cfg.Announce == nil || p.relay == nil {
		return
	}
	next := p.say()
	if reflect.DeepEqual(next, p.announced) {
		return
	}
	p.announced = next
	p.cfg.Announce(next)
}

// say is what this node is to the others.
func (p *Part) say() *record.Server {
	out := &record.Server{ID: uint64(p.cfg.NodeID), RPC: addressOf(p.cfg.RPC), Expect: uint8(max(p.cfg.Expect, 0))}
	if len(p.cfg.API) > 0 {
		out.API = addressOf(hostOf(p.cfg.API[0]))
	}
	if !out.RPC.IsValid() || out.RPC.Port() == 0 {
		return nil // nobody could reach it
	}
	s := p.Server()
	switch {
	case s == nil && p.known:
		return nil
	case s == nil:
		return out
	case s.Err() != nil:
		return nil
	}
	out.ID, out.Group, out.Expect = s.identity.Server, s.identity.Cluster, 0
	out.Learner = !s.votes()
	if st := s.State(); st.Leads() {
		out.Term = st.Term
	}
	return out
}

// startFormation goes on where the disk says that the formation was.
func (p *Part) startFormation() error {
	if p.relay == nil || len(p.cfg.Set) > 0 {
		return nil
	}
	rec, err := readFormation(p.cfg.Dir)
	if err != nil {
		return err
	}
	if !p.known && rec.Begun {
		return fmt.Errorf("%w: %s says that this node is a server of a group, and %s is not there: bring it and %s back from where they went; if they are lost, restore a backup (`fairlead snapshot restore`), or give this node an empty data directory, with which it is a new server",
			ErrForgotten, filepath.Join(p.cfg.Dir, formationFile), identityFile, raftDir)
	}
	if own := formation.ClusterID(p.own.Cluster); p.known && !inOrFor(rec, own) {
		rec = begunAnew(rec, own)
	}
	p.formation, err = formation.New(formation.Config{
		ID: p.cfg.NodeID, Name: p.cfg.Node, Expect: p.cfg.Expect, Record: rec,
		Draw: func() formation.ClusterID { return formation.ClusterID(drawID()) },
	}, time.Now())
	if err != nil {
		return fmt.Errorf("server: %w", err)
	}
	return nil
}

// form works off what the formation wants: first the disk, then messages, then the
// group.
func (p *Part) form() error {
	r := p.formation.Ready()
	if r.Record != nil {
		if err := writeFormation(p.cfg.Dir, *r.Record); err != nil {
			return err
		}
	}
	for _, m := range r.Messages {
		p.calls.form(m)
	}
	p.await(p.formation.Awaits())
	switch seen := p.formation.Seen(); {
	case p.known:
	case r.Decision != nil:
		id := Identity{Cluster: uint64(r.Decision.Cluster), Server: uint64(p.cfg.NodeID), Node: p.cfg.Node}
		for _, v := range r.Decision.Voters {
			id.Voters = append(id.Voters, uint64(v))
		}
		p.cfg.Log.Info("a cluster has formed", "group", r.Decision.Cluster.String(), "servers", len(id.Voters))
		return p.begin(id)
	case seen != 0:
		// Not the node's id: the group may know that, if this disk was of a voter once.
		return p.begin(Identity{Cluster: uint64(seen), Server: drawID(), Node: p.cfg.Node})
	}
	return nil
}

// await remembers what is awaited, and says so when it changes.
func (p *Part) await(awaits string) {
	p.mu.Lock()
	was := p.awaits
	p.awaits = awaits
	p.mu.Unlock()
	if awaits != was && awaits != "" {
		p.cfg.Log.Info("the store waits", "for", awaits)
	}
}

// begin makes this node a server.
func (p *Part) begin(id Identity) error {
	if err := id.write(p.cfg.Dir); err != nil {
		return err
	}
	return p.open(id)
}

// lostAfter is how long a server is without a leader, in election timeouts, before
// it asks whether it was removed, and again each so long. One that knows asks at once,
// as often as it looks around, until it is not needed any more.
const lostAfter = 4

// settle finds out whether this server was removed, maybe while it was away: then
// nobody speaks to it any more, and it begins anew under a new id.
func (p *Part) settle(ctx context.Context, now time.Time, s *Server, near []Neighbour) {
	if s.Err() != nil || len(s.identity.Set) > 0 || p.relay == nil || p.departs.Load() {
		return
	}
	// Who knows that it is no member any more waits for no leader, and believes that the
	// last one leads for ever.
	if st := s.State(); st.Leader != 0 && s.isMember() {
		p.leaderless = time.Time{}
		return
	}
	if p.leaderless.IsZero() {
		p.leaderless = now
	}
	patience := lostAfter * s.cfg.ElectionTimeout
	if p.removed {
		patience = 0
	}
	if now.Sub(p.leaderless) < patience || now.Sub(p.lookedAt) < patience {
		return
	}
	p.lookedAt = now
	if _, unneeded := s.Retired(s.ID()); !unneeded && !p.calls.retired(ctx, s.identity, near) {
		return
	}
	p.cfg.Log.Warn("this server was removed, or was replaced: it begins anew as another", "id", formatID(s.ID()))
	p.shut(ctx)
	if err := p.renew(s.identity); err != nil {
		p.cfg.Log.Error("this node is no server any more", "error", err)
	}
}

// renew makes this node another server of the same group, with nothing on its disk.
func (p *Part) renew(was Identity) error {
	return p.begin(Identity{Cluster: was.Cluster, Server: drawID(), Node: p.cfg.Node, Clearing: true})
}

// membersOf are the servers among the neighbours as the formation wants them.
func membersOf(near []Neighbour) []formation.Member {
	var out []formation.Member
	for _, n := range near {
		if n.Server == nil || n.State == model.StateLeft {
			continue
		}
		out = append(out, formation.Member{
			ID: n.ID, Name: n.Name, Alive: n.State.Live(), Expect: int(n.Server.Expect), Cluster: formation.ClusterID(n.Server.Group),
			Learner: n.Server.Learner,
		})
	}
	return out
}

package server

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/core/raft"
	"github.com/fairlead/fairlead/core/raft/disk"
	"github.com/fairlead/fairlead/core/raft/transport"
	"github.com/fairlead/fairlead/core/store"
)

// Server is one server of the group. Its methods may be called from any
// goroutine.
type Server struct {
	*raft.Host

	cfg      Config
	identity Identity
	others   *transport.Transport // nil: it is alone
	roster   atomic.Pointer[roster]
	stale    chan struct{} // of one: the roster is to be made anew

	cancel  context.CancelFunc
	running sync.WaitGroup
}

// memorySegmentBytes is the size of a piece of the log that is kept in memory.
const memorySegmentBytes = 1 << 20

// Open starts the server that the data directory is of, or that of a new group.
// Its errors wrap ErrOther, ErrForgotten, or those of raft.Open.
func Open(cfg Config) (*Server, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	id, err := identify(&cfg)
	if err != nil {
		return nil, err
	}
	return open(cfg, id)
}

// open starts the server that this is.
func open(cfg Config, id Identity) (*Server, error) {
	if id.Clearing {
		if err := id.clear(cfg.Dir); err != nil {
			return nil, err
		}
	}
	if err := id.finish(cfg.Dir); err != nil {
		return nil, err
	}
	fs, sizes, err := openDisk(cfg.Dir)
	if err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, identity: id, stale: make(chan struct{}, 1)}
	s.roster.Store(newRoster(&cfg, id, nil, nil))
	var carrier raft.Transport = raft.Alone{}
	if cfg.Keeper != nil && cfg.Port != nil {
		if s.others, err = s.transport(); err != nil {
			return nil, err
		}
		carrier = s.others
	}
	rc := raft.Config{
		ID: id.Server, Cluster: formatID(id.Cluster), Disk: fs, Sizes: sizes, Transport: carrier,
		HeartbeatInterval: cfg.HeartbeatInterval, ElectionTimeout: cfg.ElectionTimeout,
		OnApply: s.applied, Log: cfg.Log, Metrics: cfg.Metrics,
	}
	if !id.Begun {
		rc.Voters = id.voters()
		rc.Join = len(rc.Voters) == 0
	}
	if s.Host, err = raft.Open(rc); err != nil {
		carrier.Stop()
		return nil, id.advise(err, cfg.Dir)
	}
	if !id.Begun {
		id.Begun = true
		s.identity = id
		if err := id.write(cfg.Dir); err != nil {
			s.Host.Close()
			return nil, err
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	s.running.Go(func() { s.watch(ctx) })
	s.running.Go(func() { s.publish(ctx) })
	return s, nil
}

// identify reads which server this is, or decides it.
func identify(cfg *Config) (Identity, error) {
	if id, known, err := known(cfg); known || err != nil {
		return id, err
	}
	id := newIdentity(cfg, nil)
	return id, id.write(cfg.Dir)
}

// known reads which server this is.
func known(cfg *Config) (id Identity, known bool, err error) {
	if cfg.Dir == "" {
		return id, false, nil
	}
	id, known, err = ReadIdentity(cfg.Dir)
	if known {
		err = id.fits(cfg)
	}
	return id, known, err
}

func openDisk(dir string) (disk.FS, raft.Sizes, error) {
	if dir == "" {
		return disk.NewMemory(), raft.Sizes{SegmentBytes: memorySegmentBytes}, nil
	}
	fs, err := disk.OpenOS(filepath.Join(dir, raftDir))
	if err != nil {
		return nil, raft.Sizes{}, fmt.Errorf("server: %w", err)
	}
	return fs, raft.Sizes{}, nil
}

// transport makes what leads to the others.
func (s *Server) transport() (*transport.Transport, error) {
	return transport.New(transport.Config{
		ID: s.identity.Server, Cluster: formatID(s.identity.Cluster), Keeper: s.cfg.Keeper, Resolve: s.resolve,
		Limits: s.cfg.Limits, Log: s.cfg.Log, Metrics: s.cfg.Metrics,
	}, s.cfg.Port)
}

// clear empties the disk of the server that this node was before.
func (id *Identity) clear(dir string) error {
	if dir == "" {
		return nil
	}
	if err := os.RemoveAll(filepath.Join(dir, raftDir)); err != nil {
		return fmt.Errorf("server: %w", err)
	}
	// It is gone for good before anything says that it is.
	if err := syncDir(dir); err != nil {
		return err
	}
	id.Clearing = false
	return id.write(dir)
}

// resolve implements transport.Config's.
func (s *Server) resolve(id uint64) (address, node string, ok bool) {
	m, ok := s.roster.Load().reach(id)
	return m.RPC, m.Name, ok && m.RPC != ""
}

// applied implements raft.Config's OnApply.
func (s *Server) applied(a raft.Applied) {
	if len(a.Spaces) == 0 || slices.Contains(a.Spaces, store.System) {
		s.nudge()
	}
	s.changed()
}

func (s *Server) changed() {
	if s.cfg.OnChange != nil {
		s.cfg.OnChange()
	}
}

// nudge has the roster made anew: where the others are may have changed.
func (s *Server) nudge() {
	select {
	case s.stale <- struct{}{}:
	default: // it is known
	}
}

// watch says when somebody else leads, and keeps the roster at what is published.
func (s *Server) watch(ctx context.Context) {
	for {
		changed := s.Changed()
		s.roster.Store(newRoster(&s.cfg, s.identity, s.Members(), s.View()))
		s.changed()
		select {
		case <-changed:
		case <-s.stale:
		case <-s.Done():
			s.changed()
			return
		case <-ctx.Done():
			return
		}
	}
}

// isMember reports whether this server is of the group as far as it knows itself.
func (s *Server) isMember() bool {
	conf := s.Members()
	return slices.Contains(conf.GetVoters(), s.ID()) || slices.Contains(conf.GetLearners(), s.ID())
}

// votes reports whether this server is a voter as far as it knows itself.
func (s *Server) votes() bool {
	conf := s.Members()
	return slices.Contains(conf.GetVoters(), s.ID()) || slices.Contains(conf.GetVotersOutgoing(), s.ID())
}

// Close hands the leadership over, if this server has it, as long as ctx lasts,
// and ends the server.
func (s *Server) Close(ctx context.Context) {
	s.HandOver(ctx)
	s.cancel()
	s.Host.Close()
	s.running.Wait()
}

// HandOver gives the leadership, if this server has it, to the first voter that
// takes it.
func (s *Server) HandOver(ctx context.Context) {
	for _, id := range s.Members().GetVoters() {
		if id == s.ID() || !s.State().Leads() {
			continue
		}
		try, cancel := context.WithTimeout(ctx, 3*time.Second)
		err := s.Transfer(try, id)
		cancel()
		if err == nil {
			s.cfg.Log.Info("handed the leadership over", "to", s.name(id))
			return
		}
	}
}

// Recheck is to be called when the secrets changed: see transport.Transport.
func (s *Server) Recheck() {
	if s.others != nil {
		s.others.Recheck()
	}
}

func (s *Server) name(id uint64) string {
	if m, ok := s.roster.Load().reach(id); ok && m.Name != "" {
		return m.Name
	}
	return formatID(id)
}

// Identity returns which server of which group this is.
func (s *Server) Identity() Identity { return s.identity }

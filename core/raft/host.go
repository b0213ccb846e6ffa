package raft

import (
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/fairlead/fairlead/core/raft/replica"
	"github.com/fairlead/fairlead/core/raft/snap"
	"github.com/fairlead/fairlead/core/raft/wal"
	"github.com/fairlead/fairlead/core/store"
)

// Host is one server of a group. Its methods may be called from any goroutine.
type Host struct {
	cfg     Config
	metrics *metrics
	ticks   int // of an election timeout

	replica *replica.Replica              // the loop's
	log     *wal.Log                      // the appender's
	late    atomic.Pointer[wal.HardState] // it goes with the next write; nil: none
	queued  wal.HardState                 // the loop's: the last one that is on disk, or will be
	writes  int                           // the loop's: that the appender has
	pulse   *pulse                        // the loop's
	snaps   *snap.Store
	machine *store.Machine // the applier's

	view    atomic.Pointer[store.View]
	state   atomic.Pointer[replica.State]
	members atomic.Pointer[pb.ConfState]
	changed *signal // the state or the membership changed

	inbox     chan *pb.Message
	proposals chan proposal
	reads     chan reading
	asks      chan func()  // for what is rare
	reports   chan report  // of appender, applier and snapshots, in their order
	forwarded atomic.Int64 // bytes of commands of other servers in proposals
	appends   *queue[appendJob]
	applies   *queue[applyJob]

	changing chan struct{}                             // of one: a change of the membership is made
	outcomes map[replica.ChangeID]chan replica.Outcome // the loop's
	joint    atomic.Pointer[time.Time]
	gone     map[uint64]time.Time // the loop's: when a server was said to be

	session *session
	waiters *waiters
	lessor  *lessor
	room    *room

	receiving sync.Mutex // held while a snapshot comes in

	stopOnce sync.Once
	stop     chan struct{}
	done     chan struct{} // everything ended
	running  sync.WaitGroup
	failure  atomic.Pointer[error]
}

// maxProposals wait for the loop: as many as the clients of four servers have on the way.
const maxProposals = 4 * store.MaxOutstanding / 2

// report is what the loop is told of a job.
type report struct {
	appended *replica.Append
	applied  *replica.Apply
	view     *store.View // after applied
	saved    *pb.SnapshotMetadata
	bytes    uint64 // of what was saved
	failed   error  // ends the server
	missed   error  // of a snapshot that was not made
}

// Open starts a server from its state on disk, or that of a new group. Its errors
// wrap *wal.DamageError and *snap.DamageError if that is damaged.
func Open(cfg Config) (*Host, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	o, err := open(&cfg)
	if err != nil {
		return nil, err
	}
	h := &Host{
		cfg: cfg, log: o.log, snaps: o.snaps, machine: o.machine, ticks: int(cfg.ElectionTimeout / cfg.HeartbeatInterval), changed: newSignal(),
		inbox: make(chan *pb.Message, 1024), proposals: make(chan proposal, maxProposals), reads: make(chan reading, 1024),
		asks: make(chan func()), reports: make(chan report, 64), appends: newQueue[appendJob](), applies: newQueue[applyJob](),
		waiters: newWaiters(), lessor: newLessor(), changing: make(chan struct{}, 1), outcomes: map[replica.ChangeID]chan replica.Outcome{}, gone: map[uint64]time.Time{}, stop: make(chan struct{}), done: make(chan struct{}),
	}
	h.session, h.room, h.queued, h.pulse = newSession(), newRoom(h), o.log.Hard(), newPulse(cfg.HeartbeatInterval)
	if h.metrics, err = newMetrics(cfg.Metrics, h); err != nil {
		return nil, errors.Join(err, o.log.Close())
	}
	h.replica, err = replica.New(replica.Config{
		ID: cfg.ID, ElectionTicks: h.ticks, HeartbeatTicks: 1, Logger: newRaftLog(cfg.Log),
	}, o.initial)
	if err != nil {
		h.metrics.unregister()
		return nil, errors.Join(err, o.log.Close())
	}
	h.publish(h.machine.View())
	h.lessor.reset(h.View())
	h.note()
	cfg.Transport.Start(h)
	h.start()
	return h, nil
}

func (h *Host) start() {
	for _, f := range []func(){h.loop, h.appender, h.applier, h.lead, h.room.watch} {
		h.running.Go(func() { h.guarded(f) })
	}
	go func() {
		<-h.stop
		h.cfg.Transport.Stop() // nothing more leaves this server
		h.running.Wait()
		h.waiters.end()
		if late := h.late.Load(); late != nil && h.Err() == nil {
			if err := h.log.Append(wal.Batch{Hard: late}); err != nil {
				h.cfg.Log.Warn("what is committed was not noted on disk; the next start finds it out", "error", err)
			}
		}
		if err := h.log.Close(); err != nil && h.Err() == nil {
			h.cfg.Log.Warn("the log on disk did not close", "error", err)
		}
		h.metrics.unregister()
		close(h.done)
	}()
}

// guarded ends the server, and not the process, when a goroutine of it finds
// itself in a state that cannot be.
func (h *Host) guarded(f func()) {
	defer func() {
		if p := recover(); p != nil {
			h.fail(fmt.Errorf("raft: this server ends: %v", p))
			h.cfg.Log.Error("a server of the store panicked", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		}
	}()
	f()
}

// fail ends the server for good.
func (h *Host) fail(err error) {
	if h.failure.CompareAndSwap(nil, &err) {
		h.cfg.Log.Error("the server of the store stops; the agent goes on without it", "error", err)
	}
	h.end()
}

func (h *Host) end() { h.stopOnce.Do(func() { close(h.stop) }) }

// Close ends the server and returns when nothing of it runs.
func (h *Host) Close() {
	h.end()
	<-h.done
}

// Done is closed when the server has ended, by Close or by a failure.
func (h *Host) Done() <-chan struct{} { return h.done }

// Err says why the server failed, nil if it did not.
func (h *Host) Err() error {
	if err := h.failure.Load(); err != nil {
		return *err
	}
	return nil
}

// ID is this server.
func (h *Host) ID() uint64 { return h.cfg.ID }

// View returns the state as this server has it, which may be old.
func (h *Host) View() *store.View { return h.view.Load() }

// State returns what this server is.
func (h *Host) State() replica.State { return *h.state.Load() }

// Members returns the membership that is in force on this server.
func (h *Host) Members() *pb.ConfState { return h.members.Load() }

// Changed returns a channel that is closed when State or Members is another one.
func (h *Host) Changed() <-chan struct{} { return h.changed.wait() }

func (h *Host) publish(v *store.View) { h.view.Store(v) }

// note publishes what the replica is; the loop calls it.
func (h *Host) note() {
	now := h.replica.State()
	conf := h.replica.Conf()
	moved := h.members.Swap(conf) != conf
	h.noteJoint(len(conf.GetVotersOutgoing()) > 0)
	if old := h.state.Swap(&now); old == nil || *old != now || moved {
		h.changed.raise()
		h.waiters.moved()
	}
}

// ask runs f on the loop; ErrStopped if there is none any more. Then f may still run,
// and what it writes is not to be read: to wait for the end of the loop would be to wait
// for oneself, where the end of the server waits for who asks.
func (h *Host) ask(f func()) error {
	ran := make(chan struct{})
	select {
	case h.asks <- func() { f(); close(ran) }:
	case <-h.stop:
		return ErrStopped
	}
	select {
	case <-ran:
		return nil
	case <-h.stop:
		return ErrStopped
	}
}

// tick is the length of one.
func (h *Host) tick() time.Duration { return h.cfg.HeartbeatInterval }

package membership

import (
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/swim"
	"github.com/fairlead/fairlead/core/swim/wire"
)

// Errors of Membership.
var (
	// ErrClosed reports a call on a Membership that was closed.
	ErrClosed = errors.New("membership: closed")
	// ErrUnsaid reports that a node which does not speak left without a good-bye.
	ErrUnsaid = errors.New("membership: no good-bye was said")
	// ErrHold reports that this node cannot announce a restart.
	ErrHold = errors.New("membership: no restart was announced")
)

// leaveTimeout bounds Leave whatever its context says.
const leaveTimeout = 15 * time.Second

// MaxHold is how long the others wait at most for a node that announced a
// restart.
const MaxHold = swim.MaxHold

// holdTimeout bounds Hold whatever its context says: the hold runs meanwhile.
const holdTimeout = 5 * time.Second

// Membership is this node's part in the cluster. All methods may be called
// from several goroutines.
type Membership struct {
	cfg       Config
	transport Transport
	dir       *dataDir
	codec     wire.Codec
	metrics   *metrics
	log       *slog.Logger

	packets  *packetQueue
	calls    chan call
	latest   atomic.Pointer[Snapshot]
	events   *eventLog
	contacts *contacts
	keeper   *peersKeeper // nil without a data directory
	earlier  []peer       // members of the last run
	inbound  *inboundStreams
	foreign  foreignWarner
	outbound chan struct{} // one token per stream open

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wait   sync.WaitGroup // all goroutines but the peers keeper
	close  func() error   // once
}

// call asks the owner to run fn; done is closed after everything that fn
// caused was persisted, sent and published.
type call struct {
	fn   func(o *owner, now time.Time)
	done chan struct{}
}

// Rejoins reports whether an earlier run knew other members.
func (m *Membership) Rejoins() bool { return len(m.earlier) > 0 }

// Start opens the data directory, binds the gossip address and joins. It
// returns before anybody answered: a node without a cluster keeps trying.
func Start(cfg Config) (*Membership, error) {
	m, err := start(cfg)
	if err != nil && cfg.Transport != nil {
		err = errors.Join(err, cfg.Transport.Close())
	}
	return m, err
}

func start(cfg Config) (_ *Membership, err error) {
	if cfg, err = cfg.withDefaults(); err != nil {
		return nil, err
	}
	var undo []func() error // newest last
	defer func() {
		for i := len(undo) - 1; err != nil && i >= 0; i-- {
			err = errors.Join(err, undo[i]())
		}
	}()

	m := &Membership{
		cfg: cfg, log: cfg.Log, codec: wire.NewCodec(cfg.Swim.Cluster), metrics: newMetrics(),
		packets: newPacketQueue(), calls: make(chan call),
		inbound: newInboundStreams(maxInbound), outbound: make(chan struct{}, maxOutbound),
	}
	m.events = newEventLog(eventLogSize, m.latest.Load)

	if m.dir, err = openDataDir(cfg.DataDir, crand.Reader); err != nil {
		return nil, err
	}
	undo = append(undo, m.dir.close)
	if m.transport = cfg.Transport; m.transport == nil {
		if m.transport, err = ListenNet(cfg.Bind); err != nil {
			return nil, err
		}
		undo = append(undo, m.transport.Close)
	}
	local := m.transport.LocalAddr()
	advertise, err := advertised(cfg.Advertise, local, interfaceAddrs)
	if err != nil {
		return nil, err
	}
	if cfg.DataDir != "" {
		m.keeper = newPeersKeeper(cfg.DataDir, m.latest.Load, cfg.Swim.TombstoneTTL, cfg.Now, cfg.Log)
		m.earlier = m.keeper.earlier
	}
	if m.contacts, err = newContacts(cfg, m.earlier, ownAddress(advertise, local, interfaceAddrs)); err != nil {
		return nil, err
	}
	epoch, err := m.dir.boot()
	if err != nil {
		return nil, err
	}
	now := cfg.Now()
	node, err := swim.New(cfg.Swim, swim.Self{ID: m.dir.id, Name: cfg.Name, Addr: advertise}, epoch, cfg.Rand, now)
	if err != nil {
		return nil, fmt.Errorf("membership: %w", err)
	}
	if err = m.metrics.register(cfg.Metrics); err != nil {
		return nil, err
	}
	m.log.Info("membership started", "node", cfg.Name, "id", m.dir.id, "epoch", epoch, "bind", local, "advertise", advertise)
	m.run(newOwner(m, node, now))
	return m, nil
}

// run starts every goroutine and defines how they end.
func (m *Membership) run(o *owner) {
	m.ctx, m.cancel = context.WithCancel(context.Background())
	keep, stopKeeper := context.WithCancel(context.Background())
	var keeping sync.WaitGroup
	if m.keeper != nil {
		keeping.Go(func() { m.keeper.run(keep) })
	}
	m.wait.Go(func() { o.run(m.ctx) })
	m.wait.Go(m.readPackets)
	m.wait.Go(m.acceptStreams)
	m.wait.Go(func() {
		alone := func() bool { return m.Snapshot().Live() <= 1 }
		join := func(to []netip.AddrPort) {
			_ = m.call(func(o *owner, now time.Time) { o.node.Join(to, now) }) // ErrClosed ends run too
		}
		m.contacts.run(m.ctx, alone, join, m.cfg.Swim.TombstoneTTL)
	})
	m.close = sync.OnceValue(func() error {
		m.cancel()
		err := m.transport.Close()
		if errors.Is(err, net.ErrClosed) {
			err = nil
		}
		m.wait.Wait()
		m.events.end()
		stopKeeper() // writes the last table
		keeping.Wait()
		m.metrics.unregister(m.cfg.Metrics)
		return errors.Join(err, m.dir.close())
	})
}

// call runs fn on the owner and returns once all that it caused is done.
func (m *Membership) call(fn func(o *owner, now time.Time)) error {
	c := call{fn, make(chan struct{})}
	select {
	case m.calls <- c:
		<-c.done
		return nil
	case <-m.ctx.Done():
		return ErrClosed
	}
}

// Snapshot returns the current member table. It never waits.
func (m *Membership) Snapshot() *Snapshot { return m.latest.Load() }

// Events yields what changed after event seq (0, or the Seq of a Snapshot or
// of an Update). A reader that lags behind what is held gets a reset. Without
// follow it ends at the newest event; with it, when ctx ends or Close is
// called, with that as the last error. An unfollowed read has no errors.
func (m *Membership) Events(ctx context.Context, seq uint64, follow bool) iter.Seq2[Update, error] {
	return m.events.read(ctx, seq, follow)
}

// LocalAddr is the bound gossip address.
func (m *Membership) LocalAddr() netip.AddrPort { return m.transport.LocalAddr() }

// SetRecord replaces this node's record: a definition that others pull and a
// vector that is told to all, of at most MaxDefinitionBytes and MaxVectorBytes.
// A vector of more than RumourVectorBytes is pulled too: change it rarely. An
// empty definition means none. Both slices are copied.
func (m *Membership) SetRecord(definition, vector []byte) error {
	p, payload, err := joinRecord(definition, vector)
	if err != nil {
		return err
	}
	definition = append([]byte(nil), definition...)
	vector = append([]byte(nil), vector...)
	var refused error
	if err := m.call(func(o *owner, now time.Time) { refused = o.setRecord(p, definition, vector, payload, now) }); err != nil {
		return err
	}
	return refused
}

// Leave says good-bye and returns once that has spread, or with an error when
// ctx ends or 15 s pass first; some have then heard of it, and the others hear
// from those or see this node as failed. A node that does not speak, see
// Snapshot.Silent, says no good-bye either: then it is ErrUnsaid, at once. The
// node stays open: Rejoin or Close it.
func (m *Membership) Leave(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	var left <-chan struct{}
	var silence string
	if err := m.call(func(o *owner, now time.Time) { silence, left = o.silence(), o.leave(now) }); err != nil {
		return err
	}
	if silence != "" {
		return fmt.Errorf("%w, others will see this node as failed: %s", ErrUnsaid, silence)
	}
	select {
	case <-left:
		return nil
	case <-m.ctx.Done():
		return ErrClosed
	case <-ctx.Done():
		return fmt.Errorf("membership: the good-bye was sent, but no end of its spread was seen: %w", context.Cause(ctx))
	}
}

// CanHold returns an error that wraps ErrHold if Hold would not announce a
// restart of that length, and nil if it would.
func (m *Membership) CanHold(d time.Duration) error {
	s := m.Snapshot()
	switch {
	case d < time.Millisecond || d > MaxHold:
		return fmt.Errorf("%w: %v is no length of a hold: want 1ms to %v", ErrHold, d, MaxHold)
	case m.cfg.DataDir == "":
		return fmt.Errorf("%w: this node keeps no data directory, so it starts again as another one; let it leave", ErrHold)
	case s.Silent != "":
		return fmt.Errorf("%w: this node does not speak: %s", ErrHold, s.Silent)
	case s.Self.Value.State == model.StateLeft:
		return fmt.Errorf("%w: this node said good-bye", ErrHold)
	}
	return nil
}

// Hold announces that this node is about to restart and will be back within d,
// 1 ms to MaxHold: for so long the others keep it alive, with all it runs, and
// nobody accuses it. It returns once that has spread, or with an error when ctx
// ends or 5 s pass first; those that did not hear may then take this node for
// failed. An epoch has one hold. The node stays open: Close it without a
// good-bye, and start it again with the same data directory, or Rejoin.
func (m *Membership) Hold(ctx context.Context, d time.Duration) error {
	if err := m.CanHold(d); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, holdTimeout)
	defer cancel()
	var spread <-chan struct{}
	var refused error
	if err := m.call(func(o *owner, now time.Time) { spread, refused = o.hold(d, now) }); err != nil {
		return err
	}
	if refused != nil {
		return fmt.Errorf("%w: %w", ErrHold, refused)
	}
	select {
	case <-spread:
		return nil
	case <-m.ctx.Done():
		return ErrClosed
	case <-ctx.Done():
		return fmt.Errorf("membership: the restart was announced, but not all are known to have heard it: %w", context.Cause(ctx))
	}
}

// Rejoin ends a Leave, and then this node is alive again under a new epoch, or
// a Hold.
func (m *Membership) Rejoin() error {
	return m.call(func(o *owner, now time.Time) { o.rejoin(now) })
}

// Close stops at once, without a good-bye. On return no goroutine of this
// Membership runs and its address and data directory are free. Further calls
// return the first result.
func (m *Membership) Close() error { return m.close() }

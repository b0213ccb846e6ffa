package membership

import (
	"cmp"
	"context"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/fairlead/fairlead/core/swim"
	"github.com/fairlead/fairlead/core/swim/wire"
)

const (
	// lateTimer is how late the owner may wake before it takes it that the
	// process did not run, and reads what arrived meanwhile before it judges.
	lateTimer = 20 * time.Millisecond
	// lateGrace bounds that reading; the reader needs a moment to wake too.
	lateGrace = 10 * time.Millisecond
	// batch is how many packets are taken before the table is published.
	batch = 64
	// recheck is how often changes without an event, such as a raised
	// incarnation, are looked for; it grows with the table.
	recheck = time.Second
	// persistRetry separates tries to write a boot counter.
	persistRetry = time.Second
)

// owner owns the swim.Node. Only its goroutine touches anything in it.
type owner struct {
	m    *Membership
	node *swim.Node
	defs *definitions

	table   []swim.Member // as published
	version uint64
	seq     uint64
	pending []swim.Event // happened, not yet published
	dirty   bool         // something else to publish
	checked time.Time    // when the table was last compared

	unwritten uint64    // a boot counter that could not be written; mute until it is
	retry     time.Time // when to try again
	silenced  string    // why the node fell silent for good, in its own words
	left      chan struct{}
	leaving   bool
	holding   chan struct{} // closed when the hold has spread; nil if none is on its way
	exchanged bool          // as published
	aloneAt   time.Time     // when to look whether to warn; zero: not any more
}

func newOwner(m *Membership, node *swim.Node, now time.Time) *owner {
	o := &owner{m: m, node: node, defs: newDefinitions(m.cfg.Rand), dirty: true, checked: now, aloneAt: now.Add(aloneAfter)}
	node.Join(m.contacts.addrs(), now)
	o.publish(now)
	return o
}

// run feeds the node until ctx ends.
func (o *owner) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		now := o.m.cfg.Now()
		o.settle(now)
		due := o.due()
		timer.Reset(max(due.Sub(o.m.cfg.Now()), time.Millisecond)) // a due time in the past must not spin
		select {
		case <-ctx.Done():
			return
		case p := <-o.m.packets.ch:
			o.step(p)
			o.stepQueued(batch)
		case c := <-o.m.calls:
			now := o.m.cfg.Now()
			c.fn(o, now)
			o.settle(now)
			close(c.done)
		case <-timer.C:
			// Answers that are already here come before judgement.
			o.stepQueued(queuedPackets)
			if o.m.cfg.Now().Sub(due) > lateTimer {
				o.catchUp(ctx)
			}
			o.tick(o.m.cfg.Now())
		}
	}
}

// due is when the owner has to wake without input.
func (o *owner) due() time.Time {
	due := o.node.NextDeadline()
	if next := o.defs.next(); !next.IsZero() && next.Before(due) {
		due = next
	}
	if o.unwritten != 0 && o.retry.Before(due) {
		due = o.retry
	}
	if !o.aloneAt.IsZero() && o.aloneAt.Before(due) {
		due = o.aloneAt
	}
	return due
}

func (o *owner) tick(now time.Time) {
	if o.unwritten != 0 && !now.Before(o.retry) {
		o.persist(o.unwritten, now)
	}
	o.node.Tick(now)
	o.flush(now)
	o.warnAlone(now)
	for _, req := range o.defs.begin(o.table, now) {
		o.m.pull(req)
	}
	if every := recheck * time.Duration(1+len(o.table)/500); now.Sub(o.checked) >= every {
		o.checked = now
		o.dirty = o.dirty || !slices.Equal(o.table, o.members())
		o.m.metrics.inside(o.node.Inspect())
	}
}

// members reads the table in a stable order.
func (o *owner) members() []swim.Member {
	all := o.node.Members()
	slices.SortFunc(all, func(a, b swim.Member) int { return cmp.Compare(a.ID, b.ID) })
	return all
}

// step gives one datagram to the node.
func (o *owner) step(p *packet) {
	now := o.m.cfg.Now()
	if err := o.node.Step(p.from, p.data, now); err != nil {
		o.m.metrics.reject(err)
		o.m.warnForeign(net.UDPAddrFromAddrPort(p.from), err)
	}
	o.m.packets.free(p)
	o.flush(now)
}

// stepQueued gives up to limit packets that are already in the queue.
func (o *owner) stepQueued(limit int) {
	for range limit {
		select {
		case p := <-o.m.packets.ch:
			o.step(p)
		default:
			return
		}
	}
}

// catchUp reads what arrived while the process did not run.
func (o *owner) catchUp(ctx context.Context) {
	grace := time.NewTimer(lateGrace)
	defer grace.Stop()
	for {
		select {
		case p := <-o.m.packets.ch:
			o.step(p)
		case <-grace.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// settle works off everything that the last input caused.
func (o *owner) settle(now time.Time) {
	o.flush(now)
	o.publish(now)
	if o.leaving && o.node.LeaveDone() {
		o.leaving = false
		close(o.left)
	}
	if o.holding != nil && o.node.HoldDone() {
		close(o.holding)
		o.holding = nil
	}
}

// flush works off the node's Ready: persist, then send; events wait for
// publish. A stream that is refused at once may make more.
func (o *owner) flush(now time.Time) {
	for {
		r := o.node.Ready()
		o.pending = append(o.pending, r.Events...)
		if r.PersistEpoch != 0 {
			o.persist(r.PersistEpoch, now)
		}
		for _, p := range r.Packets {
			o.send(p)
		}
		for _, s := range r.Streams {
			o.open(s, now)
		}
		if len(r.Streams) == 0 {
			return
		}
	}
}

// persist writes a boot counter, or makes this node mute until it is written.
func (o *owner) persist(epoch uint64, now time.Time) {
	if err := o.m.dir.persistEpoch(epoch); err != nil {
		if o.unwritten == 0 {
			o.m.log.Error("the boot counter cannot be written: this node says nothing until it can be, and others will see it as failed", "epoch", epoch, "error", err)
		}
		o.unwritten, o.retry, o.dirty = epoch, now.Add(persistRetry), true
		return
	}
	if o.unwritten != 0 {
		o.m.log.Info("the boot counter is written: this node speaks again", "epoch", epoch)
		o.unwritten, o.dirty = 0, true
	}
}

// silence says why this node does not speak, "" if it does.
func (o *owner) silence() string {
	switch {
	case o.unwritten != 0:
		return "the boot counter cannot be written to " + o.m.cfg.DataDir + ": make it writable and free some space"
	case o.node.Silent():
		return o.silenced
	}
	return ""
}

func (o *owner) send(p swim.Packet) {
	if o.unwritten != 0 {
		o.m.metrics.dropped.WithLabelValues("mute").Inc()
		return
	}
	if err := o.m.transport.WritePacket(p.Data, p.To); err != nil {
		o.m.metrics.dropped.WithLabelValues("send-error").Inc()
		return
	}
	o.m.metrics.udpOut.add(len(p.Data))
}

// open starts a stream that the node wants, or refuses it at once.
func (o *owner) open(s swim.Stream, now time.Time) {
	if o.unwritten != 0 || !o.m.openStream(s) {
		o.m.metrics.streams.WithLabelValues("out", "refused-here").Inc()
		o.node.StreamClosed(s.Token, swim.StreamFailed, now)
	}
}

// publish makes a new snapshot and the events that led to it visible, in this
// order: a reader that is reset never finds an event older than its snapshot
// missing from it.
func (o *owner) publish(now time.Time) {
	if len(o.pending) == 0 && !o.dirty && o.exchanged == o.node.Exchanged() {
		return
	}
	o.table = o.members()
	told := map[wire.Hash]netip.AddrPort{}
	for _, e := range o.pending {
		if p, ok := splitRecord(e.Member.Record); ok && e.From.IsValid() {
			told[p.definition], told[p.pulled] = e.From, e.From
		}
	}
	o.defs.observe(o.table, told, now)

	events := make([]Event, 0, len(o.pending))
	for _, e := range o.pending {
		o.seq++
		o.m.metrics.events.WithLabelValues(e.Kind.String()).Inc()
		o.m.logEvent(e)
		if e.Member.Self && o.node.Silent() {
			o.silenced = e.Detail
		}
		events = append(events, Event{
			Seq: o.seq, At: e.At, Kind: e.Kind, Member: memberOf(e.Member, o.defs.get),
			Was: e.Was, From: e.From, Detail: e.Detail,
		})
	}
	o.pending, o.dirty, o.checked = o.pending[:0], false, now

	s := newSnapshot(o.table, o.defs.get)
	o.version++
	s.Version, s.Seq, s.Silent = o.version, o.seq, o.silence()
	o.exchanged = o.node.Exchanged()
	s.Exchanged, s.Unheard = o.exchanged, unheard(s, o.m.earlier, o.m.contacts.named)
	o.m.latest.Store(s)
	o.m.events.append(events)
	o.m.metrics.table(s)
	o.m.metrics.definitions.Set(float64(o.defs.bytes))
	if o.m.keeper != nil {
		o.m.keeper.touch()
	}
}

// leave says good-bye; the channel is closed when that has spread.
func (o *owner) leave(now time.Time) <-chan struct{} {
	if !o.leaving {
		o.leaving, o.left = true, make(chan struct{})
		o.node.Leave(now)
	}
	return o.left
}

// hold announces a restart; the channel is closed when that has spread.
func (o *owner) hold(d time.Duration, now time.Time) (<-chan struct{}, error) {
	if err := o.node.Hold(d, now); err != nil {
		return nil, err
	}
	o.holding = make(chan struct{})
	return o.holding, nil
}

// rejoin ends a departure; whoever waits for its spread need not any more.
func (o *owner) rejoin(now time.Time) {
	if o.leaving {
		o.leaving = false
		close(o.left)
	}
	o.node.Rejoin(now)
}

// setRecord replaces the own record, whose payload says what p does.
func (o *owner) setRecord(p parts, definition, vector, payload []byte, now time.Time) error {
	o.dirty = true // also drops what is put here again if the node refuses
	if !o.defs.put(p.definition, definition) {
		return o.noRoom(p.definition)
	}
	if !o.defs.put(p.pulled, vector) {
		return o.noRoom(p.pulled)
	}
	return o.node.SetRecord(payload, now)
}

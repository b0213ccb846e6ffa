package sim

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/swim"
)

// inboxLimit is how many inputs of a frozen process its host keeps before it
// drops datagrams: a socket buffer is finite.
const inboxLimit = 256

// Disk is what survives a process: the id and the boot counter.
type Disk struct {
	ID    model.NodeID
	Epoch uint64
}

// Process is one run of an agent, from its start to its crash or end. A
// restart is another Process with the same Disk.
type Process struct {
	Name string
	Addr netip.AddrPort
	Disk *Disk

	world  *World
	node   *swim.Node
	host   *Host
	serial uint64

	dead     bool
	frozen   bool
	thawedAt time.Duration
	inbox    []func()
	leaving  bool // said good-bye and has not come back
	tickAt   time.Duration
	tickGen  uint64

	contacts []netip.AddrPort
	shadow   shadow
}

// running reports whether the process exists, frozen or not.
func (p *Process) running() bool { return !p.dead }

// member reports whether others should see the process alive.
func (p *Process) member() bool { return !p.dead && !p.leaving && !p.node.Silent() }

// Silent reports whether the node fell silent.
func (p *Process) Silent() bool { return p.node.Silent() }

// LeaveDone reports whether the process may end after its good-bye.
func (p *Process) LeaveDone() bool { return p.node.LeaveDone() }

// Members is what the process holds of each member, by id.
func (p *Process) Members() []swim.Member { return p.shadow.rows }

// whenAwake runs f now, or once the process is thawed; never if it ends before.
func (p *Process) whenAwake(f func()) {
	switch {
	case p.dead:
	case p.frozen:
		p.inbox = append(p.inbox, f)
	default:
		f()
	}
}

// NewDisk mints an identity.
func (w *World) NewDisk() *Disk {
	w.lastID++
	return &Disk{ID: w.lastID}
}

// Boot starts a process on a host at an address, with the next epoch of its
// disk.
func (w *World) Boot(name string, disk *Disk, host *Host, addr netip.AddrPort, contacts []netip.AddrPort) *Process {
	disk.Epoch++
	host.up = true
	p := &Process{Name: name, Addr: addr, Disk: disk, world: w, host: host, serial: uint64(len(w.procs) + 1), contacts: contacts}
	rng := rand.New(rand.NewPCG(w.Seed, p.serial))
	node, err := swim.New(w.Cfg, swim.Self{ID: disk.ID, Name: name, Addr: addr}, disk.Epoch, rng, w.Now())
	if err != nil {
		w.found("InvariantStart", "A node starts with a good configuration.", err.Error())
		return p
	}
	p.node = node
	w.procs = append(w.procs, p)
	w.listens[addr] = p
	w.note("start %s id %v at %v epoch %d", short(name), disk.ID, addr, disk.Epoch)
	w.call(p, CallNew, nil, nil, func() error { node.Join(contacts, w.Now()); return nil })
	return p
}

// Join starts a new member on a new host.
func (w *World) Join(name string, contacts []netip.AddrPort) *Process {
	w.Tally.Count(FaultJoin)
	h := w.addHost()
	return w.Boot(name, w.NewDisk(), h, w.assign(h), contacts)
}

// Crash ends a process at once. With its host everything at its addresses goes
// quiet, without it the host refuses connections.
func (w *World) Crash(p *Process, host bool) {
	if p.dead {
		return
	}
	kind := FaultCrash
	if host {
		kind = FaultPowerOff
		p.host.up = false
	}
	w.Tally.Count(kind)
	w.stop(p, kind)
}

// stop takes a process away.
func (w *World) stop(p *Process, why string) {
	p.dead, p.inbox = true, nil
	if w.listens[p.Addr] == p {
		delete(w.listens, p.Addr)
	}
	w.note("%s: %s", short(p.Name), why)
}

// Restart runs a process that ended again. With move it gets a new address;
// with restored, its directory is an older copy, back copies of boots ago.
func (w *World) Restart(p *Process, move bool, back uint64, contacts []netip.AddrPort) *Process {
	if p.running() {
		w.stop(p, "killed for a restart")
	}
	w.Tally.Count(FaultRestart)
	addr := p.Addr
	if move {
		w.Tally.Count(FaultMove)
		addr = w.assign(p.host)
	}
	if back = min(back, p.Disk.Epoch-1); back > 0 {
		w.Tally.Count(FaultRestored)
		w.history.restored(p.Disk.ID)
		p.Disk.Epoch -= back
	}
	if w.listens[addr] != nil { // somebody else has it by now
		addr = w.assign(p.host)
	}
	return w.Boot(p.Name, p.Disk, p.host, addr, contacts)
}

// Copy starts a second process from a copy of p's directory on a new host.
func (w *World) Copy(p *Process, name string, contacts []netip.AddrPort) *Process {
	w.Tally.Count(FaultCopied)
	w.history.restored(p.Disk.ID)
	h := w.addHost()
	return w.Boot(name, &Disk{ID: p.Disk.ID, Epoch: p.Disk.Epoch}, h, w.assign(h), contacts)
}

// Reinstall starts a new member, with a new id, at the address of a process
// that ended.
func (w *World) Reinstall(p *Process, name string, contacts []netip.AddrPort) *Process {
	if p.running() {
		w.stop(p, "killed for a new installation")
	}
	w.Tally.Count(FaultReinstall)
	addr := p.Addr
	if w.listens[addr] != nil {
		addr = w.assign(p.host)
	}
	return w.Boot(name, w.NewDisk(), p.host, addr, contacts)
}

// Leave lets a process say good-bye. End takes it away once that has spread.
func (w *World) Leave(p *Process) {
	w.Tally.Count(FaultLeave)
	p.leaving = !p.Silent()
	w.note("%s: leave", short(p.Name))
	w.call(p, CallLeave, nil, nil, func() error { p.node.Leave(w.Now()); return nil })
}

// Hold lets a process announce that it restarts.
func (w *World) Hold(p *Process, d time.Duration) {
	w.Tally.Count(FaultPlanned)
	w.note("%s: hold %v", short(p.Name), d)
	w.call(p, CallHold, nil, nil, func() error { return p.node.Hold(d, w.Now()) })
}

// End takes a process away as its supervisor does, after a good-bye or a hold.
func (w *World) End(p *Process) {
	if p.running() {
		w.stop(p, "end")
	}
}

// Rejoin lets a process that left come back.
func (w *World) Rejoin(p *Process) {
	w.Tally.Count(FaultRejoin)
	p.leaving = false
	w.note("%s: rejoin", short(p.Name))
	w.call(p, CallRejoin, nil, nil, func() error { p.node.Rejoin(w.Now()); return nil })
}

// SetRecord gives the process's state record a new payload.
func (w *World) SetRecord(p *Process, size int) {
	w.Tally.Count(FaultRecord)
	payload := make([]byte, size)
	for i := range payload {
		payload[i] = byte(w.rng.IntN(256))
	}
	w.call(p, CallSetRecord, nil, nil, func() error { return p.node.SetRecord(payload, w.Now()) })
}

// Contacts gives the process another contact list.
func (w *World) Contacts(p *Process, contacts []netip.AddrPort) {
	p.contacts = contacts
	w.call(p, CallJoin, nil, nil, func() error { p.node.Join(contacts, w.Now()); return nil })
}

// Freeze stops a process without ending it, as SIGSTOP does.
func (w *World) Freeze(p *Process) {
	w.Tally.Count(FaultPause)
	p.frozen = true
	w.note("%s: freeze", short(p.Name))
}

// Thaw lets it run on. What arrived in the meantime and its timers are both
// due; which comes first is chance.
func (w *World) Thaw(p *Process) {
	if !p.frozen || p.dead {
		return
	}
	p.frozen, p.thawedAt = false, w.now
	p.shadow.probed = w.now // it could not probe
	w.note("%s: thaw, %d inputs wait", short(p.Name), len(p.inbox))
	inbox := p.inbox
	p.inbox = nil
	if w.chance(0.5) {
		w.tick(p)
	}
	for _, f := range inbox {
		p.whenAwake(f)
	}
	if p.running() {
		w.tick(p)
	}
}

// step, serve, frame, closed and tick are the inputs of a Node.

func (w *World) step(p *Process, from netip.AddrPort, data []byte) {
	w.call(p, CallStep, data, nil, func() error { return p.node.Step(from, data, w.Now()) })
}

func (w *World) serve(p *Process, frame []byte) (reply [][]byte, err error) {
	w.call(p, CallServe, frame, &reply, func() error { reply, err = p.node.ServeFrame(frame, w.Now()); return err })
	return reply, err
}

func (w *World) frame(p *Process, token uint64, kind swim.StreamKind, frame []byte) {
	how := CallFrame
	if kind == swim.StreamPing {
		how = CallPingFrame
	}
	w.call(p, how, frame, nil, func() error { return p.node.StreamFrame(token, frame, w.Now()) })
}

func (w *World) closed(p *Process, token uint64, end swim.StreamEnd) {
	delete(p.shadow.tokens, token)
	w.call(p, CallClosed, nil, nil, func() error { p.node.StreamClosed(token, end, w.Now()); return nil })
}

func (w *World) tick(p *Process) {
	w.call(p, CallTick, nil, nil, func() error { p.node.Tick(w.Now()); return nil })
}

// call makes one call into a Node, checks what it did, and works off its Ready.
func (w *World) call(p *Process, what Call, data []byte, frames *[][]byte, do func() error) {
	if w.finding != nil || p.dead {
		return
	}
	err := do()
	o := w.observe(p, what, data, err)
	if frames != nil {
		o.Frames = *frames
	}
	r := p.node.Ready()
	o.Ready = r
	w.check(o)
	if r.PersistEpoch != 0 {
		p.Disk.Epoch = r.PersistEpoch
	}
	for _, e := range r.Events {
		w.Tally.Count("event " + e.Kind.String())
		w.note("%s: %v %s %v, was %v %s", short(p.Name), e.Kind, short(e.Member.Name), e.Member.Value, e.Was, e.Detail)
	}
	for _, packet := range r.Packets {
		w.transmit(p, packet.To, slices.Clone(packet.Data))
	}
	for _, s := range r.Streams {
		w.open(p, s)
	}
	w.schedule(p)
}

// schedule makes sure that p is ticked when it wants to be.
func (w *World) schedule(p *Process) {
	at := p.node.NextDeadline().Sub(Epoch())
	if p.tickGen != 0 && at == p.tickAt {
		return
	}
	p.tickAt = at
	p.tickGen++
	gen := p.tickGen
	w.after(at-w.now+w.between(0, tickJitter), func() {
		if p.tickGen == gen {
			p.whenAwake(func() {
				if p.tickGen == gen {
					w.tick(p)
				}
			})
		}
	})
}

// String names the process in messages.
func (p *Process) String() string {
	return fmt.Sprintf("%s (%v at %v)", short(p.Name), p.Disk.ID, p.Addr)
}

// short leaves off what only makes a name long.
func short(name string) string {
	name, _, _ = strings.Cut(name, "-")
	return name
}

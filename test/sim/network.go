package sim

import (
	"net/netip"
	"slices"
	"time"
)

// Host is a machine: it has addresses, and it is up or not. Links are between
// hosts; a process that moves to another address stays on its host.
type Host struct {
	index int
	up    bool
	cut   map[int]bool // hosts that packets from here do not reach
}

// Weather is what the network does to packets, on every link alike.
type Weather struct {
	DelayMin, DelayMax time.Duration
	Loss               float64       // probability per packet
	Duplicate          float64       // probability per packet
	Reorder            float64       // probability of an extra delay up to ReorderBy
	ReorderBy          time.Duration // overtakes that follow from it
	Corrupt            float64       // probability of flipped bytes
	StreamHalf         float64       // probability that a stream breaks before the answer
}

// Calm is a network without faults: a good data centre.
func Calm() Weather { return Weather{DelayMin: 200 * time.Microsecond, DelayMax: 2 * time.Millisecond} }

// SetWeather changes the network from now on.
func (w *World) SetWeather(x Weather) { w.weather = x }

// addHost returns a new machine that is up.
func (w *World) addHost() *Host {
	w.lastHost++
	h := &Host{index: w.lastHost, up: true, cut: map[int]bool{}}
	w.hosts = append(w.hosts, h)
	return h
}

// assign gives h an address that nobody had before.
func (w *World) assign(h *Host) netip.AddrPort {
	n := len(w.hostOf) + 1
	a := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(h.index), byte(n >> 8), byte(n)}), 7400)
	w.hostOf[a] = h
	return a
}

// Cut takes one direction of one link away.
func (w *World) Cut(from, to *Process) {
	w.Tally.Count(FaultCut)
	from.host.cut[to.host.index] = true
	w.note("cut %s -> %s", short(from.Name), short(to.Name))
}

// Mend gives it back.
func (w *World) Mend(from, to *Process) {
	delete(from.host.cut, to.host.index)
	w.note("mend %s -> %s", short(from.Name), short(to.Name))
}

// Partition splits the hosts: those of side reach each other, the others each
// other, and nothing passes between.
func (w *World) Partition(side []*Process) {
	w.Tally.Count(FaultPartition)
	in := func(h *Host) bool { return slices.ContainsFunc(side, func(p *Process) bool { return p.host == h }) }
	names := ""
	for _, p := range side {
		names += " " + short(p.Name)
	}
	for _, a := range w.hosts {
		for _, b := range w.hosts {
			if in(a) != in(b) {
				a.cut[b.index] = true
			}
		}
	}
	w.note("partition:%s from the rest", names)
}

// MendAll ends all cuts and partitions.
func (w *World) MendAll() {
	for _, h := range w.hosts {
		clear(h.cut)
	}
	w.note("mend all links")
}

// passes reports whether a packet from host h gets to host to.
func passes(h, to *Host) bool { return to != nil && to.up && h.up && !h.cut[to.index] }

// transmit sends one datagram; data is the network's own.
func (w *World) transmit(from *Process, to netip.AddrPort, data []byte) {
	w.Trace.record(w.now, 's', from.serial, data)
	if !passes(from.host, w.hostOf[to]) {
		return
	}
	if w.chance(w.weather.Loss) {
		w.Tally.Count(FaultLoss)
		return
	}
	copies := 1
	if w.chance(w.weather.Duplicate) {
		w.Tally.Count(FaultDuplicate)
		copies = 2
	}
	source := from.Addr
	for range copies {
		d := data
		if w.chance(w.weather.Corrupt) {
			w.Tally.Count(FaultCorrupt)
			d = w.corrupt(data)
		}
		w.after(w.delay(), func() { w.arrive(source, to, d) })
	}
}

// delay draws how long a packet travels.
func (w *World) delay() time.Duration {
	d := w.between(w.weather.DelayMin, w.weather.DelayMax)
	if w.weather.DelayMax > 20*time.Millisecond {
		w.Tally.Count(FaultDelay)
	}
	if w.chance(w.weather.Reorder) {
		w.Tally.Count(FaultReorder)
		d += w.between(0, w.weather.ReorderBy)
	}
	return d
}

// corrupt returns data with some bytes changed, cut or added.
func (w *World) corrupt(data []byte) []byte {
	d := slices.Clone(data)
	for range 1 + w.rng.IntN(3) {
		if len(d) == 0 {
			break
		}
		i := w.rng.IntN(len(d))
		switch w.rng.IntN(3) {
		case 0:
			d[i] ^= byte(1 + w.rng.IntN(255))
		case 1:
			d = d[:i]
		case 2:
			d = slices.Insert(d, i, byte(w.rng.IntN(256)))
		}
	}
	if slices.Equal(d, data) { // changed there and back
		return d[:len(d)/2]
	}
	return d
}

// arrive hands a datagram to whoever listens at the address now.
func (w *World) arrive(from, to netip.AddrPort, data []byte) {
	p := w.listens[to]
	if p == nil || !p.host.up || len(p.inbox) >= inboxLimit {
		return
	}
	p.whenAwake(func() { w.step(p, from, data) })
}

// Package memtransport is a network in memory for tests: datagrams with
// seeded delay and loss, streams, cuts and partitions. Nodes on it run in a
// testing/synctest bubble, where minutes pass at once: everything in here
// waits on channels and timers only.
package memtransport

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"
)

// queued bounds the datagrams that wait at one endpoint.
const queued = 1024

// Config shapes a Network.
type Config struct {
	Seed uint64

	// MinDelay and MaxDelay bound the way of one datagram, and of each leg of
	// opening a stream.
	MinDelay, MaxDelay time.Duration

	// Loss is the part of datagrams that vanish, 0 to 1. Streams retransmit
	// and lose nothing.
	Loss float64
}

// Network connects endpoints.
type Network struct {
	mu     sync.Mutex
	cfg    Config
	rng    *rand.Rand
	open   map[netip.AddrPort]*Endpoint
	hosts  map[netip.Addr]bool // ever used: they answer that nobody listens
	cut    map[way]bool
	group  map[netip.AddrPort]int // in a partition; absent: in all
	counts Counts
}

// way is one direction between two addresses.
type way struct{ from, to netip.AddrPort }

// Counts tell what the network did with datagrams, so that a test can show
// that its faults happened.
type Counts struct{ Sent, Delivered, Lost, Cut, Unheard int }

// New returns a network without endpoints.
func New(cfg Config) *Network {
	return &Network{
		cfg: cfg, rng: rand.New(rand.NewPCG(cfg.Seed, cfg.Seed^0x9e3779b97f4a7c15)),
		open: map[netip.AddrPort]*Endpoint{}, hosts: map[netip.Addr]bool{},
		cut: map[way]bool{}, group: map[netip.AddrPort]int{},
	}
}

// Listen opens an endpoint at addr.
func (n *Network) Listen(addr netip.AddrPort) (*Endpoint, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.open[addr] != nil {
		return nil, fmt.Errorf("memtransport: listen on %v: %w", addr, syscall.EADDRINUSE)
	}
	e := &Endpoint{
		net: n, addr: addr, closed: make(chan struct{}),
		packets: make(chan datagram, queued), streams: make(chan net.Conn, queued),
	}
	n.open[addr], n.hosts[addr.Addr()] = e, true
	return e, nil
}

// Cut stops everything from one address to another, in this direction only.
func (n *Network) Cut(from, to netip.AddrPort) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut[way{from, to}] = true
}

// Partition lets each address reach those of its own group only; addresses in
// no group reach all. It replaces an earlier partition.
func (n *Network) Partition(groups ...[]netip.AddrPort) {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.group)
	for i, g := range groups {
		for _, a := range g {
			n.group[a] = i + 1
		}
	}
}

// Heal ends all cuts and partitions.
func (n *Network) Heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.group)
	clear(n.cut)
}

// SetLoss changes Config.Loss.
func (n *Network) SetLoss(loss float64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cfg.Loss = loss
}

// Counts returns what happened so far.
func (n *Network) Counts() Counts {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.counts
}

func (n *Network) reachesLocked(from, to netip.AddrPort) bool {
	a, b := n.group[from], n.group[to]
	return !n.cut[way{from, to}] && (a == 0 || b == 0 || a == b)
}

func (n *Network) reaches(from, to netip.AddrPort) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.reachesLocked(from, to)
}

func (n *Network) delayLocked() time.Duration {
	if n.cfg.MaxDelay <= n.cfg.MinDelay {
		return n.cfg.MinDelay
	}
	return n.cfg.MinDelay + time.Duration(n.rng.Int64N(int64(n.cfg.MaxDelay-n.cfg.MinDelay)))
}

// post sends one datagram on its way.
func (n *Network) post(from, to netip.AddrPort, data []byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.counts.Sent++
	switch {
	case !n.reachesLocked(from, to):
		n.counts.Cut++
		return
	case n.rng.Float64() < n.cfg.Loss:
		n.counts.Lost++
		return
	}
	d := datagram{from, append([]byte(nil), data...)}
	time.AfterFunc(n.delayLocked(), func() { n.deliver(d, to) })
}

func (n *Network) deliver(d datagram, to netip.AddrPort) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if e := n.open[to]; e != nil {
		select {
		case e.packets <- d:
			n.counts.Delivered++
			return
		default:
		}
	}
	n.counts.Unheard++
}

// dial opens a stream after one round trip, or is refused by a host whose
// endpoint is closed, or waits for ctx where nothing answers.
func (n *Network) dial(ctx context.Context, from, to netip.AddrPort) (net.Conn, error) {
	n.mu.Lock()
	delay := n.delayLocked() + n.delayLocked()
	n.mu.Unlock()
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	n.mu.Lock()
	e, host := n.open[to], n.hosts[to.Addr()]
	reached := host && n.reachesLocked(from, to) && n.reachesLocked(to, from)
	n.mu.Unlock()
	if !reached {
		<-ctx.Done()
		return nil, os.ErrDeadlineExceeded
	}
	refused := fmt.Errorf("memtransport: dial %v: %w", to, syscall.ECONNREFUSED)
	if e == nil {
		return nil, refused
	}
	near, far := net.Pipe()
	select {
	case e.streams <- &conn{Conn: far, net: n, from: to, to: from}:
		return &conn{Conn: near, net: n, from: from, to: to}, nil
	case <-e.closed:
	case <-ctx.Done():
	}
	return nil, errors.Join(refused, near.Close(), far.Close())
}

package kv

import (
	"fmt"
	"strings"
)

// figures of one load, in the order of a table.
type loadFigures struct{ rate, p50, p99, server, client *figure }

func newLoadFigures(what string, clients int) loadFigures {
	at := fmt.Sprintf("%d clients", clients)
	if clients == 1 {
		at = "1 client"
	}
	return loadFigures{
		rate:   &figure{name: fmt.Sprintf("%s/s, %s", what, at), format: "%.0f", more: true},
		p50:    &figure{name: "  p50, ms", format: "%.2f"},
		p99:    &figure{name: "  p99, ms", format: "%.2f"},
		server: &figure{name: "  server CPU µs each", format: "%.0f"},
		client: &figure{name: "  client CPU µs each", format: "%.0f"},
	}
}

func (l loadFigures) all() []*figure { return []*figure{l.rate, l.p50, l.p99, l.server, l.client} }

func (b *bench) note(c *cluster, l loadFigures, s sample) {
	l.rate.add(c.name, s.rate)
	l.p50.add(c.name, s.p50)
	l.p99.add(c.name, s.p99)
	l.server.add(c.name, s.server)
	l.client.add(c.name, s.client)
	b.failed += s.failed
}

// writes measures puts by 1, 64 and 256 clients.
func (b *bench) writes(out *strings.Builder) {
	b.t.Helper()
	var figures []*figure
	for _, load := range []struct {
		clients, connections int
		bar                  float64
	}{{1, servers, 1}, {64, 15, 1.5}, {256, 63, 2}} {
		l := newLoadFigures("puts", load.clients)
		b.rounds(func(c *cluster) {
			b.note(c, l, c.closed(load.clients, puts, c.conns[:load.connections], b.plan.window))
		})
		l.rate.bar = load.bar
		half := *l.server
		half.name, half.bar = "CPU", 0.5
		l.rate.or = &half
		if load.clients == 1 {
			l.p99.bar = 1
		}
		if rival := l.rate.rival(b.systems); load.clients == mostClients && rival != "" {
			b.most = l.rate.median(rival)
		}
		figures = append(figures, l.all()...)
	}
	b.show(out, "writes", figures...)
}

// mostClients are those whose rate is taken as the most that an etcd can do.
const mostClients = 256

// mostOfEtcd is the rate of the better etcd under many clients.
func (b *bench) mostOfEtcd() float64 {
	b.t.Helper()
	if b.most == 0 {
		for _, c := range b.clusters() {
			if c.etcd {
				b.most = max(b.most, c.closed(mostClients, puts, c.conns, b.plan.window).rate)
			}
		}
	}
	if b.most == 0 {
		b.most = 1000 // without any etcd
	}
	return b.most
}

// reads measures reads of one key by 64 and 256 clients: of all members, and of
// the leader or the others alone.
func (b *bench) reads(out *strings.Builder) {
	b.t.Helper()
	var figures []*figure
	for _, load := range []struct {
		what         string
		linearizable bool
		clients      int
		bar          float64
		at           func(c *cluster) []*conn
	}{
		{"linearizable gets", true, 64, 1.5, (*cluster).some},
		{"linearizable gets", true, 256, 1.5, (*cluster).every},
		{"linearizable gets of the leader", true, 64, 1.5, (*cluster).ofLeader},
		{"linearizable gets of the others", true, 64, 1.5, (*cluster).ofOthers},
		{"serializable gets", false, 64, 0, (*cluster).some},
		{"serializable gets", false, 256, 0, (*cluster).every},
	} {
		l := newLoadFigures(load.what, load.clients)
		l.rate.bar = load.bar
		b.rounds(func(c *cluster) {
			b.note(c, l, c.closed(load.clients, gets(load.linearizable, b.plan.keys), load.at(c), b.plan.short))
		})
		figures = append(figures, l.rate, l.p99, l.server, l.client)
	}
	b.show(out, "reads", figures...)
}

func (c *cluster) every() []*conn { return c.conns }
func (c *cluster) some() []*conn  { return c.conns[:15] }

func (c *cluster) ofLeader() []*conn { return c.where(func(i, leader int) bool { return i == leader }) }

func (c *cluster) ofOthers() []*conn { return c.where(func(i, leader int) bool { return i != leader }) }

// where are up to 15 connections to members that are chosen by their index and the leader's.
func (c *cluster) where(chosen func(i, leader int) bool) (on []*conn) {
	c.t.Helper()
	leader := c.leader()
	for i, conn := range c.conns {
		if len(on) < 15 && chosen(i%servers, leader) {
			on = append(on, conn)
		}
	}
	return on
}

// openLoop measures puts at half of what the better etcd can do.
func (b *bench) openLoop(out *strings.Builder) {
	b.t.Helper()
	rate := b.mostOfEtcd() / 2
	l := newLoadFigures("puts", 0)
	l.rate.name, l.p99.bar = fmt.Sprintf("%.0f puts/s: answered in time", rate), 0.7
	b.rounds(func(c *cluster) {
		b.note(c, l, c.open(b.plan.window, &flow{rate: rate, do: puts, on: c.conns})[0])
	})
	b.show(out, "open loop", l.all()...)
}

// beside measures linearizable reads beside puts.
func (b *bench) beside(out *strings.Builder) {
	b.t.Helper()
	const reads, writes = 1000, 2000
	r, w := newLoadFigures("gets", 0), newLoadFigures("puts", 0)
	r.rate.name, w.rate.name = fmt.Sprintf("%d linearizable gets/s: answered in time", reads), fmt.Sprintf("%d puts/s: answered in time", writes)
	r.p99.bar = 0.8
	b.rounds(func(c *cluster) {
		samples := c.open(b.plan.window, &flow{rate: reads, do: gets(true, b.plan.keys), on: c.some()}, &flow{rate: writes, do: puts, on: c.some()})
		b.note(c, r, samples[0])
		b.note(c, w, samples[1])
	})
	b.show(out, "reads beside writes", r.rate, r.p50, r.p99, w.rate, w.p50, w.p99, w.server, w.client)
}

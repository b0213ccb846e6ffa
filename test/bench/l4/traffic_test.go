package l4

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/dataplane"
)

// Sizes of what open sockets carry, in bytes.
const (
	message = 64
	segment = 16 << 10 // of a stream: less than a fresh socket's buffer takes
	packet  = 1400     // of datagrams
)

// kind is a way for sockets to talk.
type kind struct {
	name      string
	udp       bool
	connected bool
	outside   bool    // the server is at a seat where nothing leads sockets
	bar       float64 // of the ratio to direct
}

func kinds() []kind {
	return []kind{
		{name: "TCP", connected: true, bar: 1.01},
		{name: "connected UDP, client led", udp: true, connected: true, outside: true, bar: 1.01},
		{name: "unconnected UDP, client led", udp: true, outside: true, bar: 1.1},
		{name: "unconnected UDP, client and server led", udp: true, bar: 1.1},
	}
}

// traffic compares open sockets of the seat with the most services with those of
// the bare ones.
func (b *bench) traffic() (rows []row) {
	b.t.Helper()
	led := b.most()
	for number, k := range kinds() {
		var pingPong, bulk [3][]float64
		var channels [3]*channel
		seats := []*seat{b.bare[0], b.bare[1], led}
		for i, s := range seats {
			channels[i] = b.channel(s, k, number)
		}
		for round := range b.plan.rounds {
			for j := range seats {
				i := (round + j) % len(seats)
				ping, pour := b.exchange(seats[i], channels[i])
				pingPong[i], bulk[i] = append(pingPong[i], ping), append(bulk[i], pour)
			}
		}
		for _, c := range channels {
			unix.Close(c.client)
			unix.Close(c.server)
		}
		for _, of := range []struct {
			name   string
			values [3][]float64
		}{{fmt.Sprintf("%s: %d bytes there and back", k.name, message), pingPong}, {k.name + ": bulk", bulk}} {
			rows = append(rows, row{name: of.name + ": ÷ direct", format: "%.3f", values: times(of.values[2], of.values[0]), bar: k.bar},
				row{name: of.name + ": A/A", format: "%.3f", values: times(of.values[1], of.values[0]), bar: none})
		}
	}
	return rows
}

// channel opens sockets of a kind at a seat. Where datagrams are led they get a
// service of their own.
func (b *bench) channel(s *seat, k kind, number int) *channel {
	b.t.Helper()
	c := &channel{datagrams: k.udp, bytes: make([]byte, segment)}
	if !k.udp {
		s.do(func() (err error) {
			c.client, c.server, _, err = pair(s.listener, s.target())
			return err
		})
		return c
	}
	var port uint16
	at := s
	if k.outside {
		at = b.bare[0]
	}
	at.do(func() (err error) {
		c.server, port, err = listen(unix.SOCK_DGRAM)
		return err
	})
	s.do(func() (err error) {
		if c.client, err = socket(unix.SOCK_DGRAM); err != nil {
			return err
		}
		to := loopback(port)
		if s.provider != nil {
			svc := s.service(number, dataplane.UDP, port)
			to = svc.Frontends[0].Addr
			next, change := s.set(svc)
			if err := s.reconcile(next, change); err != nil {
				return err
			}
		}
		if k.connected {
			return unix.Connect(c.client, sockaddr(to))
		}
		c.to = sockaddr(to)
		return nil
	})
	return c
}

// chunk is how much bulk is timed at once, in KiB.
const chunk = 64

// exchange returns the median of what a message takes there and back, and that of
// 64 KiB of bulk, both in µs.
func (b *bench) exchange(s *seat, c *channel) (pingPong, bulk float64) {
	b.t.Helper()
	size := segment
	if c.datagrams {
		size = packet
	}
	s.do(func() error {
		var pings, pours []float64
		for range b.plan.messages {
			begun := time.Now()
			if err := c.round(message); err != nil {
				return err
			}
			pings = append(pings, us(time.Since(begun)))
		}
		for range b.plan.bulk / chunk {
			begun := time.Now()
			for range chunk << 10 / size {
				if _, err := c.forth(size); err != nil {
					return err
				}
			}
			pours = append(pours, us(time.Since(begun)))
		}
		pingPong, bulk = quantile(pings, 0.5), quantile(pours, 0.5)
		return nil
	})
	return pingPong, bulk
}

package membership

import (
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

const (
	maxDatagram   = 64 << 10
	pooledPacket  = 2 << 10 // larger ones are rare and not kept
	queuedPackets = 1024
	queuedBytes   = 4 << 20
)

// packet is a datagram on its way to the owner.
type packet struct {
	from netip.AddrPort
	data []byte
}

// packetQueue hands datagrams from the reader to the owner. It is bounded in
// number and bytes; what does not fit is dropped, as the network would.
type packetQueue struct {
	ch    chan *packet
	bytes atomic.Int64
	pool  sync.Pool
}

func newPacketQueue() *packetQueue {
	return &packetQueue{
		ch:   make(chan *packet, queuedPackets),
		pool: sync.Pool{New: func() any { return &packet{data: make([]byte, 0, pooledPacket)} }},
	}
}

// put copies data into the queue and reports whether it fit.
func (q *packetQueue) put(from netip.AddrPort, data []byte) bool {
	if q.bytes.Add(int64(len(data))) > queuedBytes {
		q.bytes.Add(-int64(len(data)))
		return false
	}
	p := q.pool.Get().(*packet)
	p.from, p.data = from, append(p.data[:0], data...)
	select {
	case q.ch <- p:
		return true
	default:
		q.free(p)
		return false
	}
}

// free takes back a packet received from ch.
func (q *packetQueue) free(p *packet) {
	q.bytes.Add(-int64(len(p.data)))
	if cap(p.data) <= 2*pooledPacket {
		q.pool.Put(p)
	}
}

// readPackets moves datagrams from the transport into the queue until Close.
func (m *Membership) readPackets() {
	buf := make([]byte, maxDatagram)
	dropped := m.metrics.dropped.WithLabelValues("queue-full")
	failed := m.metrics.dropped.WithLabelValues("receive-error")
	for pause := time.Duration(0); m.ctx.Err() == nil; {
		n, from, err := m.transport.ReadPacket(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			failed.Inc()
			pause = backOff(m.ctx, pause)
			continue
		}
		pause = 0
		m.metrics.udpIn.add(n)
		if !m.packets.put(from, buf[:n]) {
			dropped.Inc()
		}
	}
}

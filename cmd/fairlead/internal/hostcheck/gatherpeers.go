package hostcheck

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/swim/wire"
)

// pingEvery separates the pings to one peer: a packet may be lost.
const pingEvery = 300 * time.Millisecond

// maxDatagram is the most that one read of a UDP socket can bring.
const maxDatagram = 1 << 16

// tryPeers asks all nodes to join at the same time.
func tryPeers(ctx context.Context, c Config, n Network) []Peer {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	all := make([]Peer, len(c.Join))
	var asking sync.WaitGroup
	for i, entry := range c.Join {
		asking.Go(func() { all[i] = tryPeer(ctx, c, n, entry) })
	}
	asking.Wait()
	return all
}

// tryPeer connects by TCP, and then pings by UDP, at the address that answered.
func tryPeer(ctx context.Context, c Config, n Network, entry string) Peer {
	p := Peer{Addr: entry}
	at, bad := netip.ParseAddrPort(entry)
	p.Own = bad == nil && own(c, n, at)
	if p.Own {
		return p
	}
	start := time.Now()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", entry)
	p.RTT = time.Since(start)
	if err != nil {
		p.TCP = err.Error()
		return p
	}
	defer conn.Close()
	if at, bad = netip.ParseAddrPort(conn.RemoteAddr().String()); bad == nil && own(c, n, at) {
		p.Own = true
		return p
	}
	start = time.Now()
	if err := ping(ctx, c.Cluster, conn.RemoteAddr().String()); err != nil {
		p.UDP = err.Error()
	}
	p.RTT = max(p.RTT, time.Since(start))
	return p
}

// ping asks a node whether it is there, as a stranger: it answers, and learns of
// nobody. Whom the ping is for does not matter to who gets it.
func ping(ctx context.Context, cluster, at string) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "udp", at)
	if err != nil {
		return fmt.Errorf("UDP cannot be sent: %w", err)
	}
	defer conn.Close()
	codec := wire.NewCodec(cluster)
	seq, stranger := rand.Uint32(), model.NodeID(rand.Uint64()|1)
	packet := codec.Seal(wire.AppendPing(codec.Begin(nil, stranger, 1, 0), seq, stranger))
	buf := make([]byte, maxDatagram)
	for ctx.Err() == nil {
		if _, err := conn.Write(packet); err != nil {
			return fmt.Errorf("UDP: %w", err)
		}
		if err := conn.SetReadDeadline(earlier(ctx, time.Now().Add(pingEvery))); err != nil {
			return fmt.Errorf("UDP: %w", err)
		}
		size, err := conn.Read(buf)
		switch {
		case err == nil && acks(codec, buf[:size], seq):
			return nil
		case err != nil && !errors.Is(err, os.ErrDeadlineExceeded):
			return fmt.Errorf("UDP: %w", err)
		}
	}
	return errors.New("no ping by UDP is answered")
}

// earlier is t, or the deadline of ctx if that comes first.
func earlier(ctx context.Context, t time.Time) time.Time {
	if end, ok := ctx.Deadline(); ok && end.Before(t) {
		return end
	}
	return t
}

func acks(codec wire.Codec, packet []byte, seq uint32) bool {
	p, err := codec.Open(packet)
	if err != nil {
		return false
	}
	r := p.Reader()
	for m := (wire.Message{}); r.Next(&m); {
		if m.Type == wire.Ack && m.Seq == seq {
			return true
		}
	}
	return false
}

// own reports whether an address is this node's own gossip address.
func own(c Config, n Network, at netip.AddrPort) bool {
	_, here := n.local(at.Addr())
	return at == c.Bind || at == c.Advertise || c.Bind.Addr().IsUnspecified() && here && at.Port() == c.Bind.Port()
}

package transport

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/core/identity"
)

// Config is what a Transport is made of. All fields but Limits are required.
type Config struct {
	// ID is this server.
	ID uint64
	// Cluster identifies the group, in hexadecimal.
	Cluster string
	// Keeper has this node's certificate and knows whom to believe.
	Keeper *identity.Keeper
	// Resolve returns where a server is, as host:port, and which node it is; ok is
	// false if it is none of the group, or not any more. What it says may change at
	// any time. It is called often, from any goroutine, and must not block.
	Resolve func(id uint64) (address, node string, ok bool)
	Limits  Limits
	Log     *slog.Logger
	Metrics prometheus.Registerer
}

// PortConfig is what a Port is made of. All fields but Limits are required.
type PortConfig struct {
	Listener net.Listener // which the Port closes
	Keeper   *identity.Keeper
	Limits   Limits
	Log      *slog.Logger
	Metrics  prometheus.Registerer
}

// Limits bound what is kept and taken; zero fields have their defaults.
type Limits struct {
	// FrameBytes bounds what arrives in one piece: 64 KiB to 16 MiB, the same on
	// all servers. A command that is forwarded goes in one piece. Default 4 MiB.
	FrameBytes int
	// Handshakes bounds the connections that have not yet shown who they are; more
	// have the oldest one closed. Default 32.
	Handshakes int
	// QueueMessages and QueueBytes bound what waits for one server on one channel,
	// what Ask is given included. Default 4096, and 64 MiB: twice what Raft has on
	// the way.
	QueueMessages int
	QueueBytes    int
}

const (
	minFrameBytes = 64 << 10
	maxFrameBytes = 16 << 20
	// messageBytes bounds one message of Raft, whatever the frames: about a MiB, or
	// one entry, which has half a MiB and one more command.
	messageBytes = 16 << 20
)

// Times that bound what others can hold up.
const (
	// ioTimeout bounds a handshake, the opening of a stream, the sending of a frame
	// and an answer to Ask.
	ioTimeout = 5 * time.Second
	// stallTimeout is how long a snapshot may go without a piece.
	stallTimeout = 10 * time.Second
	// commitTimeout bounds what the other side does with a snapshot after its last
	// piece: it hashes it, and waits for its disk.
	commitTimeout = 2 * time.Minute

	// A lane waits so long for its next try, and the connection below it for its own. Both
	// together are less than an election takes: who is back waits for the leader, and so
	// do its clients.
	firstRetry = 50 * time.Millisecond
	lastRetry  = 300 * time.Millisecond
)

func (l *Limits) complete() error {
	l.FrameBytes = cmp.Or(l.FrameBytes, 4<<20)
	l.Handshakes = cmp.Or(l.Handshakes, 32)
	l.QueueMessages = cmp.Or(l.QueueMessages, 4096)
	l.QueueBytes = cmp.Or(l.QueueBytes, 64<<20)
	switch {
	case l.FrameBytes < minFrameBytes || l.FrameBytes > maxFrameBytes:
		return fmt.Errorf("transport: frames of %d bytes; between %d (64 KiB) and %d (16 MiB) is allowed", l.FrameBytes, minFrameBytes, maxFrameBytes)
	case l.Handshakes < 1 || l.QueueMessages < 1 || l.QueueBytes < 1:
		return errors.New("transport: the limits of handshakes and queues are at least 1")
	}
	return nil
}

func (c *Config) complete() error {
	switch {
	case c.ID == 0:
		return errors.New("transport: the id of a server is not 0")
	case c.Cluster == "" || c.Keeper == nil || c.Resolve == nil || c.Log == nil || c.Metrics == nil:
		return errors.New("transport: Cluster, Keeper, Resolve, Log and Metrics are required")
	}
	return c.Limits.complete()
}

func (c *PortConfig) complete() error {
	if c.Listener == nil || c.Keeper == nil || c.Log == nil || c.Metrics == nil {
		return errors.New("transport: Listener, Keeper, Log and Metrics are required")
	}
	return c.Limits.complete()
}

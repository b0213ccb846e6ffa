package forward

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"google.golang.org/grpc"

	"github.com/fairlead/fairlead/core/api/etcd"
)

// Server is one server of the store.
type Server struct {
	Name    string // for people
	Node    string // as its certificate says
	Address string // of its agents' port, host:port
}

// Config is what a Forwarder is made of. Fields without "optional" are required.
type Config struct {
	// Servers returns the servers that are known now. It is called often, from any
	// goroutine, and must not block.
	Servers func() []Server
	// Leader returns the address of the server that leads, as far as is known, or "". It
	// is asked first, when one is looked for; what is old there costs a try. Optional.
	Leader func() string
	// Dial returns a connection to a server, which need not be made yet: see
	// transport.Dial.
	Dial func(Server, ...grpc.DialOption) (*grpc.ClientConn, error)
	Log  *slog.Logger
}

// Times.
const (
	// dialTimeout bounds how long a server may take to take a connection, and to say
	// whether it has a leader.
	dialTimeout = 2 * time.Second
	// restTime is how long nobody is asked after all servers were, in vain.
	restTime = 100 * time.Millisecond
	// requestTimeout bounds a call of a client that names no time. A server has its
	// own, which is shorter.
	requestTimeout = 8 * time.Second
	// lookTime is how often it is looked whether calls are under way at one that is no
	// server any more.
	lookTime = 500 * time.Millisecond
)

var errNoServers = errors.New("no live server of the store is known: gossip names none, and raft.peers is empty; `fairlead raft status` says what is waited for")

// Forwarder passes calls on.
type Forwarder struct {
	cfg  Config
	ctx  context.Context // ends with Stop
	stop context.CancelFunc
	ring ring
}

var _ etcd.Backend = (*Forwarder)(nil)

// New returns a forwarder, to be stopped, which connects to nobody before there is a call.
func New(cfg Config) (*Forwarder, error) {
	if cfg.Servers == nil || cfg.Dial == nil || cfg.Log == nil {
		return nil, errors.New("forward: Servers, Dial and Log are required")
	}
	if cfg.Leader == nil {
		cfg.Leader = func() string { return "" }
	}
	f := &Forwarder{cfg: cfg}
	f.ctx, f.stop = context.WithCancel(context.Background())
	f.ring = ring{cfg: &f.cfg, ctx: f.ctx}
	f.ring.running.Go(f.ring.look)
	return f, nil
}

// Stop ends all calls and connections, and returns when nothing is connected any
// more. What comes later is refused.
func (f *Forwarder) Stop() {
	f.stop()
	f.ring.close()
}

package server

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/fairlead/fairlead/core/formation"
	"github.com/fairlead/fairlead/core/identity"
	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/raft/transport"
	"github.com/fairlead/fairlead/core/server/serverpb"
)

// calls are what this node asks others at their ports, beside Raft.
type calls struct {
	cfg    *Config
	ctx    context.Context // ends with close
	cancel context.CancelFunc
	slots  chan struct{} // as many as may be on the way

	mu      sync.Mutex
	conns   map[string]*grpc.ClientConn // by node and address
	deaf    map[model.NodeID]string     // why what was said last did not arrive
	running sync.WaitGroup
}

const (
	callTimeout = 2 * time.Second
	callsAtOnce = 64
	// maxConns bounds the connections that are kept, and the nodes that something is known
	// of; they are few but where a cluster forms of many.
	maxConns = 64
)

func newCalls(cfg *Config) *calls {
	c := &calls{cfg: cfg, slots: make(chan struct{}, callsAtOnce), conns: map[string]*grpc.ClientConn{}, deaf: map[model.NodeID]string{}}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

func (c *calls) close() {
	c.cancel()
	c.running.Wait()
	c.reset()
}

// reset closes all connections; they are made anew when they are needed.
func (c *calls) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for at, conn := range c.conns {
		_ = conn.Close()
		delete(c.conns, at)
	}
}

// to returns a connection to a node.
func (c *calls) to(n Neighbour) (*grpc.ClientConn, error) { return c.at(n.Name, n.Server.RPC.String()) }

func (c *calls) at(node, address string) (*grpc.ClientConn, error) {
	at := node + "@" + address
	c.mu.Lock()
	defer c.mu.Unlock()
	if conn := c.conns[at]; conn != nil {
		return conn, nil
	}
	if len(c.conns) >= maxConns {
		for old, conn := range c.conns {
			_ = conn.Close()
			delete(c.conns, old)
			break
		}
	}
	conn, err := transport.Dial(c.cfg.Keeper, address, node)
	if err == nil {
		c.conns[at] = conn
	}
	return conn, err
}

// form sends a message, or loses it: it is said again.
func (c *calls) form(m formation.Message) {
	n, ok := c.find(func(n Neighbour) bool { return n.ID == m.To })
	if !ok {
		return
	}
	select {
	case c.slots <- struct{}{}:
	default:
		return
	}
	c.running.Go(func() {
		defer func() { <-c.slots }()
		ctx, cancel := context.WithTimeout(c.ctx, callTimeout)
		defer cancel()
		conn, err := c.to(n)
		if err == nil {
			_, err = serverpb.NewServerClient(conn).Form(ctx, &serverpb.FormRequest{Message: formation.EncodeMessage(m)})
		}
		c.arrived(n, err)
	})
}

// arrived notes whether a word arrived, and says so when that is news: without it no
// cluster forms, and nobody else knows why.
func (c *calls) arrived(n Neighbour, err error) {
	if c.ctx.Err() != nil {
		return
	}
	why := ""
	if err != nil {
		why = identity.Explain(err).Error()
	}
	c.mu.Lock()
	was := c.deaf[n.ID]
	if len(c.deaf) >= maxConns {
		clear(c.deaf)
	}
	c.deaf[n.ID] = why
	c.mu.Unlock()
	if why != "" && why != was {
		c.cfg.Log.Warn("a word about the formation of a cluster did not arrive", "to", n.Name, "error", why)
	}
}

// find returns the first node that has a part in the store, and what is wanted.
func (c *calls) find(wanted func(Neighbour) bool) (Neighbour, bool) {
	for _, n := range c.cfg.neighbours() {
		if n.Server != nil && wanted(n) {
			return n, true
		}
	}
	return Neighbour{}, false
}

// retired asks the voters of the group whether this server was removed, and is not
// needed any more. What nobody says is not so. All are asked at the same time: one that
// was removed as well reads nothing any more, and does not answer.
func (c *calls) retired(ctx context.Context, id Identity, near []Neighbour) bool {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	var asking sync.WaitGroup
	defer asking.Wait()
	defer cancel()
	answers := make(chan *serverpb.RetiredResponse, len(near)) // nil: none
	asked := 0
	for _, n := range near {
		if n.Server == nil || n.Server.Group != id.Cluster || n.Server.Learner || n.State != model.StateAlive {
			continue
		}
		conn, err := c.to(n)
		if err != nil {
			continue
		}
		asked++
		asking.Go(func() {
			r, _ := serverpb.NewServerClient(conn).Retired(ctx, &serverpb.RetiredRequest{Group: id.Cluster, Id: id.Server})
			answers <- r // nil with an error
		})
	}
	for range asked {
		if r := <-answers; r != nil {
			return r.GetUnneeded()
		}
	}
	return false
}

// leader returns who leads the group of a server, that is another one.
func (c *calls) leader(s *Server) (serverpb.ServerClient, error) {
	address, node, ok := s.resolve(s.State().Leader)
	if !ok || c.cfg.Keeper == nil {
		return nil, errNoLeader
	}
	conn, err := c.at(node, address)
	return serverpb.NewServerClient(conn), err
}

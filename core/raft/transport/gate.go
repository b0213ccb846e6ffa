package transport

import (
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
)

// gate bounds the connections that have not shown who they are. One more than may be has
// the oldest one closed: that had the most time, while a new one may be an agent's, which
// needs some milliseconds. Else a few that are silent would keep all others out.
type gate struct {
	net.Listener
	most       int
	log        *slog.Logger
	metrics    *portMetrics
	complaints *complaints

	mu      sync.Mutex
	waiting []*entering // the oldest first
}

// Accept implements net.Listener.
func (g *gate) Accept() (net.Conn, error) {
	c, err := g.Listener.Accept()
	if err != nil {
		return nil, err
	}
	e := &entering{Conn: c, gate: g}
	if oldest := g.enter(e); oldest != nil {
		g.refused(oldest.RemoteAddr(), "too-many", fmt.Errorf("transport: %d newer connections have not shown yet who they are", g.most))
		_ = oldest.Conn.Close() // who sees that finds it counted
	}
	return e, nil
}

// enter takes a connection in, and returns the one that has to leave; nil: none.
func (g *gate) enter(e *entering) (oldest *entering) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.waiting) >= g.most {
		oldest, g.waiting = g.waiting[0], g.waiting[1:]
	}
	g.waiting = append(g.waiting, e)
	return oldest
}

func (g *gate) leave(e *entering) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if i := slices.Index(g.waiting, e); i >= 0 {
		g.waiting = slices.Delete(g.waiting, i, i+1)
	}
}

func (g *gate) refused(from net.Addr, reason string, err error) {
	g.metrics.handshakes.WithLabelValues(reason).Inc()
	host, _, splitErr := net.SplitHostPort(from.String())
	if splitErr != nil {
		host = from.String()
	}
	text := err.Error()
	switch reason {
	case "tls", "timeout": // what comes from strangers would make a new text of it each time
		text = ""
	}
	if g.complaints.isNew(host+" "+reason, text) {
		g.log.Warn("a connection to the agents' port was refused", "from", host, "error", err)
	}
}

// entering is a connection that counts at the gate, until it showed who it is or was
// closed.
type entering struct {
	net.Conn
	gate *gate
}

// Close implements net.Conn.
func (e *entering) Close() error {
	e.gate.leave(e)
	return e.Conn.Close()
}

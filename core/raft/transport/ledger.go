package transport

import (
	"crypto/tls"
	"net"
	"sync"

	"github.com/fairlead/fairlead/core/identity"
)

// ledger has the open connections of one side, with who is at their other end.
type ledger struct {
	mu   sync.Mutex
	open map[*entry]bool
}

// entry is a connection in a ledger, until it is closed.
type entry struct {
	*tls.Conn
	ledger *ledger
}

func newLedger() *ledger { return &ledger{open: map[*entry]bool{}} }

// enter returns a connection that is in the ledger; the same one if there is no
// ledger.
func (l *ledger) enter(c *tls.Conn) net.Conn {
	if l == nil {
		return c
	}
	e := &entry{c, l}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[e] = true
	return e
}

// Close implements net.Conn.
func (e *entry) Close() error {
	e.ledger.mu.Lock()
	delete(e.ledger.open, e)
	e.ledger.mu.Unlock()
	return e.Conn.Close()
}

// strangers are the connections that were made with a secret that is gone.
func (l *ledger) strangers(k *identity.Keeper) []*entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []*entry
	for e := range l.open {
		if !k.StillBelieved(e.ConnectionState()) {
			out = append(out, e)
		}
	}
	return out
}

// recheck closes the connections that were made with a secret that is gone, and
// returns to whom they were.
func (l *ledger) recheck(k *identity.Keeper) []net.Addr {
	var closed []net.Addr
	for _, e := range l.strangers(k) {
		// Not by TLS, which would first say good-bye to somebody who may not read.
		_ = e.NetConn().Close() // it is closed in any case
		closed = append(closed, e.RemoteAddr())
	}
	return closed
}

package membership

import (
	"errors"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/fairlead/fairlead/core/swim/wire"
)

const (
	aloneAfter   = 10 * time.Second // for contacts to answer before a warning
	aloneAgain   = 5 * time.Minute  // between two of those warnings
	foreignAgain = 5 * time.Minute  // between two warnings about foreign packets
)

// warnAlone says that nobody of those who were named answers. A wrong
// cluster.name or a closed port has no other sign: the packets just vanish.
func (o *owner) warnAlone(now time.Time) {
	if o.aloneAt.IsZero() || now.Before(o.aloneAt) {
		return
	}
	s := o.m.Snapshot()
	if s.Exchanged || s.Unheard == 0 {
		o.aloneAt = time.Time{} // for good: whoever was heard once is found again
		return
	}
	o.aloneAt = now.Add(aloneAgain)
	if s.Silent != "" || s.Live() > 1 {
		return // it has another reason, or an exchange is still to come
	}
	o.m.log.Warn("nobody answers yet, so this node is alone; it goes on trying: see that the nodes of cluster.join run, "+
		"that their gossip port is reached over UDP and TCP from here and back, and that they have the same cluster.name",
		"join", strings.Join(o.m.cfg.Join, ","), "peers_of_last_run", len(o.m.earlier), "cluster", o.m.cfg.Cluster)
}

// foreignWarner names senders whose packets cannot be read: most likely nodes
// with another cluster.name or of another version, which hear nothing back.
// Anybody can send such packets, so they make few lines.
type foreignWarner struct {
	mu sync.Mutex
	at time.Time // of the last warning
}

// warnForeign looks at why a packet or frame was refused.
func (m *Membership) warnForeign(from net.Addr, refused error) {
	if !errors.Is(refused, wire.ErrChecksum) && !errors.Is(refused, wire.ErrVersion) {
		return
	}
	now := m.cfg.Now()
	m.foreign.mu.Lock()
	again := m.foreign.at.IsZero() || now.Sub(m.foreign.at) >= foreignAgain
	if again {
		m.foreign.at = now
	}
	m.foreign.mu.Unlock()
	if again {
		m.log.Warn("packets are refused: if the sender belongs here, give it the same cluster.name and version; "+
			"further ones are only counted, in fairlead_membership_rejected_total",
			"from", from.String(), "cluster", m.cfg.Cluster, "error", refused)
	}
}

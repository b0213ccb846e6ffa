package plane

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/contrib/plugins/nftables/internal/plan"
	"github.com/fairlead/fairlead/dataplane"
)

// ownNamespace holds the provider's own service, which hosts do not see. No host's
// namespace begins with a tilde.
const ownNamespace = "~nftables"

// isOwn reports whether a service is the provider's and not the host's.
func isOwn(k dataplane.Key) bool { return k.Namespace == ownNamespace }

// ownService is the service that Health dials: a frontend 127.255.x.y that nothing
// listens on, and a listener of this process as its endpoint.
type ownService struct {
	frontend netip.AddrPort
	listener *net.TCPListener
	accepted sync.WaitGroup
}

// ownPort is that of the frontend; no connection ever gets there.
const ownPort = 7499

// newOwnService returns nil where connections of this host are not led.
func newOwnService(instance string, env plan.Host) (*ownService, error) {
	if env.Forwarded {
		return nil, nil
	}
	l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, fmt.Errorf("listen for the check of the data path: %w", err)
	}
	sum := sha256.Sum256([]byte("nftables " + instance)) // two instances on one host have two frontends
	o := &ownService{
		frontend: netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 255, sum[0], 1 | sum[1]&^1}), ownPort),
		listener: l,
	}
	o.accepted.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return // closed
			}
			_ = c.Close()
		}
	})
	return o, nil
}

func (o *ownService) close() {
	_ = o.listener.Close()
	o.accepted.Wait()
}

// entry is what stands in the kernel for it; nil if there is none.
func (o *ownService) entry() (plan.Place, *plan.Entry) {
	if o == nil {
		return plan.Place{}, nil
	}
	const id = 1
	return plan.Place{Binding: dataplane.Binding{Addr: o.frontend, Protocol: dataplane.TCP}}, &plan.Entry{
		Service:   dataplane.Key{Namespace: ownNamespace, Name: "health"},
		Endpoints: []plan.Endpoint{{ID: id, Addr: o.listener.Addr().(*net.TCPAddr).AddrPort()}},
		Slots:     []uint64{id},
	}
}

// dialTime bounds the dial: it stays on this host.
const dialTime = time.Second

// vital is what Health needs, apart from the provider's lock: a large generation
// holds that for long.
type vital struct {
	frontend netip.AddrPort // what Health dials; zero in mode forwarded
	trouble  string         // what else is wrong
}

// publish shows Health how things are. p.mu is held.
func (p *Provider) publish() {
	if p.tables == nil || !p.tables.Made() && p.broken == "" {
		p.vital.Store(nil)
		return
	}
	v := &vital{trouble: cmp.Or(p.broken, p.trouble)}
	if p.own != nil {
		v.frontend = p.own.frontend
	}
	p.vital.Store(v)
}

// Health dials the provider's own frontend. In mode forwarded no connection of this
// process is led; then what the keeper saw counts.
func (p *Provider) Health(ctx context.Context) dataplane.Health {
	v := p.vital.Load()
	if v == nil {
		return dataplane.Health{State: dataplane.HealthStarting, Reasons: []string{"nothing is programmed yet"}}
	}
	if v.frontend.IsValid() {
		if err := dial(ctx, v.frontend); err != nil {
			return dataplane.Health{State: dataplane.HealthFailed, Reasons: []string{err.Error()}}
		}
	}
	if v.trouble != "" {
		return dataplane.Health{State: dataplane.HealthDegraded, Reasons: []string{v.trouble}}
	}
	return dataplane.Health{State: dataplane.HealthReady}
}

func dial(ctx context.Context, frontend netip.AddrPort) error {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	c, err := new(net.Dialer).DialContext(ctx, "tcp4", frontend.String())
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("a dial of %v was not led to its endpoint: the rules do not see connections of this host: %w", frontend, err)
	case err != nil:
		return fmt.Errorf("a dial of %v: %w", frontend, err)
	}
	return c.Close()
}

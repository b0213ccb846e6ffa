package plane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/fairlead/fairlead/contrib/plugins/nftables/internal/plan"
	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/sdk/selftest"
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
	*selftest.Target
}

// newOwnService returns nil where connections of this host are not led.
func newOwnService(instance string, env plan.Host) (*ownService, error) {
	if env.Forwarded {
		return nil, nil
	}
	target, err := selftest.Listen(netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), 0))
	if err != nil {
		return nil, err
	}
	return &ownService{frontend: selftest.Frontend("nftables " + instance), Target: target}, nil
}

// entry is what stands in the kernel for it; nil if there is none.
func (o *ownService) entry() (plan.Place, *plan.Entry) {
	if o == nil {
		return plan.Place{}, nil
	}
	const id = 1
	return plan.Place{Binding: dataplane.Binding{Addr: o.frontend, Protocol: dataplane.TCP}}, &plan.Entry{
		Service:   dataplane.Key{Namespace: ownNamespace, Name: "health"},
		Endpoints: []plan.Endpoint{{ID: id, Addr: o.Addr()}},
		Slots:     []uint64{id},
	}
}

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
	err := selftest.Dial(ctx, frontend)
	if errors.Is(err, selftest.ErrNotLed) {
		return fmt.Errorf("%w: the rules do not see connections of this host", err)
	}
	return err
}

package iptables

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/sdk/selftest"
	"github.com/fairlead/fairlead/plugins/iptables/internal/host"
	"github.com/fairlead/fairlead/plugins/iptables/internal/rules"
)

// ownListening is the port that the frontend of the provider's own service leads to,
// at the same address. Nothing else is there.
const ownListening = 7498

// ownAddresses are the frontend that Health dials and the target that it is led to:
// two ports of one address of the loopback network that the instance has for itself.
// They are the same in every process, so their rule stays as well. It works without
// route_localnet, as the packet never leaves the loopback device.
func ownAddresses(instance string) rules.Own {
	frontend := selftest.Frontend(instance)
	return rules.Own{Frontend: frontend, Endpoint: netip.AddrPortFrom(frontend.Addr(), ownListening)}
}

// What can be wrong beside the data path itself.
const (
	troubleVariant = iota
	troubleLock
	troubleDrift
	troubleRoutes
	troubles
)

// condition is what Health knows without looking.
type condition struct {
	mode     rules.Mode
	frontend netip.AddrPort // what to dial; zero: nothing is programmed
	trouble  [troubles]string
}

func (c *condition) set(which int, what string) { c.trouble[which] = what }

const forwardsNothing = "this host forwards no packets, so there is nobody to serve: set net.ipv4.ip_forward = 1 if it should"

// Health dials the provider's own frontend. Rules for forwarded packets only lead no
// socket of this host, so there they are only compared, by the keeper.
func (p *Provider) Health(ctx context.Context) dataplane.Health {
	p.shown.mu.Lock()
	c, programmed := p.shown.health, p.shown.last != nil
	p.shown.mu.Unlock()
	if !programmed {
		return c.worse(dataplane.Health{State: dataplane.HealthStarting, Reasons: []string{"nothing is programmed yet"}})
	}
	h := dataplane.Health{State: dataplane.HealthReady}
	switch {
	case c.mode == rules.Forwarded:
		if !host.Forwards(host.V4) && !host.Forwards(host.V6) {
			h = dataplane.Health{State: dataplane.HealthDegraded, Reasons: []string{forwardsNothing}}
		}
	case c.frontend.IsValid():
		if err := dial(ctx, c.frontend); err != nil {
			h = dataplane.Health{State: dataplane.HealthFailed, Reasons: []string{err.Error()}}
		}
	}
	return c.worse(h)
}

// worse adds the troubles to what was seen.
func (c condition) worse(h dataplane.Health) dataplane.Health {
	reasons := slices.DeleteFunc(slices.Clone(c.trouble[:]), func(s string) bool { return s == "" })
	if len(reasons) > 0 && h.State != dataplane.HealthFailed && h.State != dataplane.HealthStarting {
		h.State = dataplane.HealthDegraded
	}
	h.Reasons = append(h.Reasons, reasons...)
	return h
}

func dial(ctx context.Context, frontend netip.AddrPort) error {
	err := selftest.Dial(ctx, frontend)
	if errors.Is(err, selftest.ErrNotLed) {
		return fmt.Errorf("%w: the rules in OUTPUT of the nat table do not work, or a rule before them takes the packet", err)
	}
	return err
}

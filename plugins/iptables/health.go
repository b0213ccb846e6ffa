package iptables

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/plugins/iptables/internal/host"
	"github.com/fairlead/fairlead/plugins/iptables/internal/rules"
)

// Ports of the provider's own service. Nothing else is at its address.
const (
	ownPort      = 7499
	ownListening = 7498
)

// ownAddresses are the frontend that Health dials and the listener that it is led
// to: two ports of one address of the loopback network that the instance has for
// itself. They are the same in every process, so their rule stays as well. It works
// without route_localnet, as the packet never leaves the loopback device.
func ownAddresses(instance string) rules.Own {
	sum := sha256.Sum256([]byte(instance))
	a := netip.AddrFrom4([4]byte{127, 255, sum[0], 1 | sum[1]&^1})
	return rules.Own{Frontend: netip.AddrPortFrom(a, ownPort), Endpoint: netip.AddrPortFrom(a, ownListening)}
}

// ownService is the listener behind it.
type ownService struct {
	listener net.Listener
	accepted sync.WaitGroup
}

func newOwnService(own rules.Own) (*ownService, error) {
	// The process before may not have ended yet.
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		if e := c.Control(func(fd uintptr) { err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, reusePort, 1) }); e != nil {
			return e
		}
		return err
	}}
	l, err := config.Listen(context.Background(), "tcp4", own.Endpoint.String())
	if err != nil {
		return nil, fmt.Errorf("listen for the check of the data path: %w", err)
	}
	o := &ownService{listener: l}
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

// reusePort is SO_REUSEPORT, which package syscall lacks.
const reusePort = 15

func (o *ownService) close() {
	_ = o.listener.Close()
	o.accepted.Wait()
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

// dialTime bounds the dial: it stays on this host.
const dialTime = time.Second

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
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp4", frontend.String())
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("a dial of %v was not led to its endpoint: the rules in OUTPUT of the nat table do not work, or a rule before them takes the packet: %w", frontend, err)
	case err != nil:
		return fmt.Errorf("a dial of %v: %w", frontend, err)
	}
	return conn.Close()
}

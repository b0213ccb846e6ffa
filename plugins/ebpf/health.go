package ebpf

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/sdk/selftest"
	"github.com/fairlead/fairlead/plugins/ebpf/internal/datapath"
	"github.com/fairlead/fairlead/plugins/ebpf/internal/layout"
)

// ownNamespace holds the provider's own service, which hosts do not see. No host's
// namespace begins with a tilde.
const ownNamespace = "~ebpf"

func ownKey() dataplane.Key { return dataplane.Key{Namespace: ownNamespace, Name: "health"} }

// ownService is the service that Health dials: a frontend 127.255.x.y that nothing
// listens on, and a listener of this process as its endpoint. Where the hooks do
// not work the dial is refused.
type ownService struct {
	frontend netip.AddrPort
	*selftest.Target
}

func newOwnService(instance string) (*ownService, error) {
	target, err := selftest.Listen(netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), 0))
	if err != nil {
		return nil, err
	}
	return &ownService{frontend: selftest.Frontend(instance), Target: target}, nil
}

// program puts the service into the kernel.
func (o *ownService) program(d *datapath.Datapath) error {
	svc := &dataplane.Service{
		Key:       ownKey(),
		Frontends: []dataplane.Frontend{{Addr: o.frontend, Protocol: dataplane.TCP, Kind: dataplane.FrontendVIP}},
		Endpoints: dataplane.NewEndpoints(dataplane.Endpoint{ID: 1, Name: "self", Addr: o.Addr(), Weight: 1}),
	}
	plan, _ := layout.Compile(svc) // nothing in it can be refused
	if _, err := d.Table().Set(svc.Key, plan, []uint64{1}); err != nil {
		return err
	}
	d.Table().Finish()
	return nil
}

// testDial is what Health needs, apart from the provider's lock.
type testDial struct {
	service *ownService
	inside  bool
	cgroup  string
	trouble string // what else is wrong
}

// Health dials the provider's own frontend.
func (p *Provider) Health(ctx context.Context) dataplane.Health {
	t := p.path.Load()
	if t == nil {
		return dataplane.Health{State: dataplane.HealthStarting, Reasons: []string{"nothing is programmed yet"}}
	}
	if !t.inside {
		return dataplane.Health{State: dataplane.HealthDegraded, Reasons: []string{fmt.Sprintf(
			"this process is not in %s, whose sockets are led: the data path could not be tried; start the agent inside, or set cgroup to a tree that holds it", t.cgroup,
		)}}
	}
	if err := t.dial(ctx); err != nil {
		p.doubtNow()
		return dataplane.Health{State: dataplane.HealthFailed, Reasons: []string{err.Error()}}
	}
	if t.trouble != "" {
		return dataplane.Health{State: dataplane.HealthDegraded, Reasons: []string{t.trouble}}
	}
	return dataplane.Health{State: dataplane.HealthReady}
}

// doubtNow lets the keeper compare the kernel with what should be there before it is
// time to.
func (p *Provider) doubtNow() {
	select {
	case p.doubt <- struct{}{}:
	default:
	}
}

func (t *testDial) dial(ctx context.Context) error {
	err := selftest.Dial(ctx, t.service.frontend)
	switch {
	case errors.Is(err, selftest.ErrNotLed):
		return fmt.Errorf("%w: the hooks of %s do not fire for this process", err, t.cgroup)
	case errors.Is(err, selftest.ErrPeer):
		return fmt.Errorf("%w: the hook getpeername4 does not fire", err)
	}
	return err
}

// setTrouble says what is wrong beside the data path; "" for nothing. p.mu is held.
func (p *Provider) setTrouble(what string) {
	if t := p.path.Load(); t != nil && t.trouble != what {
		next := *t
		next.trouble = what
		p.path.Store(&next)
	}
}

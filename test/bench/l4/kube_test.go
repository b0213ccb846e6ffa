package l4

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/dataplane"
)

// ownNamespace gives the calling thread a network namespace that gets to service
// addresses: rules lead a packet after it has a route. The source is not the address of
// an endpoint, which kube-proxy would masquerade.
func ownNamespace(t *testing.T) {
	t.Helper()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	for _, args := range []string{"link set lo up", "route replace 10.202.0.0/16 dev lo src 127.0.0.2"} {
		if err := feed(t.Context(), "", "ip", strings.Fields(args)...); err != nil {
			t.Fatal(err)
		}
	}
}

// feed starts a program in the network namespace of the calling thread.
func feed(ctx context.Context, input, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdin = strings.NewReader(input)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %.1000s", cmd, err, out)
	}
	return nil
}

// kubePlane is one of kube-proxy's layouts: legacy, nft, map, or none: no rules at all.
type kubePlane struct{ variant string }

func (p kubePlane) name() string { return "kube-" + p.variant }

func (p kubePlane) enter(t *testing.T, _ string) (dataplane.Provider, costs) {
	t.Helper()
	ownNamespace(t)
	return &kube{variant: p.variant}, nil
}

// kube programs a layout as kube-proxy does: all at first, then what changed. It
// implements what the benchmark calls.
type kube struct {
	dataplane.Provider
	variant string
	synced  bool
}

func (k *kube) Reconcile(ctx context.Context, next *dataplane.Snapshot, delta dataplane.Delta) (dataplane.Result, error) {
	all := slices.Collect(next.Services())
	var changed []*dataplane.Service
	for _, c := range delta.Changes {
		changed = append(changed, c.New)
	}
	l := linear{comments: next.EndpointCount() <= largeCluster}
	var err error
	switch {
	case k.variant == "map" && !k.synced:
		err = feed(ctx, mapped{}.full(all), "nft", "-f", "-")
	case k.variant == "map":
		err = feed(ctx, mapped{}.partial(changed), "nft", "-f", "-")
	case !k.synced:
		err = feed(ctx, l.full(all), "iptables-"+k.variant+"-restore", "--noflush", "--counters", "-w", "5")
	default:
		err = feed(ctx, l.partial(all, changed), "iptables-"+k.variant+"-restore", "--noflush", "--counters", "-w", "5")
	}
	k.synced = err == nil
	return dataplane.Result{}, err
}

// byPortions programs what takes too long as a whole: chains of some services after the
// others, and what leads to them at last.
func (k *kube) byPortions(ctx context.Context, all []*dataplane.Service) error {
	const portion = 500
	restore := func(text string) error {
		return feed(ctx, text, "iptables-"+k.variant+"-restore", "--noflush", "--counters", "-w", "5")
	}
	var m mapped
	var l linear
	base := func() error { return restore(l.full(nil)) }
	some := func(services []*dataplane.Service) error { return restore(l.partial(nil, services)) }
	last := func() error { return restore(l.partial(all, nil)) }
	if k.variant == "map" {
		base = func() error { return feed(ctx, m.full(nil), "nft", "-f", "-") }
		some = func(services []*dataplane.Service) error {
			return feed(ctx, m.partial(services)+m.elements(services), "nft", "-f", "-")
		}
		last = func() error { return nil }
	}
	if err := base(); err != nil {
		return err
	}
	for part := range slices.Chunk(all, portion) {
		if err := some(part); err != nil {
			return err
		}
	}
	k.synced = true
	return last()
}

// reset makes it one that has nothing.
func (k *kube) reset(ctx context.Context) error {
	k.synced = false
	if k.variant == "map" {
		return feed(ctx, "delete table ip kube-proxy\n", "nft", "-f", "-")
	}
	return feed(ctx, "*nat\nCOMMIT\n*filter\nCOMMIT\n", "iptables-"+k.variant+"-restore", "-w", "5")
}

// Shutdown has nothing to remove: the namespace ends with its thread.
func (k *kube) Shutdown(context.Context, dataplane.ShutdownPolicy) error { return nil }

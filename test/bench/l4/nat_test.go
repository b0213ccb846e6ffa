package l4

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/plugins/iptables"
	"github.com/fairlead/fairlead/test/netns"
)

// TestNAT measures the rules of the iptables plane beside those of kube-proxy, with
// few services and with many. It fails when something does not work, never because
// of a number.
func TestNAT(t *testing.T) {
	netns.Isolated(t)
	t.Setenv("XTABLES_LOCKFILE", filepath.Join(t.TempDir(), "lock")) // not that of the machine
	for _, variant := range []string{"legacy", "nft"} {
		t.Run(variant, func(t *testing.T) { measureNAT(t, variant) })
	}
}

// reach is how a namespace gets to service addresses: rules lead a packet after it
// has a route. The source is not the address of an endpoint, which kube-proxy would
// masquerade.
func reach(t *testing.T) {
	t.Helper()
	run(t, "", "ip", "link", "set", "lo", "up")
	run(t, "", "ip", "route", "replace", "10.202.0.0/16", "dev", "lo", "src", "127.0.0.2")
}

// run starts a program in the network namespace of the calling thread.
func run(t *testing.T, input, name string, args ...string) {
	t.Helper()
	if err := feed(context.WithoutCancel(t.Context()), input, name, args...); err != nil {
		t.Fatal(err)
	}
}

func feed(ctx context.Context, input, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdin = strings.NewReader(input)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %.1000s", cmd, err, out)
	}
	return nil
}

// natPlane is the iptables plane in the namespace of the benchmark: it works in the
// background as well, so it cannot be in that of one thread.
type natPlane struct{ variant string }

func (p natPlane) name() string { return "iptables-" + p.variant }

func (p natPlane) enter(t *testing.T, seat string) (dataplane.Provider, costs) {
	t.Helper()
	reach(t)
	t.Cleanup(func() { run(t, "", "ip", "route", "del", "10.202.0.0/16") }) // other benchmarks want none
	settings, err := json.Marshal(map[string]any{"variant": p.variant, "pools": []string{"10.202.0.0/16"}, "routes": "off", "check_interval": "1h"})
	if err != nil {
		t.Fatal(err)
	}
	provider := iptables.New("bench")
	if _, err := provider.Configure(t.Context(), dataplane.Config{JSON: settings, InstanceID: seat, StateDir: t.TempDir()}); err != nil {
		t.Fatal(err)
	}
	return provider, nil
}

// kubePlane is one of kube-proxy's layouts, in a namespace of its own.
type kubePlane struct{ variant string } // legacy, nft, or map

func (p kubePlane) name() string { return "kube-" + p.variant }

func (p kubePlane) enter(t *testing.T, _ string) (dataplane.Provider, costs) {
	t.Helper()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	reach(t)
	return &kube{variant: p.variant}, nil
}

// kube programs a layout as kube-proxy does: all at first, then what changed. It is a
// provider for this benchmark only, which calls no more than two of the methods.
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

// Shutdown has nothing to remove: the namespace ends with its thread.
func (k *kube) Shutdown(context.Context, dataplane.ShutdownPolicy) error { return nil }

// column is one plane with one number of services.
type column struct {
	*seat
	name          string
	services      int
	led, direct   [2][]float64 // p50 and p99 of connects, by round
	apply, change []float64    // ms
}

func measureNAT(t *testing.T, variant string) {
	b := &bench{t: t, plan: planned(t)}
	few, many := 100, 10_000
	if b.plan.smoke {
		few, many = 20, 200
	}
	bare := newSeat(t, "direct", kubePlane{"none"}, 1) // a namespace without rules
	peers := []string{variant}
	if variant == "nft" {
		peers = append(peers, "map")
	}
	var columns []*column
	for _, n := range []int{few, many} {
		for _, peer := range peers {
			s := newSeat(t, fmt.Sprintf("kube-%s %d", peer, n), kubePlane{peer}, n)
			c := &column{seat: s, name: "kube-proxy's " + map[string]string{"legacy": "iptables", "nft": "iptables", "map": "nftables"}[peer], services: n}
			s.do(func() error { return c.applied(s.content()) })
			columns = append(columns, c)
		}
	}
	ours := newSeat(t, "ours", natPlane{variant}, few)
	for _, n := range []int{few, many} {
		columns = append(columns, &column{seat: ours, name: "ours", services: n})
	}
	var alone [2][]float64
	for round := range b.plan.rounds {
		alone[0], alone[1] = quantiles(b.dial(bare, true), alone[0], alone[1])
		for k := range columns {
			c := columns[(round+k)%len(columns)]
			c.do(c.sit)
			// The kernel frees what was there before in the background, and is done with
			// it before it takes the next change: connects come after one.
			c.do(func() error { return c.changeOne(b) })
			c.led[0], c.led[1] = quantiles(b.dial(c.seat, false), c.led[0], c.led[1])
			c.direct[0], c.direct[1] = quantiles(b.dial(c.seat, true), c.direct[0], c.direct[1])
		}
	}
	fmt.Fprintf(&b.out, "iptables (%s) beside kube-proxy's layouts: %d rounds of %d connects, %d endpoints a service\n%s, %d CPUs, %s\n\n", variant,
		b.plan.rounds, b.plan.connects, perService, time.Now().UTC().Format(time.DateOnly), runtime.NumCPU(), runtime.Version())
	b.show("programming", natProgramming(columns, variant))
	b.show("connect", natConnects(columns, alone))
	t.Logf("\n%s", b.out.String())
}

// applied programs everything from nothing. It is called on the thread of the seat.
func (c *column) applied(content *dataplane.Snapshot) error {
	begun := time.Now()
	err := c.reconcile(content)
	c.apply = append(c.apply, ms(time.Since(begun)))
	return err
}

// sit makes the seat that of the column: the columns of ours share one, as they share
// the namespace of the benchmark, and it is programmed anew for each.
func (c *column) sit() error {
	if _, peer := c.provider.(*kube); peer {
		return nil
	}
	if err := c.provider.Shutdown(c.t.Context(), dataplane.ShutdownRemove); err != nil {
		return err
	}
	c.seat.services, c.seat.now = c.services, &dataplane.Snapshot{}
	return c.applied(c.content())
}

// changeOne times changes of one endpoint; most of the time goes to the slower planes,
// so few are made.
func (c *column) changeOne(b *bench) error {
	plan := b.plan
	plan.changes = min(plan.changes, 3)
	took, err := (&bench{t: b.t, plan: plan}).changes(c.seat)
	if err != nil {
		return err
	}
	c.change = append(c.change, quantile(took, 0.5)/1000)
	return nil
}

// dial times connects of a seat, to services or beside them.
func (b *bench) dial(s *seat, direct bool) (took []float64) {
	b.t.Helper()
	connects := min(b.plan.connects, 500)
	s.do(func() error {
		for i := range connects + connects/10 {
			at := s.target()
			if direct {
				at = loopback(s.port)
			}
			d, err := connect(s.listener, at)
			if err != nil {
				return fmt.Errorf("to %v: %w", at, err)
			}
			if i >= connects/10 {
				took = append(took, us(d))
			}
		}
		return nil
	})
	return took
}

func quantiles(took, p50, p99 []float64) (_, _ []float64) {
	return append(p50, quantile(took, 0.5)), append(p99, quantile(took, 0.99))
}

// find returns the column of a name and a number of services.
func find(columns []*column, name string, services int) *column {
	return columns[slices.IndexFunc(columns, func(c *column) bool { return c.name == name && c.services == services })]
}

func natProgramming(columns []*column, variant string) (rows []row) {
	for _, c := range columns {
		rows = append(rows, row{name: fmt.Sprintf("%s, all of %d services, ms", c.name, c.services), format: "%.1f", values: c.apply, bar: none},
			row{name: "  one endpoint changed, ms", format: "%.2f", values: c.change, bar: none})
	}
	applyBar, changeBar := 0.3, 0.3
	if variant == "nft" {
		changeBar = 1
	}
	ours := columns[len(columns)-1]
	peer := find(columns, "kube-proxy's iptables", ours.services)
	full := row{values: peer.apply}.median() // once
	rows = append(rows,
		row{name: fmt.Sprintf("ours ÷ kube-proxy's iptables, all of %d", ours.services), format: "%.3f", values: each(ours.apply, ours.apply, func(x, _ float64) float64 { return x / full }), bar: applyBar},
		row{name: "  one endpoint changed", format: "%.3f", values: times(ours.change, peer.change), bar: changeBar})
	return rows
}

func natConnects(columns []*column, alone [2][]float64) []row {
	rows := []row{
		{name: "a namespace without rules: p50, µs", format: "%.2f", values: alone[0], bar: none},
		{name: "  p99, µs", format: "%.2f", values: alone[1], bar: none},
	}
	for _, c := range columns {
		rows = append(rows, row{name: fmt.Sprintf("%s, %d services: p50, µs", c.name, c.services), format: "%.2f", values: c.led[0], bar: none},
			row{name: "  p99, µs", format: "%.2f", values: c.led[1], bar: none},
			row{name: "  direct, in the same namespace: p50, µs", format: "%.2f", values: c.direct[0], bar: none})
	}
	few := columns[0].services
	for _, c := range columns {
		if c.services == few {
			continue
		}
		less, bar, directBar := find(columns, c.name, few), none, none
		if c.name == "ours" {
			bar, directBar = 3, 1.1
		}
		rows = append(rows, row{name: fmt.Sprintf("%s, %d ÷ %d services: p99", c.name, c.services, few), format: "%.2f", values: times(c.led[1], less.led[1]), bar: bar},
			row{name: "  direct, in the same namespace: p50", format: "%.2f", values: times(c.direct[0], less.direct[0]), bar: directBar})
	}
	return rows
}

// TestLayouts: the layouts lead to every endpoint, and after a change to the new one.
func TestLayouts(t *testing.T) {
	netns.Isolated(t)
	t.Setenv("XTABLES_LOCKFILE", filepath.Join(t.TempDir(), "lock"))
	for _, variant := range []string{"legacy", "nft", "map"} {
		t.Run(variant, func(t *testing.T) {
			s := newSeat(t, variant, kubePlane{variant}, 3)
			other, port := -1, uint16(0)
			s.do(func() (err error) {
				if other, port, err = listen(unix.SOCK_STREAM); err != nil {
					return err
				}
				if err := s.reconcile(s.content()); err != nil {
					return err
				}
				for range 20 {
					if _, err := connect(s.listener, s.target()); err != nil {
						return err
					}
				}
				next, change := s.set(s.service(1, dataplane.TCP, port))
				if err := s.reconcile(next, change); err != nil {
					return err
				}
				for range 20 {
					if _, err := connect(other, virtual(1)); err != nil {
						return err
					}
					if _, err := connect(s.listener, virtual(2)); err != nil {
						return err
					}
				}
				return nil
			})
			unix.Close(other)
		})
	}
}

package l4

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/test/netns"
)

// natSeat is a kind of seats: a plane that does NAT.
type natSeat struct {
	name  string
	ours  bool
	peer  string  // of ours: whom it is compared with
	plane plane   // of a seat
	bars  natBars // of ours
}

// natBars are DESIGN's of the larger number of services, NaN where it has none.
type natBars struct {
	apply, change float64 // ÷ the peer's
	changeMS      float64
	slower        float64 // p99 with many services ÷ that with few
}

// Names of the seats.
const (
	kubeLegacy = "kube-proxy's iptables (legacy)"
	kubeNFT    = "kube-proxy's iptables (nft)"
	kubeMap    = "kube-proxy's nftables"
)

func natSeats(t *testing.T) []natSeat {
	t.Helper()
	ipt := compile(t, "fairlead-dataplane-iptables", "../../..", "./cmd/fairlead-dataplane-iptables")
	nft := compile(t, "fairlead-dataplane-nftables", "../../../contrib/plugins/nftables", ".")
	// The regular comparison would fall into some rounds and not into others.
	iptables := func(variant string) plane {
		return processPlane{ipt, map[string]any{"variant": variant, "pools": []string{"10.202.0.0/16"}, "routes": "off", "check_interval": "1h"}}
	}
	return []natSeat{
		{name: kubeLegacy, plane: kubePlane{"legacy"}},
		{name: "iptables (legacy)", ours: true, peer: kubeLegacy, plane: iptables("legacy"), bars: natBars{0.3, 0.3, none, 3}},
		{name: kubeNFT, plane: kubePlane{"nft"}},
		{name: "iptables (nft)", ours: true, peer: kubeNFT, plane: iptables("nft"), bars: natBars{0.3, 1, none, 3}},
		{name: kubeMap, plane: kubePlane{"map"}},
		{name: "nftables", ours: true, peer: kubeMap, plane: processPlane{nft, map[string]any{"check_interval": "1h"}}, bars: natBars{none, none, 20, none}},
	}
}

// column is one plane with one number of services, in a network namespace of its own.
type column struct {
	*seat
	natSeat
	apply, change []float64 // ms
	atLeast       bool      // it was not programmed in the time of apply
	p50, p99      []float64 // of connects to services, µs, by round
	beside        []float64 // p50 of direct ones in the same namespace
	entries       float64   // of conntrack for a connect
}

// Limits of what one column may take, so that all of it ends in time: a slow one is
// programmed less often.
const (
	applyTime  = 15 * time.Second
	changeTime = 15 * time.Second
	giveUp     = 2 * time.Minute // what is not programmed as a whole by then is in portions
)

// TestNAT measures the planes that do NAT beside the layouts that kube-proxy makes,
// with few services and with many. It fails when something does not work, never
// because of a number.
func TestNAT(t *testing.T) {
	part(t, "nat")
	netns.Isolated(t)
	t.Setenv("XTABLES_LOCKFILE", filepath.Join(t.TempDir(), "lock")) // not that of the machine
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, plan: planned(t)}
	few, many := 100, 10_000
	if b.plan.smoke {
		few, many = 20, 200
	}
	n := &natBench{bench: b, random: rand.New(rand.NewPCG(3, 4)), few: few, many: many}
	for _, title := range []string{"a namespace without rules", "again"} {
		n.bare = append(n.bare, &column{seat: newSeat(t, title, kubePlane{"none"}, 1), natSeat: natSeat{name: title}})
	}
	for _, kind := range natSeats(t) {
		for _, services := range []int{few, many} {
			s := newSeat(t, fmt.Sprintf("%s, %d services", kind.name, services), kind.plane, services)
			n.columns = append(n.columns, &column{seat: s, natSeat: kind})
		}
	}
	fmt.Fprintf(&b.out, "planes that do NAT: %d rounds of %d connects, %d endpoints a service\n%s, %d CPUs, load %s before, %s\n\n",
		b.plan.rounds, n.connects(), perService, time.Now().UTC().Format(time.DateOnly), runtime.NumCPU(), strings.Join(strings.Fields(string(load))[:3], " "), runtime.Version())
	n.apply()
	n.change()
	n.connect()
	n.track()
	b.show("all of it", n.applyRows())
	b.show("one endpoint changed", n.changeRows())
	b.show("connect", n.connectRows())
	t.Logf("\n%s", b.out.String())
}

// natBench is a run. Its phases are interleaved in rounds of random order, and in none
// of them one plane is programmed that another one is not: all are programmed anew, all
// have a change, or none is touched while connects are timed.
type natBench struct {
	*bench
	random    *rand.Rand
	few, many int
	bare      []*column
	columns   []*column
}

func (n *natBench) connects() int { return min(n.plan.connects, 500) }

// shuffled is a round: who comes after whom is another one each time.
func (n *natBench) shuffled(columns []*column) []*column {
	out := slices.Clone(columns)
	n.random.Shuffle(len(out), func(i, k int) { out[i], out[k] = out[k], out[i] })
	return out
}

// resetting is what can be made to have nothing.
type resetting interface {
	reset(ctx context.Context) error
}

// apply programs all services from nothing, some times, and leaves them.
func (n *natBench) apply() {
	n.t.Helper()
	for round := range min(n.plan.applies, 3) {
		for _, c := range n.shuffled(n.columns) {
			if round > 0 && sum(c.apply) > ms(applyTime)/2 {
				continue
			}
			c.do(func() error {
				if round > 0 {
					if err := c.provider.(resetting).reset(n.t.Context()); err != nil {
						return err
					}
				}
				return c.applyOnce()
			})
		}
	}
}

func (c *column) applyOnce() error {
	next := c.content()
	next.Generation += c.now.Generation
	runtime.GC() // of what the last one left
	ctx, cancel := context.WithTimeout(c.t.Context(), giveUp)
	defer cancel()
	begun := time.Now()
	r, err := c.provider.Reconcile(ctx, next, dataplane.Delta{})
	c.apply, c.now = append(c.apply, ms(time.Since(begun))), next
	if k, peer := c.provider.(*kube); peer && ctx.Err() != nil {
		c.atLeast = true
		return k.byPortions(c.t.Context(), slices.Collect(next.Services()))
	}
	if len(r.Statuses) > 0 {
		err = errors.Join(err, fmt.Errorf("%+v", r.Statuses[0]))
	}
	return err
}

// change alters one endpoint of one service at a time.
func (n *natBench) change() {
	n.t.Helper()
	for range n.plan.rounds {
		for _, c := range n.shuffled(n.columns) {
			if sum(c.change) > ms(changeTime) {
				continue
			}
			c.do(func() error {
				took, err := (&bench{t: n.t, plan: plan{changes: 1}}).changes(c.seat)
				if err != nil {
					return err
				}
				c.change = append(c.change, took[0]/1000)
				return nil
			})
		}
	}
}

// connect times connects to services and beside them, while nothing is programmed. The
// first round is not counted: the kernel may still be freeing what was replaced.
func (n *natBench) connect() {
	n.t.Helper()
	for round := range n.plan.rounds + 1 {
		for _, c := range n.shuffled(append(slices.Clone(n.bare), n.columns...)) {
			direct := n.dial(c.seat, true)
			led := direct
			if !slices.Contains(n.bare, c) {
				led = n.dial(c.seat, false)
			}
			if round > 0 {
				c.p50, c.p99 = append(c.p50, quantile(led, 0.5)), append(c.p99, quantile(led, 0.99))
				c.beside = append(c.beside, quantile(direct, 0.5))
			}
		}
	}
}

// track counts what conntrack remembers of a connect.
func (n *natBench) track() {
	n.t.Helper()
	const connects = 200
	for _, c := range append(slices.Clone(n.bare), n.columns...) {
		c.do(func() error {
			if err := feed(n.t.Context(), "", "conntrack", "-F"); err != nil {
				return err
			}
			for range connects {
				to := loopback(c.port)
				if !slices.Contains(n.bare, c) {
					to = c.target()
				}
				if _, err := connect(c.listener, to); err != nil {
					return err
				}
			}
			entries, err := tracked()
			c.entries = float64(entries) / connects
			return err
		})
	}
}

// dial times connects of a seat, to services or beside them.
func (n *natBench) dial(s *seat, direct bool) (took []float64) {
	n.t.Helper()
	connects := n.connects()
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

// find returns the column of a name and a number of services.
func (n *natBench) find(name string, services int) *column {
	return n.columns[slices.IndexFunc(n.columns, func(c *column) bool { return c.name == name && c.services == services })]
}

func (n *natBench) applyRows() (rows []row) {
	for _, c := range n.columns {
		name := c.title + ": ms"
		if c.atLeast {
			name += ", at least"
		}
		rows = append(rows, row{name: name, format: "%.1f", values: c.apply, bar: none})
	}
	return append(rows, n.beside(func(c *column) ([]float64, float64) { return c.apply, c.bars.apply })...)
}

func (n *natBench) changeRows() (rows []row) {
	for _, c := range n.columns {
		bar := none
		if c.ours && c.services == n.many {
			bar = c.bars.changeMS
		}
		rows = append(rows, row{name: c.title + ": ms", format: "%.2f", values: c.change, bar: bar})
	}
	return append(rows, n.beside(func(c *column) ([]float64, float64) { return c.change, c.bars.change })...)
}

// beside divides what ours took with many services by the median of its peer, which may
// have had fewer turns.
func (n *natBench) beside(of func(*column) ([]float64, float64)) (rows []row) {
	for _, c := range n.columns {
		if !c.ours || c.services != n.many {
			continue
		}
		peer := n.find(c.peer, n.many)
		ours, bar := of(c)
		theirs, _ := of(peer)
		r := row{name: fmt.Sprintf("%s ÷ %s, %d", c.name, c.peer, n.many), format: "%.4f", bar: bar}
		for _, v := range ours {
			r.values = append(r.values, v/row{values: theirs}.median())
		}
		rows = append(rows, r)
	}
	return rows
}

func (n *natBench) connectRows() (rows []row) {
	alone, again := n.bare[0], n.bare[1]
	rows = append(rows, row{name: alone.name + ": p50, µs", format: "%.2f", values: alone.p50, bar: none},
		row{name: "  p99, µs", format: "%.2f", values: alone.p99, bar: none},
		row{name: "A/A: p50 ÷", format: "%.3f", values: times(again.p50, alone.p50), bar: none},
		row{name: "  p99 ÷", format: "%.3f", values: times(again.p99, alone.p99), bar: none})
	for _, c := range n.columns {
		rows = append(rows, row{name: c.title + ": p50, µs", format: "%.2f", values: c.p50, bar: none},
			row{name: "  p99, µs", format: "%.2f", values: c.p99, bar: none},
			row{name: "  direct in this namespace: p50, µs", format: "%.2f", values: c.beside, bar: none},
			row{name: "  conntrack entries", format: "%.2f", values: []float64{c.entries}, bar: none})
	}
	for _, c := range n.columns {
		if c.services != n.many {
			continue
		}
		less := n.find(c.name, n.few)
		slower, slowed := none, none
		if c.ours {
			slower, slowed = c.bars.slower, 1.1
		}
		rows = append(rows, row{name: fmt.Sprintf("%s, %d ÷ %d services: p99", c.name, n.many, n.few), format: "%.2f", values: times(c.p99, less.p99), bar: slower},
			row{name: "  p50", format: "%.2f", values: times(c.p50, less.p50), bar: none},
			row{name: "  direct in this namespace: p50", format: "%.2f", values: times(c.beside, less.beside), bar: slowed})
	}
	return rows
}

func sum(values []float64) (total float64) {
	for _, v := range values {
		total += v
	}
	return total
}

// TestLayouts: the layouts lead to every endpoint, and after a change to the new one,
// however they were programmed.
func TestLayouts(t *testing.T) {
	part(t, "nat")
	netns.Isolated(t)
	t.Setenv("XTABLES_LOCKFILE", filepath.Join(t.TempDir(), "lock"))
	for _, variant := range []string{"legacy", "nft", "map"} {
		t.Run(variant, func(t *testing.T) {
			testLayout(t, variant, func(s *seat) error { return s.reconcile(s.content()) })
		})
		t.Run(variant+" by portions", func(t *testing.T) {
			testLayout(t, variant, func(s *seat) error {
				s.now = s.content()
				return s.provider.(*kube).byPortions(t.Context(), slices.Collect(s.now.Services()))
			})
		})
	}
}

func testLayout(t *testing.T, variant string, program func(*seat) error) {
	s := newSeat(t, variant, kubePlane{variant}, 3)
	other, port := -1, uint16(0)
	s.do(func() (err error) {
		if other, port, err = listen(unix.SOCK_STREAM); err != nil {
			return err
		}
		if err := program(s); err != nil {
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
}

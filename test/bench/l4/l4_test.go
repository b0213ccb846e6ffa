package l4

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	bpf "github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/dataplane"
)

// plan is how much is measured.
type plan struct {
	rounds   int
	connects int   // of a seat in a round
	messages int   // likewise
	bulk     int   // KiB of a channel in a round
	sizes    []int // numbers of services
	changes  int   // of one endpoint
	applies  int   // of the whole content
	smoke    bool  // the numbers mean nothing
}

// planned returns the full plan when FAIRLEAD_BENCH_ROUNDS says how many rounds,
// and otherwise the least that runs all of the code.
func planned(t *testing.T) plan {
	t.Helper()
	text := os.Getenv("FAIRLEAD_BENCH_ROUNDS")
	if text == "" {
		return plan{rounds: 2, connects: 50, messages: 50, bulk: 256, sizes: []int{1, 300}, changes: 5, applies: 2, smoke: true}
	}
	rounds, err := strconv.Atoi(text)
	if err != nil || rounds < 1 {
		t.Fatalf("FAIRLEAD_BENCH_ROUNDS is %q: want a number such as 21", text)
	}
	return plan{
		rounds: rounds, connects: 2000, messages: 3000, bulk: 16 << 10,
		sizes: []int{1, 100, 1000, 10_000, 50_000}, changes: 201, applies: 5,
	}
}

// part skips a test of another part of the benchmark than FAIRLEAD_BENCH_PART names.
func part(t *testing.T, name string) {
	t.Helper()
	if only := os.Getenv("FAIRLEAD_BENCH_PART"); only != "" && only != name {
		t.Skipf("FAIRLEAD_BENCH_PART is %s", only)
	}
}

// bench is one run.
type bench struct {
	t     *testing.T
	plan  plan
	bare  []*seat // two: the second is the noise
	seats []*seat // of the plane, by number of services
	out   strings.Builder
}

// TestL4 measures every plane beside direct sockets. It fails when something does
// not work, never because of a number.
func TestL4(t *testing.T) {
	part(t, "ebpf")
	for _, p := range []plane{isolated(t)} {
		t.Run(p.name(), func(t *testing.T) { measure(t, p) })
	}
}

func measure(t *testing.T, p plane) {
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, plan: planned(t)}
	calls := tracepoint(t)
	for _, title := range []string{"direct", "again"} {
		b.bare = append(b.bare, newSeat(t, title, nil, 0))
	}
	fmt.Fprintf(&b.out, "%s: %d rounds of %d connects and %d messages, %d endpoints a service\n%s, %d CPUs, load %s before, %s\n\n", p.name(),
		b.plan.rounds, b.plan.connects, b.plan.messages, perService, time.Now().UTC().Format(time.DateOnly), runtime.NumCPU(),
		strings.Join(strings.Fields(string(load))[:3], " "), runtime.Version())
	var rows []row
	for _, n := range b.plan.sizes {
		s := newSeat(t, fmt.Sprint(n), p, n)
		rows = append(rows, b.apply(s)...)
		b.seats = append(b.seats, s)
	}
	b.show("programming", append(rows, b.change(calls)...))
	b.show("connect", b.connect())
	b.show("program for connects", b.program())
	b.show("open sockets, beside direct", b.traffic())
	t.Logf("\n%s", b.out.String())
}

func (b *bench) show(title string, rows []row) {
	b.t.Helper()
	for i := range rows {
		if b.plan.smoke {
			rows[i].bar = none
		}
	}
	if err := print(&b.out, title, rows); err != nil {
		b.t.Fatal(err)
	}
	fmt.Fprintln(&b.out)
}

// most is the largest number of services, of which the bars are.
func (b *bench) most() *seat { return b.seats[len(b.seats)-1] }

// bar is that of the largest number, and none of any other.
func (b *bench) bar(s *seat, bar float64) float64 {
	if s == b.most() {
		return bar
	}
	return none
}

// apply programs all of a seat's services from nothing, some times, and leaves them.
func (b *bench) apply(s *seat) []row {
	b.t.Helper()
	wall := row{name: fmt.Sprintf("all of %d services, ms", s.services), format: "%.1f", bar: none}
	cpu := row{name: fmt.Sprintf("all of %d services: CPU of the process, ms", s.services), format: "%.1f", bar: none}
	if s.services == 50_000 {
		wall.bar = 1000
	}
	content := s.content()
	for i := range b.plan.applies {
		if i > 0 {
			s.leave()
		}
		s.do(func() error {
			runtime.GC() // of what the last one left
			before, err := used()
			if err != nil {
				return err
			}
			begun := time.Now()
			if err := s.reconcile(content); err != nil {
				return err
			}
			wall.values = append(wall.values, ms(time.Since(begun)))
			after, err := used()
			cpu.values = append(cpu.values, ms(after-before))
			return err
		})
	}
	bytes, err := s.costs.memory()
	if err != nil {
		b.t.Fatal(err)
	}
	return []row{wall, cpu, {
		name: fmt.Sprintf("memory in the kernel for %d, MiB", s.services), format: "%.1f",
		values: []float64{float64(bytes) / (1 << 20)}, bar: none,
	}}
}

// change alters one endpoint of one service at a time, and gives generations without
// any change, at the seat with the most services.
func (b *bench) change(tracepoint uint64) []row {
	b.t.Helper()
	s := b.most()
	one := row{name: fmt.Sprintf("one endpoint changed, of %d services: p50, µs", s.services), format: "%.0f", bar: 5000}
	late := row{name: "  p99, µs", format: "%.0f", bar: 5000}
	same := row{name: "nothing changed: p50, µs", format: "%.1f", bar: 1000}
	sameLate := row{name: "  p99, µs", format: "%.1f", bar: 1000}
	bpfs := row{name: "  bpf system calls of all threads", format: "%.2f", bar: 0}
	all := row{name: "  system calls of the calling thread", format: "%.2f", bar: 0}
	s.do(func() error {
		counted, err := countCalls(tracepoint)
		if err != nil {
			return err
		}
		defer func() { _ = counted.close() }()
		for range b.plan.rounds {
			changed, err := b.changes(s)
			if err != nil {
				return err
			}
			one.values, late.values = append(one.values, quantile(changed, 0.5)), append(late.values, quantile(changed, 0.99))
			// Reading the counters takes calls as well: as many as it does next time.
			thread0, bpf0, err := counted.read()
			if err != nil {
				return err
			}
			thread1, bpf1, err := counted.read()
			if err != nil {
				return err
			}
			var took []float64
			for range b.plan.changes {
				begun := time.Now()
				if err := s.reconcile(s.now); err != nil {
					return err
				}
				took = append(took, us(time.Since(begun)))
			}
			thread2, bpf2, err := counted.read()
			if err != nil {
				return err
			}
			same.values, sameLate.values = append(same.values, quantile(took, 0.5)), append(sameLate.values, quantile(took, 0.99))
			n := float64(b.plan.changes)
			bpfs.values = append(bpfs.values, float64((bpf2-bpf1)-(bpf1-bpf0))/n)
			all.values = append(all.values, (float64(thread2-thread1)-float64(thread1-thread0))/n)
		}
		return nil
	})
	return []row{one, late, same, sameLate, bpfs, all}
}

// changes times generations in each of which one endpoint has another weight.
func (b *bench) changes(s *seat) (took []float64, err error) {
	for range b.plan.changes {
		next := *s.now.Service(s.service(s.random.IntN(s.services), dataplane.TCP, s.port).Key)
		list := next.Endpoints.Slice()
		list[0].Weight = 3 - list[0].Weight // 1 or 2
		next.Endpoints = dataplane.NewEndpoints(list...)
		snapshot, change := s.set(&next)
		begun := time.Now()
		if err := s.reconcile(snapshot, change); err != nil {
			return nil, err
		}
		took = append(took, us(time.Since(begun)))
	}
	return took, nil
}

// turn is one column of the connects.
type turn struct {
	*seat
	hot      bool
	p50, p99 []float64
}

func (b *bench) turns() []*turn {
	var out []*turn
	for _, s := range append(slices.Clone(b.bare), b.seats...) {
		out = append(out, &turn{seat: s})
	}
	return append(out, &turn{seat: b.most(), hot: true})
}

// connect measures connects of all seats.
func (b *bench) connect() (rows []row) {
	b.t.Helper()
	turns, conntrack := b.turns(), 0
	for round := range b.plan.rounds {
		for k := range turns {
			u := turns[(round+k)%len(turns)]
			took := b.connects(u)
			u.p50, u.p99 = append(u.p50, quantile(took, 0.5)), append(u.p99, quantile(took, 0.99))
			n, err := tracked()
			if err != nil {
				b.t.Fatal(err)
			}
			conntrack = max(conntrack, n)
		}
	}
	direct, one := turns[0], turns[2]
	rows = append(rows, row{name: "direct: p50, µs", format: "%.2f", values: direct.p50, bar: none},
		row{name: "direct: p99, µs", format: "%.2f", values: direct.p99, bar: none},
		row{name: "A/A: p50 over direct, µs", format: "%+.2f", values: over(turns[1].p50, direct.p50), bar: none},
		row{name: "A/A: p99 over direct, µs", format: "%+.2f", values: over(turns[1].p99, direct.p99), bar: none},
		row{name: "A/A: p50 ÷ direct", format: "%.3f", values: times(turns[1].p50, direct.p50), bar: none})
	for _, u := range turns[2:] {
		name, bar := fmt.Sprintf("%d services", u.services), b.bar(u.seat, 1.5)
		if u.hot {
			name, bar = fmt.Sprintf("%d services, one hot", u.services), 1
		}
		rows = append(rows, row{name: name + ": p50 over direct, µs", format: "%+.2f", values: over(u.p50, direct.p50), bar: bar},
			row{name: name + ": p99 over direct, µs", format: "%+.2f", values: over(u.p99, direct.p99), bar: none})
		if u != one {
			rows = append(rows, row{
				name: fmt.Sprintf("%s: p50 ÷ that with %d", name, one.services), format: "%.3f",
				values: times(u.p50, one.p50), bar: b.bar(u.seat, 1.1),
			})
		}
	}
	return append(rows, row{name: "conntrack entries", format: "%.0f", values: []float64{float64(conntrack)}, bar: 0})
}

// connects returns the times of one turn, in µs.
func (b *bench) connects(u *turn) (took []float64) {
	b.t.Helper()
	u.do(func() error {
		u.seat.hot = u.hot
		for i := range b.plan.connects + b.plan.connects/10 {
			d, err := connect(u.listener, u.target())
			if err != nil {
				return err
			}
			if i >= b.plan.connects/10 { // the first ones find cold caches
				took = append(took, us(d))
			}
		}
		return nil
	})
	return took
}

// program measures how long the program of each seat runs for a connect.
func (b *bench) program() (rows []row) {
	b.t.Helper()
	stats, err := bpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME))
	if err != nil {
		b.t.Fatal(err)
	}
	defer stats.Close()
	turns := b.turns()[len(b.bare):]
	values := make([][]float64, len(turns))
	for round := range b.plan.rounds {
		for k := range turns {
			i := (round + k) % len(turns)
			u := turns[i]
			runs, took, has, err := u.costs.program()
			if err != nil {
				b.t.Fatal(err)
			}
			if !has {
				return nil
			}
			b.connects(u)
			runs2, took2, _, err := u.costs.program()
			if err != nil {
				b.t.Fatal(err)
			}
			if want := uint64(b.plan.connects + b.plan.connects/10); runs2-runs != want {
				b.t.Fatalf("seat %s: the program ran %d times for %d connects", u.title, runs2-runs, want)
			}
			values[i] = append(values[i], us(took2-took)/float64(runs2-runs))
		}
	}
	for i, u := range turns {
		name, bar := fmt.Sprintf("%d services: run time, µs", u.services), b.bar(u.seat, 1.5)
		if u.hot {
			name, bar = fmt.Sprintf("%d services, one hot: run time, µs", u.services), 1
		}
		rows = append(rows, row{name: name, format: "%.2f", values: values[i], bar: bar})
	}
	return rows
}

func us(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }
func ms(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }

// quantile returns the smallest of some numbers that a share q of them does not
// exceed.
func quantile(x []float64, q float64) float64 {
	x = slices.Sorted(slices.Values(x))
	return x[max(0, int(math.Ceil(q*float64(len(x))))-1)]
}

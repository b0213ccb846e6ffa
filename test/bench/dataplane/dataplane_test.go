package dataplane

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
)

// plan is how much is measured.
type plan struct {
	services, each int
	unchanged      int // calls
	fresh, again   int // snapshots: to a new process, and to one that has it
	deltas         int
	window         time.Duration
	smoke          bool // the numbers mean nothing
}

// planned returns the full plan when FAIRLEAD_BENCH_WINDOW says how long the
// idle window lasts, and otherwise the least that runs all of the code.
func planned(t *testing.T) plan {
	text := os.Getenv("FAIRLEAD_BENCH_WINDOW")
	if text == "" {
		return plan{services: 500, each: 10, unchanged: 20, fresh: 1, again: 2, deltas: 2, window: 100 * time.Millisecond, smoke: true}
	}
	window, err := time.ParseDuration(text)
	if err != nil || window <= 0 {
		t.Fatalf("FAIRLEAD_BENCH_WINDOW is %q: want a duration such as 20s", text)
	}
	return plan{services: 10_000, each: 10, unchanged: 3000, fresh: 10, again: 50, deltas: 20, window: window}
}

// TestDataplane measures a provider under host and loop. It fails when
// something does not work, never because of a number.
func TestDataplane(t *testing.T) {
	p := planned(t)
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		t.Fatal(err)
	}
	plugins := built(t)
	v := newViews(t, p.services, p.each)
	rows := append(hosted(t, p, plugins, v), bytesOnTheWire(t, p, plugins, v)...)
	if p.smoke {
		for i := range rows {
			rows[i].bar = 0
		}
	}
	var out strings.Builder
	fmt.Fprintf(&out, "%d services with %d endpoints each, %d calls without change, %d + %d snapshots, idle window %v\n%s, %d CPUs, load %s, %s\n\n",
		p.services, p.each, p.unchanged, p.fresh, p.again, p.window,
		time.Now().UTC().Format(time.DateOnly), runtime.NumCPU(), strings.Join(strings.Fields(string(load))[:3], " "), runtime.Version())
	if err := print(&out, rows); err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%s", out.String())
	for _, r := range rows {
		if r.verdict() == "OVER" {
			t.Logf("OVER the bar: %s", r.work)
		}
	}
}

// ms are the times of calls.
func ms(calls []call) []float64 {
	var out []float64
	for _, c := range calls {
		out = append(out, float64(c.took.Microseconds())/1000)
	}
	return out
}

// hosted measures times, memory and CPU of a provider that the host started.
func hosted(t *testing.T, p plan, plugins string, v *views) (rows []row) {
	t.Helper()
	h := newHost(t, plugins, "")
	l := h.next()
	pause(p.window / 10)
	empty := measure(t, l.pid)
	three := newViews(t, p.services, 3)
	small := l.held(three, p.window)

	first, again, peaks := snapshots(t, p, h, v)
	l = h.restarted()
	ticking := l.serve(v, 1, 2*time.Millisecond)
	ticking.wait("unchanged", p.unchanged/10)
	before, had := l.cpu(), len(ticking.of("unchanged"))
	calls := ms(ticking.wait("unchanged", had+p.unchanged))
	each := float64((l.cpu() - before).Microseconds()) / 1000 / float64(p.unchanged)
	ticking.stop()
	control := l.control(p.unchanged / 3)
	l = h.restarted()
	large, share := l.idle(v, p.window)

	return append([]row{
		{"reconcile without change: p50, ms", "%.2f", quantile(calls, 0.5), 0.3},
		{"reconcile without change: p99, ms", "%.2f", quantile(calls, 0.99), 2},
		{"reconcile without change: CPU of host and plugin together, ms", "%.2f", each, 0},
		{"control, the empty call State: p50, ms", "%.2f", quantile(control, 0.5), 0},
		{"control, the empty call State: p99, ms", "%.2f", quantile(control, 0.99), 0},
		{"whole snapshot to a new process: p50, ms", "%.0f", quantile(first, 0.5), 0},
		{"whole snapshot to a new process: p99, ms", "%.0f", quantile(first, 0.99), 150},
		{"whole snapshot to one that has it: p50, ms", "%.0f", quantile(again, 0.5), 0},
		{"whole snapshot to one that has it: p99, ms", "%.0f", quantile(again, 0.99), 150},
	}, append(peaks,
		row{"idle CPU of host and plugin, % of a core", "%.2f", share, 0.5},
		row{"private memory of the plugin: pages of the program file, MiB", "%.1f", empty[1], 0},
		row{"private memory of the plugin: its own, no service, MiB", "%.1f", empty[0], 10},
		row{fmt.Sprintf("private memory of the plugin: its own, %d × 3, MiB", p.services), "%.1f", small[0], 10},
		row{fmt.Sprintf("private memory of the plugin: its own, %d × %d, MiB", p.services, p.each), "%.1f", large[0], 10},
	)...)
}

// measure is the private memory of a process: its own, and that of files.
func measure(t *testing.T, pid int) [2]float64 {
	t.Helper()
	own, files, err := private(pid)
	if err != nil {
		t.Fatal(err)
	}
	return [2]float64{own, files}
}

// control is the time in ms of calls that do next to nothing, as often as those
// without change: what the machine and gRPC take.
func (l life) control(n int) []float64 {
	t := l.host.t
	t.Helper()
	var out []float64
	for range n {
		begun := time.Now()
		if _, err := l.Client.State(t.Context(), &pb.StateRequest{}); err != nil {
			t.Fatal(err)
		}
		out = append(out, float64(time.Since(begun).Microseconds())/1000)
		pause(2 * time.Millisecond)
	}
	return out
}

// held is the private memory of a provider some time after it was given all of
// v.
func (l life) held(v *views, window time.Duration) [2]float64 {
	l.host.t.Helper()
	m, _ := l.idle(v, window/2)
	return m
}

// cpu is what both sides have used.
func (l life) cpu() (sum time.Duration) {
	l.host.t.Helper()
	for _, pid := range []int{os.Getpid(), l.pid} {
		used, err := cpuTime(pid)
		if err != nil {
			l.host.t.Fatal(err)
		}
		sum += used
	}
	return sum
}

// idle gives the provider all of v, and returns its private memory after a
// window without change, and the CPU that both sides took in it, in % of a core.
func (l life) idle(v *views, window time.Duration) (memory [2]float64, share float64) {
	t := l.host.t
	t.Helper()
	s := l.serve(v, 1, time.Second)
	defer s.stop()
	s.wait("snapshot", 1)
	runtime.GC() // what came before is not what is measured
	pause(window / 10)
	begun, before := time.Now(), l.cpu()
	pause(window)
	share = 100 * float64(l.cpu()-before) / float64(time.Since(begun))
	if d := len(s.of("delta")); d != 0 {
		t.Errorf("%d deltas while nothing changed", d)
	}
	return measure(t, l.pid), share
}

// snapshots measures whole snapshots: their times, and the peaks of memory.
func snapshots(t *testing.T, p plan, h *host, v *views) (first, again []float64, rows []row) {
	t.Helper()
	var payload int
	var extra, peak, hostCPU, pluginCPU []float64
	used := func(pid int) float64 {
		d, err := cpuTime(pid)
		if err != nil {
			t.Fatal(err)
		}
		return float64(d.Microseconds()) / 1000
	}
	for range p.fresh {
		l := h.restarted()
		debug.FreeOSMemory()
		if err := forgetPeak(os.Getpid()); err != nil {
			t.Fatal(err)
		}
		before, _, err := resident(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		ours, theirs := used(os.Getpid()), used(l.pid)
		s := l.serve(v, 1, time.Second)
		calls := s.wait("snapshot", 1)
		hostCPU, pluginCPU = append(hostCPU, used(os.Getpid())-ours), append(pluginCPU, used(l.pid)-theirs)
		s.stop()
		first = append(first, ms(calls)...)
		_, most, err := resident(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		extra = append(extra, most-before)
		if _, most, err = resident(l.pid); err != nil {
			t.Fatal(err)
		}
		peak = append(peak, most)
	}
	l := h.restarted()
	sized := l.serveWith(v, 1, time.Second, true)
	payload = sized.wait("snapshot", 1)[0].bytes
	sized.stop()
	for boot := range uint64(p.again + 1) {
		s := l.serve(v, boot+2, time.Second)
		calls := s.wait("snapshot", 1)
		s.stop()
		if boot > 0 {
			again = append(again, ms(calls)...)
		}
	}
	return first, again, []row{
		{"whole snapshot to a new process: CPU of the host, the view included, p50, ms", "%.0f", quantile(hostCPU, 0.5), 0},
		{"whole snapshot to a new process: CPU of the plugin, p50, ms", "%.0f", quantile(pluginCPU, 0.5), 0},
		{"whole snapshot: messages, MiB", "%.1f", float64(payload) / (1 << 20), 0},
		{"whole snapshot: the host grows by at most, MiB", "%.0f", quantile(extra, 1), 0},
		{"whole snapshot: peak of the new plugin, resident MiB", "%.0f", quantile(peak, 1), 0},
	}
}

// bytesOnTheWire counts what passes between the loop and a provider.
func bytesOnTheWire(t *testing.T, p plan, plugins string, v *views) []row {
	t.Helper()
	w := newWire(t, alone(t, plugins))
	l := newHost(t, plugins, w.socket).next()

	s := l.serve(v, 1, 50*time.Millisecond)
	s.wait("unchanged", 5) // header tables are full
	to, fro := w.to.Load(), w.fro.Load()
	calls := len(s.of("unchanged"))
	s.wait("unchanged", calls+20)
	ticks := float64(len(s.of("unchanged")) - calls)
	tickTo, tickFro := float64(w.to.Load()-to)/ticks, float64(w.fro.Load()-fro)/ticks
	s.stop()

	s = l.serve(v, 2, time.Hour)
	s.wait("snapshot", 1)
	changed := func(flips int) (most float64) {
		for range p.deltas {
			to, _ := w.quiet()
			have := len(s.of("delta"))
			v.flip(flips)
			s.wait("delta", have+1)
			now, _ := w.quiet()
			most = max(most, now-to)
			if n := len(s.of("delta")); n != have+1 {
				t.Errorf("%d deltas for one change", n-have)
			}
		}
		return most
	}
	percent := p.services * p.each / 100
	one, many := changed(1), changed(percent)
	bar := float64(40<<10) * float64(p.services) / 10_000
	return []row{
		{"bytes of a call without change: to the plugin", "%.0f", tickTo, 200},
		{"bytes of a call without change: back", "%.0f", tickFro, 0},
		{"bytes of one flip, at most", "%.0f", one, 512},
		{fmt.Sprintf("bytes of 1 %% churn, %d endpoints, at most", percent), "%.0f", many, bar},
	}
}

package l7

import (
	"bufio"
	"fmt"
	"math"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// mostIdle is how many clients at most wait for their next request at once.
const mostIdle = 10_000

// moreClients is how many a proxy takes beyond those.
const moreClients = 200

// plan is how much is measured.
type plan struct {
	rounds   int
	window   time.Duration // of the load that the bars are about
	short    time.Duration // of all others
	services int           // of the large configuration
	idle     int           // clients
	smoke    bool          // the numbers mean nothing
}

// planned returns the full plan when FAIRLEAD_BENCH_WINDOW says how long a
// window lasts, and otherwise the least that runs all of the code.
func planned(t *testing.T) plan {
	text := os.Getenv("FAIRLEAD_BENCH_WINDOW")
	if text == "" {
		return plan{rounds: 1, window: 500 * time.Millisecond, short: 100 * time.Millisecond, services: 100, idle: 100, smoke: true}
	}
	window, err := time.ParseDuration(text)
	if err != nil || window <= 0 {
		t.Fatalf("FAIRLEAD_BENCH_WINDOW is %q: want a duration such as 3s", text)
	}
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		t.Fatal(err)
	}
	// HAProxy wants two files for each client, and some.
	idle := min(mostIdle, (int(files.Max)-1000)/2-moreClients)
	if idle < 1000 {
		t.Fatalf("a process may open %d files: raise the limit to 22000 (ulimit -Hn)", files.Max)
	}
	return plan{rounds: 5, window: window, short: window / 2, services: 10_000, idle: idle}
}

// bench is one run.
type bench struct {
	t       *testing.T
	plan    plan
	dir     string
	last    int // the CPU of the proxies; -1: any
	backend process
	sent    int64 // requests that were answered
}

// TestL7 measures the proxy beside others. It fails when something does not
// work, never because of a number.
func TestL7(t *testing.T) {
	b := &bench{t: t, plan: planned(t), dir: t.TempDir(), last: -1}
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		t.Fatal(err)
	}
	peer := b.built("..", "./l7peer")
	program := b.built("../../..", "./cmd/fairlead-dataplane-l7")
	first := b.divide()
	web := []service{{"web", host}}
	b.backend = b.start(theBackend(peer), first, web)
	others := []proxy{fairlead("fairlead", program), fairlead("again", program)}
	others = append(others, b.installed("nginx", nginx)...)
	others = append(others, b.installed("haproxy", haproxy)...)
	others = append(others, reverseProxy(peer))

	var out strings.Builder
	fmt.Fprintf(&out, "%d rounds, windows of %v and %v, %d idle clients\n%s, %d CPUs, load %s before, %s\n",
		b.plan.rounds, b.plan.window, b.plan.short, b.plan.idle, time.Now().UTC().Format(time.DateOnly), runtime.NumCPU(),
		strings.Join(strings.Fields(string(load))[:3], " "), strings.Join(append([]string{runtime.Version()}, versions(others)...), ", "))
	ratios := b.beside(&out, others, web)
	ratios = append(ratios, b.manyServices(&out, fairlead("fairlead", program))...)
	b.idleClients(&out, others, web)

	if n := counted(t, b.backend.at); n != b.sent {
		t.Errorf("the backend had %d requests, and clients %d answers", n, b.sent)
	}
	if b.plan.smoke {
		for i := range ratios {
			ratios[i].must, ratios[i].aim = 0, 0
		}
	}
	fmt.Fprintln(&out)
	if err := printRatios(&out, ratios); err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%s", out.String())
}

// divide keeps this process off the last CPU, which is the proxies', and returns
// one for the backend; -1: any.
func (b *bench) divide() int {
	b.t.Helper()
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		b.t.Fatal(err)
	}
	if set.Count() < 2 {
		return -1
	}
	var cpus []int
	for i := range len(set) * 64 {
		if set.IsSet(i) {
			cpus = append(cpus, i)
		}
	}
	b.last = cpus[len(cpus)-1]
	set.Clear(b.last)
	if err := pinAll(set); err != nil {
		b.t.Fatal(err)
	}
	return cpus[0]
}

// installed is a proxy of the machine. The benchmark needs it; a quick look does
// without.
func (b *bench) installed(name string, with func(program string, clients int) proxy) (found []proxy) {
	b.t.Helper()
	for _, dir := range []string{"", "/usr/sbin/", "/usr/local/sbin/"} {
		if path, err := exec.LookPath(dir + name); err == nil {
			return []proxy{with(path, b.plan.idle+moreClients)}
		}
	}
	if !b.plan.smoke {
		b.t.Fatalf("%s is not installed: scripts/setup.sh bench, as root", name)
	}
	b.t.Run(name, func(t *testing.T) {
		t.Skipf("%s is not installed (scripts/setup.sh bench): the others are measured without it", name)
	})
	return nil
}

// versions are those of the proxies that are not from here.
func versions(proxies []proxy) (out []string) {
	for _, p := range proxies {
		switch p.name {
		case "nginx", "HAProxy":
			program := strings.ToLower(p.name)
			text, err := exec.Command("/usr/sbin/"+program, "-v").CombinedOutput()
			if err == nil {
				out = append(out, strings.TrimSpace(strings.Split(string(text), "\n")[0]))
			}
		}
	}
	return out
}

// host is the one that most requests are for.
const host = "web.example"

// beside measures all proxies under three loads, and the backend without any.
func (b *bench) beside(out *strings.Builder, proxies []proxy, web []service) (ratios []ratio) {
	b.t.Helper()
	processes := []process{b.backend}
	for _, p := range proxies {
		processes = append(processes, b.start(p, b.last, web))
	}
	for _, load := range []struct {
		workload
		window time.Duration
		bars   map[string][2]float64
	}{
		{get("GET 1 KB, 64 clients", "/", 1<<10, 64, host), b.plan.window, map[string][2]float64{"nginx": {1.25, 1}, "HAProxy": {1.25, 1}, "ReverseProxy": {0.2, 0}}},
		{post("POST 64 KB, 64 clients", 64<<10, 1<<10, 64, host), b.plan.short, nil},
		{get("GET 1 MiB, 16 clients", "/large", 1<<20, 16, host), b.plan.short, nil},
	} {
		samples := b.rounds(processes, load.workload, load.window)
		b.show(out, load.name, processes, samples)
		cpu := func(i int) []float64 { return each(samples[i], func(s sample) float64 { return s.cpu }) }
		for i, p := range processes {
			name := fmt.Sprintf("%s: CPU ÷ %s", load.name, p.name)
			switch p.name {
			case "direct", "fairlead":
			case "again":
				ratios = append(ratios, ratio{name: fmt.Sprintf("%s: CPU, A/A", load.name), spread: divided(cpu(i), cpu(1))})
			default:
				bars := load.bars[p.name]
				ratios = append(ratios, ratio{name, divided(cpu(1), cpu(i)), bars[0], bars[1]})
			}
		}
	}
	return ratios
}

// rounds measures each process once in each round, beginning with another one
// each time.
func (b *bench) rounds(processes []process, w workload, window time.Duration) [][]sample {
	samples := make([][]sample, len(processes))
	for round := range b.plan.rounds {
		for k := range processes {
			i := (round + k) % len(processes)
			samples[i] = append(samples[i], b.run(processes[i].at, processes[i].pid, w, window, 0))
		}
	}
	return samples
}

// show prints the figures of one load.
func (b *bench) show(out *strings.Builder, name string, processes []process, samples [][]sample) {
	b.t.Helper()
	var heads []string
	rows := []figure{
		{name: "CPU µs per request", format: "%.1f"},
		{name: "  lowest", format: "%.1f"},
		{name: "  highest", format: "%.1f"},
		{name: "requests/s", format: "%.0f"},
		{name: "p50, ms", format: "%.2f"},
		{name: "p99, ms", format: "%.2f"},
	}
	for i, p := range processes {
		heads = append(heads, p.name)
		cpu := spreadOf(each(samples[i], func(s sample) float64 { return s.cpu }))
		median := func(of func(sample) float64) float64 { return spreadOf(each(samples[i], of)).median }
		for k, v := range []float64{
			cpu.median, cpu.low, cpu.high, median(func(s sample) float64 { return s.rate }),
			median(func(s sample) float64 { return s.p50 }), median(func(s sample) float64 { return s.p99 }),
		} {
			rows[k].values = append(rows[k].values, v)
		}
	}
	fmt.Fprintf(out, "\n%s\n", name)
	if err := printFigures(out, heads, rows); err != nil {
		b.t.Fatal(err)
	}
}

func each(samples []sample, of func(sample) float64) (out []float64) {
	for _, s := range samples {
		out = append(out, of(s))
	}
	return out
}

// divided are the ratios of pairs of the same round.
func divided(a, b []float64) spread {
	var out []float64
	for i := range a {
		out = append(out, a[i]/b[i])
	}
	return spreadOf(out)
}

// manyServices measures what it costs to know many services: the same host all
// the time, and all of them at random. Each service has its own connections to the
// backend, which there are many of then.
func (b *bench) manyServices(out *strings.Builder, p proxy) []ratio {
	b.t.Helper()
	var services []service
	var hosts []string
	for i := range b.plan.services {
		s := service{fmt.Sprintf("s%05d", i), fmt.Sprintf("s%05d.example", i)}
		services, hosts = append(services, s), append(hosts, s.host)
	}
	one, many := b.start(p, b.last, services[:1]), b.start(p, b.last, services)
	single := get("", "/", 1<<10, 64, hosts[0])
	all := get("all hosts at random", "/", 1<<10, 64, hosts...)
	// Connections to nearly all backends are there before anything counts.
	b.run(many.at, many.pid, all, b.plan.short, int64(3*len(hosts)))
	processes := []process{{"1 service", one.at, one.pid}, {fmt.Sprintf("%d, one asked", len(hosts)), many.at, many.pid}, {fmt.Sprintf("%d at random", len(hosts)), many.at, many.pid}}
	samples := make([][]sample, len(processes))
	for round := range b.plan.rounds {
		for k := range processes {
			i := (round + k) % len(processes)
			w := single
			if i == 2 {
				w = all
			}
			samples[i] = append(samples[i], b.run(processes[i].at, processes[i].pid, w, b.plan.short, 0))
		}
	}
	b.show(out, fmt.Sprintf("GET 1 KB, 64 clients, fairlead with 1 and with %d services", len(hosts)), processes, samples)
	cpu := func(i int) []float64 { return each(samples[i], func(s sample) float64 { return s.cpu }) }
	return []ratio{
		{name: fmt.Sprintf("CPU, %d services, one asked ÷ 1 service", len(hosts)), spread: divided(cpu(1), cpu(0))},
		{name: fmt.Sprintf("CPU, %d services at random ÷ 1 service", len(hosts)), spread: divided(cpu(2), cpu(0))},
	}
}

// idleClients measures the memory that clients cost which wait for their next
// request, by new processes.
func (b *bench) idleClients(out *strings.Builder, proxies []proxy, web []service) {
	t := b.t
	t.Helper()
	var heads []string
	rows := []figure{{name: "KiB per connection", format: "%.1f"}, {name: "MiB of the process before", format: "%.1f"}, {name: "MiB with all", format: "%.1f"}}
	request := get("", "/", 1<<10, 1, host).requests[0]
	for _, p := range proxies {
		if p.name == "again" {
			continue
		}
		at := b.start(p, b.last, web)
		b.run(at.at, at.pid, get("warm-up", "/", 1<<10, 64, host), b.plan.short, 0)
		before := residentOf(t, at.pid)
		conns := make([]net.Conn, b.plan.idle)
		for i := range conns {
			conns[i] = dial(t, at.at)
			_ = conns[i].SetDeadline(time.Now().Add(patience))
			if err := exchange(conns[i], bufio.NewReader(conns[i]), request, 1<<10); err != nil {
				t.Fatalf("%s: idle client %d: %v", p.name, i, err)
			}
			b.sent++
		}
		pause(b.plan.short)
		after := residentOf(t, at.pid)
		for _, c := range conns {
			c.Close()
		}
		heads = append(heads, p.name)
		for k, v := range []float64{(after - before) / float64(len(conns)), before / 1024, after / 1024} {
			rows[k].values = append(rows[k].values, v)
		}
	}
	fmt.Fprintf(out, "\n%d idle clients, resident memory\n", b.plan.idle)
	if err := printFigures(out, heads, rows); err != nil {
		t.Fatal(err)
	}
}

// TestVerdicts holds the judgement of a number against its bars.
func TestVerdicts(t *testing.T) {
	for _, c := range []struct {
		median, must, aim float64
		want              string
	}{
		{1.3, 1.25, 1, "OVER"},
		{1.25, 1.25, 1, "ok, aim missed"},
		{1, 1.25, 1, "ok"},
		{0.2, 0.2, 0, "ok"},
		{9, 0, 0, ""},
		{math.NaN(), 1, 0, "OVER"},
	} {
		if got := (ratio{spread: spread{median: c.median}, must: c.must, aim: c.aim}).verdict(); got != c.want {
			t.Errorf("%v of %v, aim %v: %q, want %q", c.median, c.must, c.aim, got, c.want)
		}
	}
}

package ebpf

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/dataplane"
)

// BenchmarkConnect compares connects to a service with those to its endpoint, in
// interleaved rounds: the medians of both, what the service costs more, the same
// for direct against direct (A/A), and the run time of the program by itself. One
// service is hot; of many a random one is dialled each time.
func BenchmarkConnect(b *testing.B) {
	for _, n := range []int{1, 1000, 50_000} {
		b.Run(fmt.Sprintf("services=%d", n), func(b *testing.B) {
			w := newWorld(b)
			endpoint := listenQuiet(b)
			var endpoints []netip.AddrPort
			for range 5 {
				endpoints = append(endpoints, endpoint)
			}
			services := make([]*dataplane.Service, n)
			for i := range services {
				addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 202, byte(i >> 8), byte(i)}), 80)
				services[i] = service(fmt.Sprint("s", i), vip(addr.String(), dataplane.TCP), endpoints...)
			}
			start := time.Now()
			w.good(w.apply(services...))
			apply := time.Since(start)
			direct := sockaddr(endpoint.String())
			r := rand.New(rand.NewPCG(1, 1))
			target := func() unix.Sockaddr { return sockaddr(services[r.IntN(n)].Frontends[0].Addr.String()) }

			var a, again, led []time.Duration
			b.ResetTimer()
			for range b.N {
				a = append(a, connect(b, direct))
				led = append(led, connect(b, target()))
				again = append(again, connect(b, direct))
			}
			b.StopTimer()
			b.ReportMetric(median(a), "direct-p50-ns")
			b.ReportMetric(median(led), "service-p50-ns")
			b.ReportMetric(median(led)-median(a), "over-ns")
			b.ReportMetric(median(again)-median(a), "A/A-ns")
			b.ReportMetric(programTime(b, w, target), "program-ns")
			b.ReportMetric(float64(apply.Microseconds()), "apply-us")
			b.ReportMetric(oneChange(b, w, services), "change-us")
			b.ReportMetric(float64(w.provider.data.Maps().LockedBytes()>>10), "maps-KiB")
		})
	}
}

// listenQuiet accepts, and closes at once.
func listenQuiet(b *testing.B) netip.AddrPort {
	b.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		b.Fatal(err)
	}
	if err := unix.Bind(fd, sockaddr("127.0.0.1:0")); err != nil {
		b.Fatal(err)
	}
	if err := unix.Listen(fd, 4096); err != nil {
		b.Fatal(err)
	}
	sa, err := unix.Getsockname(fd)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { unix.Close(fd) })
	go func() {
		for {
			c, _, err := unix.Accept(fd)
			if err != nil {
				return
			}
			unix.Close(c)
		}
	}()
	return netip.MustParseAddrPort(text(sa))
}

// connect times one connect, and ends it by a reset, so that no port waits.
func connect(b *testing.B, to unix.Sockaddr) time.Duration {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		b.Fatal(err)
	}
	start := time.Now()
	err = unix.Connect(fd, to)
	took := time.Since(start)
	if err != nil {
		b.Fatal(err)
	}
	_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	unix.Close(fd)
	return took
}

func median(d []time.Duration) float64 {
	slices.Sort(d)
	return float64(d[len(d)/2])
}

// programTime is the mean run time of connect4, as the kernel measures it.
func programTime(b *testing.B, w *world, target func() unix.Sockaddr) float64 {
	b.Helper()
	stats, err := ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME))
	if err != nil {
		b.Fatal(err)
	}
	defer stats.Close()
	before := runStats(b, w)
	for range 20_000 {
		connect(b, target())
	}
	after := runStats(b, w)
	return float64(after.Runtime-before.Runtime) / float64(after.RunCount-before.RunCount)
}

func runStats(b *testing.B, w *world) *ebpf.ProgramStats {
	b.Helper()
	s, err := w.provider.data.Program("connect4").Stats()
	if err != nil {
		b.Fatal(err)
	}
	return s
}

// oneChange is the median time of a generation in which one endpoint of one
// service changed, in µs.
func oneChange(b *testing.B, w *world, services []*dataplane.Service) float64 {
	b.Helper()
	var took []time.Duration
	for i := range 101 {
		next := *services[i%len(services)]
		list := next.Endpoints.Slice()
		list[0].Weight = uint16(2 + i%3)
		next.Endpoints = dataplane.NewEndpoints(list...)
		e := w.now.Edit()
		old := e.Service(next.Key)
		e.Set(&next)
		snapshot := e.Done()
		snapshot.Generation++
		change, _ := dataplane.Compare(old, &next, nil)
		start := time.Now()
		if _, err := w.provider.Reconcile(b.Context(), snapshot, dataplane.Delta{Changes: []dataplane.Change{change}}); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(start))
		w.now = snapshot
	}
	return median(took) / 1000
}

package health

import (
	"context"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// cpu is what this process used so far, in user and kernel mode.
func cpu(tb testing.TB) time.Duration {
	tb.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkRunner tells what the checks of 1,000 instances at an interval of 2 s
// cost, three of them each, in percent of one core and for each probe. What the
// kernel does for the backends' side of loopback connections is in it.
func BenchmarkRunner(b *testing.B) {
	const instances, interval = 1000, 2 * time.Second
	addrs := backends(b, instances)
	for _, bench := range []struct {
		name   string
		checks []Check
	}{
		{"idle", nil},
		{"1000 http", []Check{{Kind: HTTP, Path: "/healthz"}}},
		{"1000 tcp", []Check{{Kind: TCP}}},
		{"1000 grpc", []Check{{Kind: GRPC, Address: addrs[instances]}}},
		{"3000 http", []Check{{Kind: HTTP, Path: "/a"}, {Kind: HTTP, Path: "/b"}, {Kind: HTTP, Path: "/c"}}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			r, err := Start(Config{})
			if err != nil {
				b.Fatal(err)
			}
			defer r.Close()
			var list []Instance
			for i, addr := range addrs[:instances] {
				in := Instance{Key: keyOf(strconv.Itoa(i)), Addr: addr}
				for _, c := range bench.checks {
					c.Interval, c.Timeout = interval, interval
					in.Checks = append(in.Checks, c)
				}
				list = append(list, in)
			}
			r.Set(list)
			over := time.NewTimer(2 * interval) // until all run at their rate
			<-over.C
			var used, wall time.Duration
			for b.Loop() {
				cpu0, began := cpu(b), time.Now()
				over.Reset(interval)
				<-over.C
				used, wall = used+cpu(b)-cpu0, wall+time.Since(began)
			}
			for key, s := range r.States() {
				if !s.Passing {
					b.Fatalf("%s is %+v", key, s)
				}
			}
			b.ReportMetric(100*float64(used)/float64(wall), "%core")
			if probes := float64(len(bench.checks)*instances) * float64(wall) / float64(interval); probes > 0 {
				b.ReportMetric(float64(used.Microseconds())/probes, "cpu-µs/probe")
			}
		})
	}
}

// BenchmarkProbe tells what one probe takes, one after the other.
func BenchmarkProbe(b *testing.B) {
	addrs := backends(b, 1)
	for _, c := range []Check{{Kind: HTTP, Path: "/healthz"}, {Kind: TCP}, {Kind: GRPC, Address: addrs[1]}} {
		b.Run(c.Kind.String(), func(b *testing.B) {
			e := &entry{check: c, target: c.Target(addrs[0])}
			e.request = request(e)
			what, h := e.probe(), newReader()
			what.timeout = time.Second
			b.ReportAllocs()
			began := cpu(b)
			for b.Loop() {
				f := &flight{probe: what, began: time.Now()}
				out, ended := f.start()
				if !ended {
					out = f.resume(context.Background(), h)
				}
				f.end()
				if !out.ok() {
					b.Fatal(out)
				}
				what.last = out.output
			}
			b.ReportMetric(float64((cpu(b)-began).Microseconds())/float64(b.N), "cpu-µs/op")
		})
	}
}

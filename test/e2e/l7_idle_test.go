package e2e

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/test/scale"
)

// TestL7Idle: what an agent and its L7 data plane cost while nothing happens, with
// 1,000 services of three instances each.
func TestL7Idle(t *testing.T) {
	if scale.Factor() < 1 {
		t.Parallel() // in full, nothing else runs beside it: CPU is measured
	}
	const services, each, hosts = 1000, 3, 7 // a node has 496 instances at most
	cluster := newWebs(t, hosts)
	for i := range services {
		name := fmt.Sprintf("service-%04d", i)
		for k := range each {
			w := cluster.hosts[(each*i+k)%hosts]
			w.services = append(w.services, object{"name": name, "port": 80, "instances": []object{{"id": name, "address": w.url(10000 + i)}}})
		}
	}
	one := cluster.hosts[0]
	for _, w := range cluster.hosts {
		if w != one {
			w.settings = nil
		}
		w.start()
	}
	proxy := one.ready("l7", 1)
	cluster.eventually(60*time.Second, "the data plane has all endpoints", func() error {
		p, err := one.plugin("l7")
		if err == nil && (p.Told == nil || !p.Told.Complete || p.Told.Services != services || p.Told.Endpoints != each*services) {
			err = fmt.Errorf("told %+v", p.Told)
		}
		return err
	})

	window, mostCPU := scale.Bound(20*time.Second, 2*time.Second), 0.5 // percent of a core
	if scale.Factor() < 1 {
		mostCPU = 5
	}
	for _, p := range []struct {
		name   string
		pid    int
		mostMB float64
	}{{"agent", one.proc.Pid(), 60}, {"l7", proxy.PID, 40}} {
		// What else the machine does adds to the cost of each wake-up, and takes
		// nothing from it: so the quietest time counts.
		least := 100.0
		for attempt := 0; attempt < 4 && least > mostCPU; attempt++ {
			begun, before := time.Now(), cpuSeconds(t, p.pid)
			<-time.After(window)
			percent := 100 * (cpuSeconds(t, p.pid) - before) / time.Since(begun).Seconds()
			t.Logf("%s: %.2f %% of a core over %v", p.name, percent, window)
			least = min(least, percent)
		}
		rss := residentMB(t, p.pid)
		t.Logf("%s: RSS %.1f MB", p.name, rss)
		if least > mostCPU {
			t.Errorf("%s takes %.2f %% of a core, %.1f %% at most", p.name, least, mostCPU)
		}
		if rss > p.mostMB {
			t.Errorf("%s has a RSS of %.1f MB, %.0f MB at most", p.name, rss, p.mostMB)
		}
	}
}

// cpuSeconds is what a process has used so far, in user and in kernel mode.
func cpuSeconds(t *testing.T, pid int) float64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), ") ") // behind the name
	fields := strings.Fields(rest)
	var ticks int
	for _, f := range fields[11:13] { // utime and stime, of USER_HZ, which is 100 everywhere
		n, err := strconv.Atoi(f)
		if err != nil {
			t.Fatal(err)
		}
		ticks += n
	}
	return float64(ticks) / 100
}

// residentMB is the memory of a process that is in RAM, in MB.
func residentMB(t *testing.T, pid int) float64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kb, err := strconv.ParseFloat(strings.Fields(value)[0], 64)
			if err != nil {
				t.Fatal(err)
			}
			return kb * 1024 / 1e6
		}
	}
	t.Fatalf("no VmRSS of %d", pid)
	return 0
}

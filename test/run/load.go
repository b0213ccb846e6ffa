package main

import (
	"bytes"
	"os"
	"runtime"
	"strconv"
	"sync"
	"time"
)

// sampleEvery is how often a Meter looks: often beside the seconds of a budget.
const sampleEvery = 500 * time.Millisecond

// Meter tells how busy the machine was, whoever kept it busy.
type Meter struct {
	// Cores are the CPUs that there are.
	Cores int

	mu      sync.Mutex // guards all following fields
	samples []sample   // in order of time
}

// sample is how many threads ran or waited for a CPU at one moment.
type sample struct {
	at       time.Time
	runnable int
}

// StartMeter returns a Meter that looks at this machine until stop is called.
func StartMeter() (m *Meter, stop func()) {
	m = &Meter{Cores: runtime.NumCPU()}
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(sampleEvery)
		defer tick.Stop()
		for {
			select {
			case at := <-tick.C:
				if n, ok := runnable(); ok {
					m.add(at, n)
				}
			case <-done:
				return
			}
		}
	}()
	return m, func() { close(done); <-ended }
}

func (m *Meter) add(at time.Time, runnable int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.samples = append(m.samples, sample{at, runnable})
}

// Share is which part of what was asked of the CPUs in [from, to] they could
// give: 1 on a machine with a CPU for everyone, 0.1 with twenty threads for two.
// It is 1 when nobody looked.
func (m *Meter) Share(from, to time.Time) float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	var given, n float64
	for _, s := range m.samples {
		if s.at.Before(from) || s.at.After(to) {
			continue
		}
		given += min(1, float64(m.Cores)/float64(max(1, s.runnable)))
		n++
	}
	if n == 0 {
		return 1
	}
	return given / n
}

// runnable reads how many threads run or wait for a CPU now, but for the one
// that asks. Where the kernel does not say, ok is false.
func runnable() (n int, ok bool) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, false
	}
	for line := range bytes.Lines(text) {
		if rest, found := bytes.CutPrefix(line, []byte("procs_running ")); found {
			n, err := strconv.Atoi(string(bytes.TrimSpace(rest)))
			return max(0, n-1), err == nil
		}
	}
	return 0, false
}

// Charge is what a package pays of its budget: the time that it took, less what
// it waited for a CPU because others had them. share is that of [Meter.Share].
// What it computed (cpu, with its children) is never less than paid for: tests
// that keep all cores busy by themselves have nobody to blame.
func Charge(took, cpu time.Duration, share float64, cores int) time.Duration {
	owned := min(took, cpu/time.Duration(cores))
	return max(owned, time.Duration(float64(took)*share))
}

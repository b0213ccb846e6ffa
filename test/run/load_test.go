package main

import (
	"testing"
	"time"
)

func TestChargeSparesABusyMachine(t *testing.T) {
	for name, c := range map[string]struct {
		took, cpu time.Duration
		share     float64
		want      time.Duration
	}{
		"idle machine, waits":              {60 * time.Second, 4 * time.Second, 1, 60 * time.Second},
		"twenty threads for two cores":     {60 * time.Second, 4 * time.Second, 0.1, 6 * time.Second},
		"busy with its own":                {60 * time.Second, 110 * time.Second, 0.25, 55 * time.Second},
		"children of before count no more": {60 * time.Second, 500 * time.Second, 0.25, 60 * time.Second},
		"CPU not measured":                 {60 * time.Second, 0, 0.5, 30 * time.Second},
	} {
		if got := Charge(c.took, c.cpu, c.share, 2); got != c.want {
			t.Errorf("%s: charged %v, want %v", name, got, c.want)
		}
	}
}

func TestShare(t *testing.T) {
	m := &Meter{Cores: 2}
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	if got := m.Share(at(0), at(9)); got != 1 {
		t.Errorf("nobody looked: share %v, want 1", got)
	}
	for s, runnable := range []int{0, 2, 4, 20} {
		m.add(at(s), runnable)
	}
	for _, c := range []struct {
		from, to int
		want     float64
	}{
		{0, 0, 1}, {1, 1, 1}, {2, 2, 0.5}, {3, 3, 0.1}, {1, 2, 0.75}, {4, 9, 1},
	} {
		if got := m.Share(at(c.from), at(c.to)); got != c.want {
			t.Errorf("share from %d to %d: %v, want %v", c.from, c.to, got, c.want)
		}
	}
}

func TestMeterLooks(t *testing.T) {
	m, stop := StartMeter()
	defer stop()
	if _, ok := runnable(); !ok {
		t.Skip("this system does not say how many threads want a CPU (Linux does, in /proc/stat)")
	}
	looked := func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return len(m.samples) > 0
	}
	deadline := time.After(time.Minute)
	for !looked() {
		select {
		case <-deadline:
			t.Fatal("no sample")
		case <-time.After(sampleEvery / 10):
		}
	}
}

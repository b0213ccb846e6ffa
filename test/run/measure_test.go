package main

import (
	"bytes"
	"os"
	"testing"
	"time"
)

func TestMeasure(t *testing.T) {
	for _, c := range []struct {
		script string
		code   int
		cpu    time.Duration // at least
	}{
		{"exit 0", 0, 0},
		{"exit 3", 3, 0},
		{"kill -9 $$", 1, 0},
		// A child that computes: what it took is known once it was waited for.
		{"sh -c 'i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done'; exit 4", 4, 10 * time.Millisecond},
	} {
		var out bytes.Buffer
		code := measure([]string{"/bin/sh", "-c", c.script}, &out)
		cpu, ok := parseCPU(out.String())
		if code != c.code || !ok || cpu < c.cpu {
			t.Errorf("%s: code %d, %q; want code %d and at least %v", c.script, code, out.String(), c.code, c.cpu)
		}
	}
	for _, args := range [][]string{nil, {t.TempDir() + "/missing"}} {
		if code := measure(args, os.Stdout); code == 0 {
			t.Errorf("%q: code 0", args)
		}
	}
}

func TestParseCPU(t *testing.T) {
	if cpu, ok := parseCPU("run: cpu seconds 1.500\n"); !ok || cpu != 1500*time.Millisecond {
		t.Errorf("%v, %v", cpu, ok)
	}
	for _, line := range []string{"", "PASS\n", "run: cpu seconds x\n"} {
		if _, ok := parseCPU(line); ok {
			t.Errorf("%q is taken for a measurement", line)
		}
	}
}

package main

import (
	"bytes"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// fuzz runs one target on one CPU for the given time and returns what it
// printed. A finding is an error; its input is then below testdata/fuzz of the
// package.
func (s *session) fuzz(p Package, target string, d time.Duration) ([]byte, error) {
	out, err := s.fuzzOnce(p, target, d)
	// The fuzzing engine sometimes reports its own deadline as a failure of the
	// target, above all where it starts slowly. It is one only if it says so three
	// times.
	for try := 1; try < 3 && err != nil && isDeadlineFlake(out); try++ {
		out, err = s.fuzzOnce(p, target, d)
	}
	return out, err
}

func (s *session) fuzzOnce(p Package, target string, d time.Duration) ([]byte, error) {
	cmd := s.command(s.dir, "test", "-run=^$", "-vet=off", "-fuzz=^"+target+"$",
		fmt.Sprintf("-fuzztime=%s", d), "-fuzzminimizetime=5s", "-parallel=1", p.ImportPath)
	if nice, err := exec.LookPath("nice"); err == nil {
		cmd.Path, cmd.Args = nice, append([]string{"nice", "-n", "10"}, cmd.Args...)
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.Bytes(), err
}

// isDeadlineFlake recognises the engine's own deadline: a failure that has no
// failing input.
func isDeadlineFlake(out []byte) bool {
	return bytes.Contains(out, []byte("context deadline exceeded")) &&
		!bytes.Contains(out, []byte("Failing input written"))
}

// lastStats finds the engine's last line of figures: how many inputs it tried.
func lastStats(out []byte) string {
	last := "no figures"
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(line, "fuzz: elapsed:") {
			last = strings.TrimSpace(strings.TrimPrefix(line, "fuzz: "))
		}
	}
	return last
}

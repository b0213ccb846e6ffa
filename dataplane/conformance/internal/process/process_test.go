package process

import (
	"context"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func started(t *testing.T, script string, env ...string) *Process {
	t.Helper()
	p := New("/bin/sh", []string{"-c", script}, env)
	p.Cmd.Stdout, p.Cmd.Stderr = &p.Out, &p.Out
	if err := p.Cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.Reap()
	t.Cleanup(p.Kill)
	return p
}

// TestListening: whoever is to talk to a process learns that it listens, that it
// ended with which words, or that the time is over.
func TestListening(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	p := started(t, "echo no port left >&2; exit 3")
	err := p.Listening(t.Context(), socket)
	if err == nil || !strings.Contains(err.Error(), "exit status 3") || !strings.Contains(err.Error(), "no port left") {
		t.Errorf("of one that ended: %v", err)
	}
	p = started(t, "exec sleep 3600")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := p.Listening(ctx, socket); err == nil || !strings.Contains(err.Error(), "nobody listens") || !strings.Contains(err.Error(), "it wrote nothing") {
		t.Errorf("of one that does not listen: %v", err)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := p.Listening(t.Context(), socket); err != nil {
		t.Errorf("of one that listens: %v", err)
	}
	conn, err := Dial(socket)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
}

// TestKillEndsChildren: what a process started ends with it.
func TestKillEndsChildren(t *testing.T) {
	p := started(t, "sleep 3600 & wait")
	if !p.Running() {
		t.Error("it does not run")
	}
	p.Kill() // which waits until nobody holds its output
	if p.Running() {
		t.Error("it runs on")
	}
}

// TestEnvironment: a provider is given what the suite says, and nothing else of ours.
func TestEnvironment(t *testing.T) {
	t.Setenv("FAIRLEAD_TEST_SECRET", "x")
	t.Setenv("HOME", "/h")
	env := New("/bin/true", nil, []string{"MINE=1"}).Cmd.Env
	if !slices.Contains(env, "MINE=1") || !slices.Contains(env, "HOME=/h") || slices.Contains(env, "FAIRLEAD_TEST_SECRET=x") {
		t.Errorf("its environment is %q", env)
	}
}

// TestTail: of long output the end is kept.
func TestTail(t *testing.T) {
	var tail Tail
	if tail.Quoted() != "it wrote nothing" {
		t.Errorf("of nothing it says %s", tail.Quoted())
	}
	for range 3000 {
		_, _ = tail.Write([]byte("ab"))
	}
	_, _ = tail.Write([]byte("end"))
	if s := tail.String(); len(s) != tailBytes || !strings.HasSuffix(s, "abend") {
		t.Errorf("%d bytes are kept, the last are %q", len(s), s[max(0, len(s)-8):])
	}
}

package kv

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// directory makes one for all data, on a disk. The full run refuses memory.
func (b *bench) directory() string {
	t := b.t
	t.Helper()
	dir, err := os.MkdirTemp("", "fairlead-bench-kv-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	switch st.Type {
	case unix.TMPFS_MAGIC, unix.RAMFS_MAGIC:
		if !b.plan.smoke {
			t.Fatalf("%s is in memory: set TMPDIR to a directory on a disk", dir)
		}
	}
	return dir
}

// diskLatency appends to a file and syncs it, as a log does, and returns the
// times that a sync takes.
func (b *bench) diskLatency() (h *histogram) {
	b.t.Helper()
	f, err := os.CreateTemp(b.dir, "sync")
	if err != nil {
		b.t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Fallocate(int(f.Fd()), 0, 0, 1<<20); err != nil {
		b.t.Fatal(err)
	}
	h = &histogram{}
	block := make([]byte, 512)
	for i := range b.plan.syncs {
		if _, err := f.WriteAt(block, int64(i*len(block))); err != nil {
			b.t.Fatal(err)
		}
		begun := time.Now()
		if err := unix.Fdatasync(int(f.Fd())); err != nil {
			b.t.Fatal(err)
		}
		h.add(time.Since(begun))
	}
	return h
}

// syncs proves that puts are synced: it counts, by strace, the calls of each
// member while puts come one after the other.
func (b *bench) fsync(out *strings.Builder) {
	t := b.t
	strace, err := exec.LookPath("strace")
	if err != nil {
		if !b.plan.smoke {
			t.Fatal("strace is not installed: scripts/setup.sh bench, as root")
		}
		b.skip("fsync", "strace is not installed (scripts/setup.sh bench)")
		return
	}
	fmt.Fprintf(out, "\n%d puts one after the other: fdatasync and fsync of each member\n", b.plan.traced)
	for _, c := range b.clusters() {
		var traces []*trace
		for _, m := range c.members {
			tr, err := startTrace(strace, filepath.Join(m.dir, "strace"), m.cmd.Process.Pid)
			if err != nil {
				for _, tr := range traces {
					_, _ = tr.stop()
				}
				if b.plan.smoke {
					b.skip("fsync", err.Error())
					return
				}
				t.Fatal(err)
			}
			traces = append(traces, tr)
		}
		r := rand.New(rand.NewPCG(1, 1))
		done := 0
		for i := range b.plan.traced {
			if err := puts(t.Context(), c.conns[i%servers], r); err != nil {
				t.Errorf("%s, put %d, under strace: %v", c.name, i, err)
				break
			}
			done++
		}
		synced := 0
		var counts []string
		for i, tr := range traces {
			n, err := tr.stop()
			if err != nil {
				t.Fatal(err)
			}
			if n >= done {
				synced++
			}
			counts = append(counts, fmt.Sprintf("%s %d", c.members[i].name, n))
		}
		fmt.Fprintf(out, "  %-14s %s\n", c.name, strings.Join(counts, ", "))
		if synced < servers/2+1 {
			t.Errorf("%s: %d puts, but only %d members synced as often: %s", c.name, done, synced, strings.Join(counts, ", "))
		}
		c.serving() // strace slows them; an election may have happened
	}
}

// trace is an strace of one process.
type trace struct {
	cmd  *exec.Cmd
	path string
}

// startTrace returns when the process is traced.
func startTrace(strace, path string, pid int) (*trace, error) {
	cmd := exec.Command(strace, "-f", "-qq", "-e", "trace=fdatasync,fsync", "-e", "signal=none", "-o", path, "-p", fmt.Sprint(pid))
	said := &lines{}
	cmd.Stderr = said
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGINT}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	tr := &trace{cmd, path}
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); pause(10 * time.Millisecond) {
		if traced(pid) {
			return tr, nil
		}
	}
	_, _ = tr.stop()
	return nil, fmt.Errorf("strace does not attach to process %d: %s", pid, said)
}

// traced reports whether every thread of a process has a tracer.
func traced(pid int) bool {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	for _, path := range tasks {
		text, err := os.ReadFile(path)
		if err == nil && strings.Contains(string(text), "TracerPid:\t0\n") {
			return false
		}
	}
	return err == nil && len(tasks) > 0
}

// stop detaches and returns how many calls there were.
func (tr *trace) stop() (calls int, err error) {
	_ = tr.cmd.Process.Signal(syscall.SIGINT)
	_ = tr.cmd.Wait() // by the signal
	text, err := os.ReadFile(tr.path)
	if err != nil {
		return 0, err
	}
	// A call that others interrupt has a second line, "<... fdatasync resumed>".
	return strings.Count(string(text), "fdatasync(") + strings.Count(string(text), "fsync("), nil
}

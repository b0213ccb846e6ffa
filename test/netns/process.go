package netns

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// tailLines is how much of each process's output a failed test shows.
const tailLines = 60

// runLinger is how long [Node.Run] waits for children of a program that has ended to close its output.
const runLinger = 2 * time.Second

// Process is a process of a node, in a process group of its own. Its methods may be called by several goroutines.
type Process struct {
	node   *Node
	cmd    *exec.Cmd
	output *os.File // unlinked; both of stdout and stderr

	mu     sync.Mutex
	exited bool // Invariant: while false the pid is that of this process and cannot be given to another.
	err    error
	done   chan struct{}
}

// Start starts a program in the node: the pid is that of the program itself. It inherits the environment of the test without
// FAIRLEAD_ variables, so that settings of a developer do not leak in, then env ("KEY=value") is added. Whatever it prints is kept,
// and its end shown when the test fails. It is killed when the test ends, in whatever way.
func (n *Node) Start(path string, args []string, env ...string) *Process {
	n.topo.t.Helper()
	p, err := n.start(path, args, env)
	n.must(err)
	return p
}

func (n *Node) start(path string, args, env []string) (*Process, error) {
	output, err := unlinkedFile()
	if err != nil {
		return nil, err
	}
	p := &Process{node: n, cmd: command(exec.Command(path, args...), env), output: output, done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = output, output
	if err := n.space.start(p.cmd); err != nil {
		output.Close()
		return nil, fmt.Errorf("netns: start %s: %w", path, err)
	}
	go p.reap()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.processes = append(n.processes, p)
	return p, nil
}

// Run runs a program in the node to its end and returns its standard output. The error carries the standard error, and is an
// *exec.ExitError when the program ended with a code other than 0. When ctx ends the program is killed.
func (n *Node) Run(ctx context.Context, path string, args ...string) (string, error) {
	cmd := command(exec.CommandContext(ctx, path, args...), nil)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.WaitDelay = runLinger
	err := n.space.start(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	if cause := context.Cause(ctx); err != nil && cause != nil {
		// "signal: killed" alone would not say who killed it.
		err = fmt.Errorf("%w: %w", cause, err)
	}
	if err != nil {
		return stdout.String(), fmt.Errorf("netns: %s: %s: %w: %s",
			n.name, strings.Join(cmd.Args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}

// command sets what all processes of a node have in common.
func command(cmd *exec.Cmd, env []string) *exec.Cmd {
	for _, pair := range os.Environ() {
		if !strings.HasPrefix(pair, "FAIRLEAD_") {
			cmd.Env = append(cmd.Env, pair)
		}
	}
	cmd.Env = append(cmd.Env, env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	return cmd
}

// Pid returns the process id.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Node returns the node of the process.
func (p *Process) Node() *Node { return p.node }

// Done is closed when the process has ended and is reaped.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait waits for the end of the process: nil for exit code 0, otherwise an *exec.ExitError, or the error of ctx.
func (p *Process) Wait(ctx context.Context) error {
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		return fmt.Errorf("netns: wait for %s: %w", p, context.Cause(ctx))
	}
}

// ExitCode returns the exit code, or -1 while the process lives and when a signal ended it.
func (p *Process) ExitCode() int {
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode()
	default:
		return -1
	}
}

// Signal sends a signal to the process; to one that has ended it does nothing.
func (p *Process) Signal(sig syscall.Signal) {
	p.node.topo.t.Helper()
	p.node.must(p.signal(p.Pid(), sig))
}

// Kill ends the process by SIGKILL, as kill -9 and the out of memory killer do, and returns when it is gone.
func (p *Process) Kill() {
	p.node.topo.t.Helper()
	p.Signal(syscall.SIGKILL)
	<-p.done
}

// Stop halts the process by SIGSTOP and returns when it stands still. Cont lets it go on.
func (p *Process) Stop() {
	p.node.topo.t.Helper()
	p.Signal(syscall.SIGSTOP)
	p.waitFor(unix.WSTOPPED | unix.WEXITED)
}

// Cont undoes [Process.Stop].
func (p *Process) Cont() {
	p.node.topo.t.Helper()
	p.Signal(syscall.SIGCONT)
}

// Output returns all that the process has printed so far, standard output and standard error as they came.
func (p *Process) Output() string {
	out, err := io.ReadAll(io.NewSectionReader(p.output, 0, 1<<40))
	if err != nil {
		return fmt.Sprintf("netns: read output: %v", err)
	}
	return string(out)
}

// String names the process in messages.
func (p *Process) String() string {
	return fmt.Sprintf("%s %s (pid %d)", p.node.name, filepath.Base(p.cmd.Path), p.Pid())
}

// signal sends to the process or, with a negative pid, to its group.
func (p *Process) signal(pid int, sig syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.exited {
		return nil
	}
	if err := unix.Kill(pid, sig); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("netns: send %v to %s: %w", sig, p, err)
	}
	return nil
}

// reap waits until the process is dead, then reaps it with the lock held, so that nobody signals a pid that is free again.
func (p *Process) reap() {
	p.waitFor(unix.WEXITED)
	p.mu.Lock()
	p.err = p.cmd.Wait()
	p.exited = true
	p.mu.Unlock()
	close(p.done)
}

// waitFor waits for a change of state without consuming it. An error means that the process is reaped.
func (p *Process) waitFor(change int) {
	for {
		if err := unix.Waitid(unix.P_PID, p.Pid(), nil, change|unix.WNOWAIT, nil); !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// tail returns a heading and the last lines of the output.
func (p *Process) tail() string {
	state := "running"
	select {
	case <-p.done:
		state = p.cmd.ProcessState.String()
	default:
	}
	lines := strings.Split(strings.TrimRight(p.Output(), "\n"), "\n")
	if cut := len(lines) - tailLines; cut > 0 {
		lines = append([]string{fmt.Sprintf("… %d lines before", cut)}, lines[cut:]...)
	}
	return fmt.Sprintf("%s, %s, printed:\n%s", p, state, strings.Join(lines, "\n"))
}

// all returns the processes that were started in the node.
func (n *Node) all() []*Process {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]*Process(nil), n.processes...)
}

// killProcesses kills and reaps what was started in the node, with the group of each.
func (n *Node) killProcesses() {
	for _, p := range n.all() {
		// An error leaves the process to the search by namespace that follows.
		if err := p.signal(-p.Pid(), syscall.SIGKILL); err == nil {
			<-p.done
		}
		p.output.Close()
	}
}

// unlinkedFile makes a file that vanishes with its last descriptor. Unlike a pipe it needs nobody to read it: a process never
// blocks because the test is slow, and its children cannot hold up its end.
func unlinkedFile() (*os.File, error) {
	file, err := os.CreateTemp("", "fairlead-output-")
	if err != nil {
		return nil, fmt.Errorf("netns: file for output: %w", err)
	}
	if err := os.Remove(file.Name()); err != nil {
		file.Close()
		return nil, fmt.Errorf("netns: file for output: %w", err)
	}
	return file, nil
}

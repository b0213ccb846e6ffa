// Package process is what both suites of data planes, that of the contract and that
// of layer 4, know of the provider under test as a process: what it is given, when it
// listens, how it ends, and its last words.
package process

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/fairlead/fairlead/dataplane/sdk/handshake"
)

// tailBytes is how much of its output is kept.
const tailBytes = 4 << 10

// Process is a provider that was started here. It is the head of a session, which
// ends with it.
type Process struct {
	Cmd    *exec.Cmd
	Exited chan struct{} // closed when it ended and was waited for
	Out    Tail          // of its output
}

// New returns a process that is not started yet, with env beside what every provider
// is given.
func New(path string, args, env []string) *Process {
	p := &Process{Cmd: exec.Command(path, args...), Exited: make(chan struct{})}
	p.Cmd.Env = append(Environment(), env...)
	p.Cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return p
}

// Environment is what a provider gets of ours: nothing that an agent would not hand on.
func Environment() []string {
	env := []string{"LANG=C.UTF-8"}
	for _, name := range []string{"PATH", "HOME", "TMPDIR"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return env
}

// Reap waits for the end of the process in the background. Call it once, after Start.
func (p *Process) Reap() {
	go func() {
		_ = p.Cmd.Wait()
		close(p.Exited)
	}()
}

// Listening waits until somebody answers at the socket, at most until ctx ends.
func (p *Process) Listening(ctx context.Context, socket string) error {
	began := time.Now()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		c, err := net.Dial("unix", socket)
		if err == nil {
			return c.Close()
		}
		select {
		case <-tick.C:
		case <-p.Exited:
			return fmt.Errorf("the process ended (%v) before it listened at %s: %s", p.Cmd.ProcessState, socket, p.Out.Quoted())
		case <-ctx.Done():
			return fmt.Errorf("nobody listens at %s after %v: %s", socket, time.Since(began).Round(time.Millisecond), p.Out.Quoted())
		}
	}
}

// Running reports whether it has not ended.
func (p *Process) Running() bool {
	select {
	case <-p.Exited:
		return false
	default:
		return true
	}
}

// Kill ends the process at once, with its children.
func (p *Process) Kill() {
	_ = syscall.Kill(-p.Cmd.Process.Pid, syscall.SIGKILL)
	<-p.Exited
}

// Dial returns a connection to a socket, as an agent makes it.
func Dial(socket string) (*grpc.ClientConn, error) {
	conn, err := grpc.NewClient("unix:"+socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(handshake.MaxReceiveBytes)),
	)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", socket, err)
	}
	return conn, nil
}

// Tail keeps the end of what is written to it. Its methods may be called from any
// goroutine.
type Tail struct {
	mu    sync.Mutex
	bytes []byte
}

func (t *Tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.bytes = append(t.bytes, b...)
	if n := len(t.bytes) - tailBytes; n > 0 {
		t.bytes = append(t.bytes[:0], t.bytes[n:]...)
	}
	return len(b), nil
}

// String is what is kept.
func (t *Tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.bytes)
}

// Quoted is what is kept, for the end of a message.
func (t *Tail) Quoted() string {
	if text := t.String(); text != "" {
		return fmt.Sprintf("%q", text)
	}
	return "it wrote nothing"
}

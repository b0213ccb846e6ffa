package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// localProcess is one child of dev or demo.
type localProcess struct {
	name string // for people
	log  string // path of what it writes to standard error
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
	err  error         // of cmd.Wait; read after done
}

// startProcess starts the program with args. Its standard output is out, or the
// log if that is nil.
func (c *localCluster) startProcess(on *spawner, name, log string, out *os.File, args ...string) (*localProcess, error) {
	logFile, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer logFile.Close() // the child has its own descriptor
	p := &localProcess{name: name, log: log, cmd: exec.Command(c.exe, args...), done: make(chan struct{})}
	p.cmd.Dir = c.dir
	p.cmd.Env = withoutFairlead(c.env.Environ)
	p.cmd.Stdout, p.cmd.Stderr = logFile, logFile
	if out != nil {
		p.cmd.Stdout = out
	}
	if err := on.start(p.cmd); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	c.sweeper.watch(p.pid())
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	c.processes = append(c.processes, p)
	return p, nil
}

// startInstance starts an instance and returns when it listens.
func (c *localCluster) startInstance(ctx context.Context, n *localNode, spec instanceSpec) error {
	read, write, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("make a pipe: %w", err)
	}
	defer read.Close()
	stop := context.AfterFunc(ctx, func() { _ = read.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	p, err := c.startProcess(n.spawner, "instance "+spec.ID, n.file(spec.ID+".log"), write, instanceCommandName,
		"--service", spec.Service, "--id", spec.ID, "--node", spec.Node, "--listen", n.addr.String()+":0")
	_ = write.Close()
	if err != nil {
		return err
	}
	line, err := bufio.NewReader(read).ReadBytes('\n')
	var ready instanceReady
	if err == nil {
		err = json.Unmarshal(line, &ready)
	}
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("%s ended while starting (%w); its log:\n%s", p.name, err, tail(p.log))
	}
	n.instances = append(n.instances, &localInstance{instanceSpec: spec, addr: ready.Addr, process: p})
	return nil
}

func (p *localProcess) pid() int { return p.cmd.Process.Pid }

// running reports whether it has not ended.
func (p *localProcess) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

func (p *localProcess) signal(s syscall.Signal) {
	if p.running() {
		_ = p.cmd.Process.Signal(s) // it may have ended just now
	}
}

func exitReason(err error) error {
	if err == nil {
		return errors.New("exit status 0")
	}
	return err
}

// tail returns the last lines of a log.
func tail(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-10):], "\n")
}

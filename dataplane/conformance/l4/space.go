package l4

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

var errClosed = errors.New("l4: the network namespace is closed")

// space is a network namespace without a name: a thread that lives in it, and a
// process, as there is one in each container. Both end with this process,
// however that ends, and the namespace with them.
type space struct {
	name   string
	calls  chan func()
	quit   chan struct{}
	gone   chan struct{} // closed when the thread is
	holder *exec.Cmd
	stdin  io.Closer // the holder ends when it is closed
}

// newSpace makes a namespace. prepare runs first, on its thread.
func newSpace(name string, flags int, prepare func() error) (*space, error) {
	s := &space{name: name, calls: make(chan func()), quit: make(chan struct{}), gone: make(chan struct{})}
	entered := make(chan error, 1)
	go s.live(flags, prepare, entered)
	if err := <-entered; err != nil {
		return nil, fmt.Errorf("l4: make namespace %s: %w", name, err)
	}
	if err := s.hold(); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *space) live(flags int, prepare func() error, entered chan<- error) {
	// Never unlocked: a goroutine that ends locked takes its thread with it.
	runtime.LockOSThread()
	if unix.Gettid() == unix.Getpid() {
		// The first thread stands for the whole process. While this goroutine has
		// it, the next one gets another.
		defer runtime.UnlockOSThread()
		go s.live(flags, prepare, entered)
		<-s.gone
		return
	}
	defer close(s.gone)
	err := unix.Unshare(unix.CLONE_NEWNET | flags)
	if err == nil && prepare != nil {
		err = prepare()
	}
	entered <- err
	for err == nil {
		select {
		case f := <-s.calls:
			f()
		case <-s.quit:
			return
		}
	}
}

// hold starts the process of the namespace, which others find it by.
func (s *space) hold() error {
	s.holder = exec.Command("cat")
	stdin, err := s.holder.StdinPipe()
	if err != nil {
		return err
	}
	s.stdin = stdin
	if err := s.start(s.holder); err != nil {
		return fmt.Errorf("l4: start a process in %s: %w", s.name, err)
	}
	return nil
}

func (s *space) pid() string { return strconv.Itoa(s.holder.Process.Pid) }

func (s *space) close() {
	if s.stdin != nil {
		_ = s.stdin.Close()
	}
	if s.holder != nil && s.holder.Process != nil {
		_ = s.holder.Process.Kill()
		_ = s.holder.Wait()
	}
	close(s.quit)
	<-s.gone
}

// do runs f on the thread of the namespace. It must be quick.
func (s *space) do(f func() error) error {
	result := make(chan error, 1)
	select {
	case s.calls <- func() { result <- f() }:
		return <-result
	case <-s.quit:
		return errClosed
	}
}

// start starts cmd in the namespaces. It is killed when this process ends.
func (s *space) start(cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL // of the thread, which is that of the namespace
	return s.do(cmd.Start)
}

// ip runs lines of `ip -batch` in the namespace.
func (s *space) ip(lines ...string) error {
	path, err := tool("ip")
	if err != nil {
		return err
	}
	var out bytes.Buffer
	cmd := exec.Command(path, "-batch", "-")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(strings.Join(lines, "\n")+"\n"), &out, &out
	if err = s.start(cmd); err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		return fmt.Errorf("l4: ip in %s: %w: %s", s.name, err, bytes.TrimSpace(out.Bytes()))
	}
	return nil
}

// set writes settings below /proc/sys/net; those that the kernel does not have are
// left out.
func (s *space) set(settings map[string]string) error {
	return s.do(func() error {
		for path, value := range settings {
			err := os.WriteFile(filepath.Join("/proc/sys/net", path), []byte(value), 0o644)
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				return fmt.Errorf("l4: set %s in %s: %w", path, s.name, err)
			}
		}
		return nil
	})
}

// tool finds a program also where a root shell without a login does not look.
func tool(name string) (string, error) {
	for _, path := range []string{name, "/usr/sbin/" + name, "/sbin/" + name} {
		if found, err := exec.LookPath(path); err == nil {
			return found, nil
		}
	}
	return "", fmt.Errorf("l4: the program %s is missing: install iproute2", name)
}

package netns

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// runDir is where iproute2 keeps named namespaces; `ip netns exec NAME …` works for a person who debugs a test.
const runDir = "/run/netns"

var errClosed = errors.New("netns: the topology is closed")

// space is one named network namespace and the thread that lives in it.
//
// Processes are started from that one thread, which lives as long as the space: they ask the kernel to be killed when the thread
// that started them dies, so it must not be a thread that Go may retire earlier.
type space struct {
	name  string
	file  *os.File // holds the namespace, for setns
	inode uint64   // tells which processes are inside

	calls  chan func()
	quit   chan struct{}
	once   sync.Once
	keeper chan struct{} // closed when the thread is gone
}

// openSpace enters an existing named namespace.
func openSpace(name string) (*space, error) {
	path := filepath.Join(runDir, name)
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("netns: open namespace: %w", err)
	}
	inode, err := inodeOf(path)
	if err != nil {
		file.Close()
		return nil, err
	}
	s := &space{
		name:   name,
		file:   file,
		inode:  inode,
		calls:  make(chan func()),
		quit:   make(chan struct{}),
		keeper: make(chan struct{}),
	}
	entered := make(chan error, 1)
	go func() {
		defer close(s.keeper)
		if err := s.inside(func() error { entered <- nil; s.keep(); return nil }); err != nil {
			entered <- err
		}
	}()
	if err := <-entered; err != nil {
		file.Close()
		return nil, err
	}
	return s, nil
}

// keep serves calls until the space closes.
func (s *space) keep() {
	for {
		select {
		case f := <-s.calls:
			f()
		case <-s.quit:
			return
		}
	}
}

// close ends the thread. The namespace lives on under its name and in its processes.
func (s *space) close() {
	s.once.Do(func() {
		close(s.quit)
		<-s.keeper
		s.file.Close()
	})
}

// inside runs f on a fresh thread in the namespace.
func (s *space) inside(f func() error) error {
	return onOwnThread(func() error {
		if err := unix.Setns(int(s.file.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("netns: enter %s: %w", s.name, err)
		}
		return f()
	})
}

// start starts cmd in the namespace. The caller waits for it.
func (s *space) start(cmd *exec.Cmd) error {
	result := make(chan error, 1)
	select {
	case s.calls <- func() { result <- cmd.Start() }:
		return <-result
	case <-s.quit:
		return errClosed
	}
}

// script feeds lines to a program in the namespace (ip -batch, nft -f) and returns what it printed.
func (s *space) script(program, arg, lines string) (string, error) {
	path, err := tool(program)
	if err != nil {
		return "", err
	}
	return runScript(exec.Command(path, arg, "-"), lines, s.start)
}

// ip runs lines of an `ip -batch` in the namespace, up to the first that fails.
func (s *space) ip(lines ...string) error {
	_, err := s.script("ip", "-batch", strings.Join(lines, "\n")+"\n")
	return err
}

// runScript starts cmd with start, feeds it lines and waits for it.
func runScript(cmd *exec.Cmd, lines string, start func(*exec.Cmd) error) (string, error) {
	var out bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(lines), &out, &out
	err := start(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		return out.String(), fmt.Errorf("netns: %s: %w\n%sof:\n%s", strings.Join(cmd.Args, " "), err, out.String(), lines)
	}
	return out.String(), nil
}

// sysctl is one kernel setting of a namespace, by its path under /proc/sys/net.
type sysctl struct{ path, value string }

// set writes kernel settings of the namespace. Settings of a protocol that the kernel does not have are skipped.
func (s *space) set(settings ...sysctl) error {
	return s.inside(func() error {
		for _, setting := range settings {
			err := os.WriteFile(filepath.Join("/proc/sys/net", setting.path), []byte(setting.value), 0o644)
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				return fmt.Errorf("netns: set %s=%s in %s: %w", setting.path, setting.value, s.name, err)
			}
		}
		return nil
	})
}

// inodeOf returns the identity of the namespace behind a path.
func inodeOf(path string) (uint64, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return 0, fmt.Errorf("netns: stat %s: %w", path, err)
	}
	return st.Ino, nil
}

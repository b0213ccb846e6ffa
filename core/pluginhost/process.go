package pluginhost

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// program is what to start, and how.
type program struct {
	path  string // what to execute
	args  []string
	env   []string
	extra []*os.File // descriptors 3 and up

	stdout, stderr *os.File      // nil: /dev/null
	capabilities   *capabilities // nil: those of the agent
	outlives       bool          // do not end it when the agent dies
}

// process is a process that ends by our hand or its own. It is a child, or one
// that an agent before us left behind.
type process struct {
	pid    int
	exited chan struct{} // closed once it is gone, and with it its process group
	status string        // how it ended; valid once exited is closed
	free   chan struct{} // closed when it is released

	fd *os.File // pidfd

	mu   sync.Mutex
	gone bool // pid may mean another process now
}

// start starts p in a session of its own. The goroutine that starts it keeps
// its thread as long as the process lives: the kernel ties both the signal at
// the death of the parent and the capabilities to threads.
func start(p program) (*process, error) {
	type result struct {
		process *process
		err     error
	}
	started := make(chan result)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		cmd, proc, err := p.fork()
		started <- result{proc, err}
		if err == nil {
			proc.reap(cmd)
		}
	}()
	r := <-started
	return r.process, r.err
}

func (p program) fork() (*exec.Cmd, *process, error) {
	if p.capabilities != nil {
		if err := p.capabilities.limitThread(); err != nil {
			return nil, nil, err
		}
	}
	fd := -1
	cmd := &exec.Cmd{
		Path: p.path, Args: p.args, Env: p.env, ExtraFiles: p.extra, Dir: "/",
		SysProcAttr: &syscall.SysProcAttr{Setsid: true, PidFD: &fd},
	}
	if p.stdout != nil {
		cmd.Stdout = p.stdout
	}
	if p.stderr != nil {
		cmd.Stderr = p.stderr
	}
	if !p.outlives {
		// Ends a program that does not care for the pipe. The SDK does, and
		// leaves this signal alone: it ends in order, and sooner than by SIGTERM.
		cmd.SysProcAttr.Pdeathsig = syscall.SIGHUP
	}
	if err := cmd.Start(); err != nil {
		return nil, nil, err
	}
	if fd < 0 {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return nil, nil, errors.New("this kernel gives no pidfd: Linux 5.4 or later is needed")
	}
	return cmd, newProcess(cmd.Process.Pid, fd), nil
}

func newProcess(pid, pidfd int) *process {
	// A descriptor that is not blocking is waited for by the runtime's poller.
	_ = unix.SetNonblock(pidfd, true)
	return &process{pid: pid, fd: os.NewFile(uintptr(pidfd), "pidfd"), exited: make(chan struct{}), free: make(chan struct{})}
}

// find returns the process that has this pid and began at this time, or nil.
func find(pid int, began uint64) *process {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil
	}
	// Asked after the descriptor pins the process: the pid cannot change hands
	// between the two.
	if at, err := beganAt(pid); err != nil || at != began {
		_ = unix.Close(fd)
		return nil
	}
	p := newProcess(pid, fd)
	go p.reap(nil)
	return p
}

// reap waits for the end, ends what is left of the process group, and takes the
// exit status. The group goes first: until the status is taken, the kernel
// gives the number to nobody else.
func (p *process) reap(cmd *exec.Cmd) {
	if !p.wait() {
		return // released
	}
	if cmd == nil {
		// Its parent takes the status, when it likes. Until here the number was
		// not in doubt for signal and kill; from here on it may be.
		p.mu.Lock()
		p.gone = true
		p.mu.Unlock()
		endGroup(p.pid)
	}
	p.mu.Lock()
	p.gone = true
	if cmd != nil {
		_ = unix.Kill(-p.pid, unix.SIGKILL)
		err := cmd.Wait()
		p.status = "exit status 0"
		if err != nil {
			p.status = err.Error()
		}
	} else {
		p.status = "ended"
	}
	p.mu.Unlock()
	_ = p.fd.Close()
	close(p.exited)
}

// endGroup ends what is left of the process group of a process that ended and was
// not our child. As long as it has a member, the kernel gives its number to no
// other process; and each member is pinned before it is looked at, so that a
// signal goes to nobody else.
func endGroup(group int) {
	procs, err := os.ReadDir("/proc")
	if err != nil {
		return
	}
	for _, entry := range procs {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid == group { // the number itself may be another's by now, with a group of its own
			continue
		}
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue
		}
		if of, err := groupOf(pid); err == nil && of == group && !anothers(group) {
			_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
		}
		_ = unix.Close(fd)
	}
}

// anothers reports whether a live process has the number of a group, which then
// is a new one. The old leader is gone or a zombie.
func anothers(group int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", group))
	if err != nil {
		return false
	}
	fields := afterName(string(stat))
	return len(fields) > 0 && fields[0] != "Z" && fields[0] != "X"
}

// groupOf returns the process group of a process.
func groupOf(pid int) (int, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	fields := afterName(string(stat))
	if len(fields) < 3 {
		return 0, fmt.Errorf("not a process status: %.80q", stat)
	}
	return strconv.Atoi(fields[2])
}

// wait returns when the process has ended, false if it was released before.
func (p *process) wait() bool {
	conn, err := p.fd.SyscallConn()
	if err != nil {
		return false
	}
	return conn.Read(func(fd uintptr) bool {
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(poll, 0)
		return err == nil && n == 1
	}) == nil
}

// release stops watching a process that is to live on. It is called once.
func (p *process) release() {
	close(p.free)
	_ = p.fd.Close()
}

// signal sends a signal to the process, not to its group. It does nothing once
// the process has ended.
func (p *process) signal(s syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.gone {
		_ = unix.Kill(p.pid, s)
	}
}

// kill ends the process and its group at once.
func (p *process) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.gone {
		_ = unix.Kill(-p.pid, unix.SIGKILL)
		_ = unix.Kill(p.pid, unix.SIGKILL)
	}
}

// end asks the process to end, and kills it if it does not in time.
func (p *process) end(patience time.Duration) {
	p.signal(syscall.SIGTERM)
	if !p.ended(patience) {
		p.kill()
		<-p.exited
	}
}

// ended waits at most d for the end.
func (p *process) ended(d time.Duration) bool {
	select {
	case <-p.exited:
		return true
	default:
	}
	timer := time.NewTimer(max(d, 0))
	defer timer.Stop()
	select {
	case <-p.exited:
		return true
	case <-timer.C:
		return false
	}
}

// beganAt returns when a process began, in clock ticks since boot. Together
// with the pid and the boot it names one process for ever.
func beganAt(pid int) (uint64, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	return parseBeganAt(string(stat))
}

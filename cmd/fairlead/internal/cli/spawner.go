package cli

import (
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// spawner starts child processes that do not outlive this one, not even its
// kill -9: the kernel then kills them. It ties that to the thread that forked,
// so all are started from one thread that stays.
type spawner struct {
	requests chan spawnRequest
}

type spawnRequest struct {
	do    func() error
	reply chan error
}

// newSpawner returns a spawner whose thread has run prepare: what that changes
// about the thread, such as its network namespace, its children inherit.
func newSpawner(prepare func() error) (*spawner, error) {
	s := &spawner{requests: make(chan spawnRequest)}
	prepared := make(chan error)
	go s.run(prepare, prepared)
	if err := <-prepared; err != nil {
		return nil, err
	}
	return s, nil
}

func (s *spawner) run(prepare func() error, prepared chan<- error) {
	// Never unlocked: the thread ends with the goroutine, and with it
	// whatever child is still there.
	runtime.LockOSThread()
	if unix.Gettid() == unix.Getpid() {
		// The first thread does not end before the process. While this goroutine
		// holds it, another one gets another thread.
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			s.run(prepare, prepared)
		}()
		<-ended
		runtime.UnlockOSThread()
		return
	}
	err := prepare()
	prepared <- err
	if err != nil {
		return
	}
	for r := range s.requests {
		r.reply <- r.do()
	}
}

// do runs f on the thread.
func (s *spawner) do(f func() error) error {
	reply := make(chan error)
	s.requests <- spawnRequest{f, reply}
	return <-reply
}

// start starts cmd in a process group of its own, so that Ctrl-C in a terminal
// reaches only this process, which then stops its children in order.
func (s *spawner) start(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	return s.do(cmd.Start)
}

// close ends the thread; children that still run are killed.
func (s *spawner) close() { close(s.requests) }

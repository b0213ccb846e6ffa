package cli

import (
	"os/exec"
	"runtime"
	"syscall"
)

// spawner starts child processes that do not outlive this one, not even its
// kill -9: the kernel then kills them. It ties that to the thread that forked,
// so all are started from one thread that stays.
type spawner struct {
	requests chan spawnRequest
}

type spawnRequest struct {
	cmd   *exec.Cmd
	reply chan error
}

func newSpawner() *spawner {
	s := &spawner{requests: make(chan spawnRequest)}
	go func() {
		// Never unlocked: the thread ends with the goroutine, and with it
		// whatever child is still there.
		runtime.LockOSThread()
		for r := range s.requests {
			r.reply <- r.cmd.Start()
		}
	}()
	return s
}

// start starts cmd in a process group of its own, so that Ctrl-C in a terminal
// reaches only this process, which then stops its children in order.
func (s *spawner) start(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	reply := make(chan error)
	s.requests <- spawnRequest{cmd, reply}
	return <-reply
}

// close ends the thread; children that still run are killed.
func (s *spawner) close() { close(s.requests) }

package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

const (
	sweepCommandName = "__sweep"
	// sweepPatience is how long the children of a killed process may take to
	// end before they are killed.
	sweepPatience = 5 * time.Second
)

// sweeper is the process that removes what dev and demo made should they be
// killed with SIGKILL: then the pipe to it ends. It also holds the lock of the
// directory, so that nobody begins anew in it before it is empty.
type sweeper struct {
	pipe *os.File
	cmd  *exec.Cmd
}

// startSweeper starts it for a directory. lock may be nil.
func startSweeper(env Env, exe, dir string, lock *os.File) (*sweeper, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make a pipe: %w", err)
	}
	defer read.Close() // the child has its own descriptor
	s := &sweeper{pipe: write, cmd: exec.Command(exe, sweepCommandName, dir)}
	s.cmd.Env = withoutFairlead(env.Environ)
	s.cmd.Dir = "/"
	s.cmd.Stdin = read
	if lock != nil {
		s.cmd.ExtraFiles = []*os.File{lock}
	}
	// A session of its own: neither Ctrl-C nor the end of the terminal reaches it.
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := s.cmd.Start(); err != nil {
		_ = write.Close()
		return nil, fmt.Errorf("start %s %s: %w", exe, sweepCommandName, err)
	}
	return s, nil
}

// watch makes the sweeper wait for the end of a process before it removes.
func (s *sweeper) watch(pid int) {
	if began, err := beganAt(pid); err == nil {
		// One that has ended takes no more names; there is nothing to do about it.
		_, _ = fmt.Fprintf(s.pipe, "%d %s\n", pid, began)
	}
}

// close makes it remove the directory, and waits for that.
func (s *sweeper) close() {
	_ = s.pipe.Close()
	_ = s.cmd.Wait() // whatever it could not do, the caller finds
}

func (a *app) sweepCommand() *cobra.Command {
	return &cobra.Command{
		Use:    sweepCommandName + " DIR",
		Short:  "Remove what `fairlead dev` leaves when it is killed",
		Hidden: true,
		Args:   oneArg("a directory"),
		RunE: func(_ *cobra.Command, args []string) error {
			return sweep(a.env.Stdin, args[0])
		},
	}
}

// sweep reads which processes there are, until their parent ends, and cleans up
// behind them.
func sweep(pids io.Reader, dir string) error {
	began := map[int]string{}
	for lines := bufio.NewScanner(pids); lines.Scan(); {
		var pid int
		var at string
		if n, _ := fmt.Sscan(lines.Text(), &pid, &at); n == 2 {
			began[pid] = at
		}
	}
	deadline := time.Now().Add(sweepPatience)
	for pid, at := range began {
		endProcess(pid, at, time.Until(deadline))
	}
	return removeLocal(dir)
}

// endProcess waits for the end of the process that has this pid and began then,
// and kills it when it takes longer than d.
func endProcess(pid int, began string, d time.Duration) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	// Asked after the descriptor pins the process: the pid cannot change hands
	// between the two.
	if now, err := beganAt(pid); err != nil || now != began {
		return
	}
	wait := func(d time.Duration) bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(max(d, 0).Milliseconds()))
		return n == 1 && err == nil
	}
	if !wait(d) {
		_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
		wait(sweepPatience)
	}
}

// beganAt returns when a process began, in the kernel's count. Together with the
// pid it names one process.
func beganAt(pid int) (string, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", err
	}
	// The name in brackets may hold blanks. The 22nd field is the 20th behind it.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 20 {
		return "", fmt.Errorf("/proc/%d/stat has %d fields behind the name", pid, len(fields))
	}
	return fields[19], nil
}

// removeLocal removes the directory of a local cluster with what belongs to it,
// and nothing that somebody else put there.
func removeLocal(dir string) error {
	errs := []error{removeNodes(dir)}
	// Who still waits for the lock sees that it is gone: sameFile.
	for _, path := range []string{filepath.Join(dir, lockName), dir} {
		if err := os.Remove(path); !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// removeNodes empties it of the nodes, and of their secret.
func removeNodes(dir string) error {
	errs := []error{os.RemoveAll(filepath.Join(dir, secretName))}
	for i := range localNodes {
		errs = append(errs, os.RemoveAll(filepath.Join(dir, nodeName(i))))
	}
	return errors.Join(errs...)
}

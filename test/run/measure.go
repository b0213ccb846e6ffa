package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// measureArg makes this program the wrapper that go test -exec starts instead
// of a test binary: it runs the binary and says what that computed.
const measureArg = "-measure"

// cpuPrefix begins the line that the wrapper adds to the output.
const cpuPrefix = "run: cpu seconds "

// measure runs one test binary and then writes to out how many seconds of CPU
// it took, with those of its children that ended. It returns the exit code.
func measure(args []string, out io.Writer) int {
	if len(args) == 0 {
		fmt.Fprintln(os.Stderr, "run: "+measureArg+" needs a test binary")
		return 2
	}
	// The binary dies with the thread that started it: go test kills only us.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGQUIT, syscall.SIGTERM, os.Interrupt)
	defer signal.Stop(signals)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, "run:", err)
		return 1
	}
	ended := make(chan struct{})
	go func() {
		for {
			select {
			case s := <-signals:
				_ = cmd.Process.Signal(s)
			case <-ended:
				return
			}
		}
	}()
	err := cmd.Wait()
	close(ended)
	cpu := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	fmt.Fprintf(out, "%s%.3f\n", cpuPrefix, cpu.Seconds())
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		fmt.Fprintln(os.Stderr, "run:", err)
		return 1
	}
	if err != nil {
		return max(1, cmd.ProcessState.ExitCode())
	}
	return 0
}

// parseCPU reads the line of the wrapper.
func parseCPU(line string) (cpu time.Duration, ok bool) {
	text, ok := strings.CutPrefix(line, cpuPrefix)
	if !ok {
		return 0, false
	}
	s, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	return time.Duration(s * float64(time.Second)), err == nil
}

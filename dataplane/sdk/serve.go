package sdk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/sdk/handshake"
)

// Serve runs a provider as this process and returns its exit code (see package
// handshake). All that a main has to do:
//
//	func main() { os.Exit(sdk.Serve(New())) }
//
// It sees to the process itself: no_new_privs, signals, writes to a standard
// error that nobody reads, and a standard output on which nothing but the answer
// to the host appears. Then it calls Run.
func Serve(p dataplane.Provider, opts ...Option) int {
	set := newSettings(opts)
	if set.newPrivileges == "" {
		if err := forgoNewPrivileges(); err != nil {
			fmt.Fprintf(os.Stderr, "sdk: %v; going on\n", err)
		}
	}
	// Being notified of SIGPIPE, a write to a standard error whose reader is
	// gone fails instead of ending the process. To ignore the signal would do
	// too, but programs that the provider starts would inherit that.
	pipes := make(chan os.Signal, 1)
	signal.Notify(pipes, syscall.SIGPIPE) // also for what main writes afterwards
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	defer signal.Stop(signals)

	env := Env{
		Args: os.Args[1:], Getenv: os.Getenv, Stdout: os.Stdout, Stderr: boundedStderr(os.Stderr, os.Getenv), Signals: signals, Parent: os.Getppid,
	}
	if os.Getenv(handshake.CookieKey) == handshake.CookieValue && len(env.Args) == 0 {
		out, err := keepStdout()
		if err != nil {
			fmt.Fprintf(os.Stderr, "sdk: %v\n", err)
			return handshake.ExitFailed
		}
		env.Stdout = out
	}
	return Run(context.Background(), p, env, append([]Option{freeMemory()}, opts...)...)
}

// keepStdout returns the standard output, and makes descriptor 1 mean standard
// error from now on: for fmt.Println, for code that is not Go, and for programs
// that the provider starts. None of them can spoil what the host reads.
func keepStdout() (*os.File, error) {
	fd, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(syscall.Stdout), syscall.F_DUPFD_CLOEXEC, 3)
	if errno != 0 {
		return nil, fmt.Errorf("standard output: %w", errno)
	}
	if err := syscall.Dup3(syscall.Stderr, syscall.Stdout, 0); err != nil {
		return nil, errors.Join(fmt.Errorf("standard error: %w", err), syscall.Close(int(fd)))
	}
	return os.NewFile(fd, "stdout"), nil
}

package sdk

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
)

// Numbers of prctl, which syscall does not have.
const (
	prSetNoNewPrivs = 38
	prGetNoNewPrivs = 39
)

// forgoNewPrivileges sets no_new_privs for the whole process: nothing that it
// starts gains rights by its file. The flag belongs to threads; where the Go
// runtime cannot set it on all of them (in programs with cgo), one thread sets
// it and the program is executed anew, which the kernel does with all of it. The
// process stays the same, and so does all that it was given.
func forgoNewPrivileges() error {
	if on, _, _ := syscall.RawSyscall6(syscall.SYS_PRCTL, prGetNoNewPrivs, 0, 0, 0, 0, 0); on == 1 {
		nameAgain()
		return nil
	}
	_, _, errno := syscall.AllThreadsSyscall6(syscall.SYS_PRCTL, prSetNoNewPrivs, 1, 0, 0, 0, 0)
	if errno == 0 {
		return nil
	}
	if !errors.Is(errno, syscall.ENOTSUP) {
		return fmt.Errorf("cannot set no_new_privs: %w", errno)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if _, _, errno := syscall.RawSyscall6(syscall.SYS_PRCTL, prSetNoNewPrivs, 1, 0, 0, 0, 0); errno != 0 {
		return fmt.Errorf("cannot set no_new_privs: %w", errno)
	}
	err := syscall.Exec("/proc/self/exe", os.Args, os.Environ())
	return fmt.Errorf("cannot set no_new_privs on all threads: %w", err)
}

// nameAgain gives the process the name back that it loses when it is executed
// anew: ps, top and the kernel's log would all call it exe. Without it nothing
// but that is lost.
func nameAgain() {
	const comm = "/proc/self/comm"
	if name, err := os.ReadFile(comm); err == nil && string(name) == "exe\n" {
		_ = os.WriteFile(comm, []byte(filepath.Base(os.Args[0])), 0)
	}
}

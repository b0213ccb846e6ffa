// Package netspace runs the tests of a package in a network namespace of their own,
// so that rules, routes and addresses touch nothing else.
package netspace

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
)

// inside marks the process that has the namespace.
const inside = "NFTABLES_TEST_INSIDE"

// Main is for TestMain: it runs the test binary again inside, and returns its exit
// code. Without the right to make a namespace the tests run where they are, and
// Require skips those that would alter it.
func Main(m *testing.M) int {
	if Inside() {
		if err := settle(); err != nil {
			fmt.Fprintln(os.Stderr, "netspace:", err)
			return 1
		}
		return m.Run()
	}
	if os.Geteuid() != 0 {
		return m.Run()
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit) && exit.ExitCode() > 0:
		return exit.ExitCode()
	}
	fmt.Fprintln(os.Stderr, "netspace:", err)
	return 1
}

// Inside reports whether this process has a namespace of its own.
func Inside() bool { return os.Getenv(inside) != "" }

// Require skips a test that needs a namespace where there is none.
func Require(t testing.TB) {
	t.Helper()
	if !Inside() {
		t.Skip("needs root, for a network namespace of its own")
	}
}

// settle brings the loopback device up.
func settle() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(lo)
}

// Scale is what counts of tests are multiplied with: a tenth unless
// FAIRLEAD_TEST_SCALE says another.
func Scale() float64 {
	if s, err := strconv.ParseFloat(os.Getenv("FAIRLEAD_TEST_SCALE"), 64); err == nil && s > 0 {
		return s
	}
	return 0.1
}

// Seed is what a test that draws begins with: FAIRLEAD_TEST_SEED, or a new one in a run
// in full, and else always the same.
func Seed() uint64 {
	if seed, err := strconv.ParseUint(os.Getenv("FAIRLEAD_TEST_SEED"), 10, 64); err == nil {
		return seed
	}
	if Scale() >= 1 {
		return rand.Uint64()
	}
	return 1
}

// N is a count of a test, at least 1.
func N(full int) int { return max(1, int(float64(full)*Scale())) }

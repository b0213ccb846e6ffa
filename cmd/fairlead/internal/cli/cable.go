package cli

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Addresses at the ends of the cable. Nothing else is in its network namespaces,
// so they cannot meet others.
func cableNear() netip.Addr { return netip.AddrFrom4([4]byte{10, 77, 0, 1}) }
func cableFar() netip.Addr  { return netip.AddrFrom4([4]byte{10, 77, 0, 2}) }

// The names of its ends, and their hardware addresses.
const (
	cableNearLink, cableFarLink = "fl-near", "fl-far"
	cableNearMAC, cableFarMAC   = "02:00:00:00:00:01", "02:00:00:00:00:02"
)

// cable leads to a network namespace of its own, and can be cut. It is for a
// process that has a network namespace for itself (isolated): all of it is gone
// with the processes in it, whatever ends them.
type cable struct {
	far *spawner // starts processes behind the cable
}

// layCable makes the namespace and joins it with this one.
func layCable() (*cable, error) {
	far, err := newSpawner(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("make a network namespace: %w", err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	c := &cable{far: far}
	thread := 0
	_ = far.do(func() error { thread = unix.Gettid(); return nil })
	// Neighbours are written down, as a link that is down would answer for them
	// with an error in the end, and packets are to vanish.
	err = ipBatch(func(cmd *exec.Cmd) error { return cmd.Start() },
		"link set lo up",
		fmt.Sprintf("link add %s address %s type veth peer name %s address %s netns %d", cableNearLink, cableNearMAC, cableFarLink, cableFarMAC, thread),
		fmt.Sprintf("addr add %v/24 dev %s", cableNear(), cableNearLink),
		fmt.Sprintf("link set %s up", cableNearLink),
		fmt.Sprintf("neigh replace %v lladdr %s dev %s nud permanent", cableFar(), cableFarMAC, cableNearLink))
	if err == nil {
		err = ipBatch(far.start,
			"link set lo up",
			fmt.Sprintf("addr add %v/24 dev %s", cableFar(), cableFarLink),
			fmt.Sprintf("link set %s up", cableFarLink),
			fmt.Sprintf("neigh replace %v lladdr %s dev %s nud permanent", cableNear(), cableNearMAC, cableFarLink))
	}
	if err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// cut makes packets vanish in both directions.
func (c *cable) cut() error { return ipBatch(c.far.start, "link set "+cableFarLink+" down") }

func (c *cable) close() {
	if c != nil {
		c.far.close()
	}
}

// ipBatch runs lines of `ip -batch`, up to the first that fails.
func ipBatch(start func(*exec.Cmd) error, lines ...string) error {
	path, err := findIP()
	if err != nil {
		return err
	}
	var out strings.Builder
	cmd := exec.Command(path, "-batch", "-")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(strings.Join(lines, "\n")+"\n"), &out, &out
	if err = start(cmd); err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		return fmt.Errorf("ip -batch: %w\n%sof:\n%s", err, out.String(), strings.Join(lines, "\n"))
	}
	return nil
}

// findIP finds the program also where an ordinary user's PATH does not lead.
func findIP() (string, error) {
	if path, err := exec.LookPath("ip"); err == nil {
		return path, nil
	}
	for _, dir := range []string{"/usr/sbin", "/sbin"} {
		if path, err := exec.LookPath(filepath.Join(dir, "ip")); err == nil {
			return path, nil
		}
	}
	return "", errors.New("the program ip is missing: install iproute2")
}

// isolatedFlag tells the copy of this program that it is alone in its network
// namespace.
const isolatedFlag = "isolated"

// runIsolated runs this program with args in a network namespace of its own, for
// an ordinary user in a user namespace too, and returns its exit code. attr is what
// else it is to have.
func runIsolated(ctx context.Context, env Env, attr syscall.SysProcAttr, args ...string) (int, error) {
	exe, err := env.Executable()
	if err != nil {
		return 0, fmt.Errorf("find this program: %w", err)
	}
	s, err := newSpawner(func() error { return nil })
	if err != nil {
		return 0, err
	}
	defer s.close()
	cmd := exec.Command(exe, args...)
	cmd.Env = env.Environ
	cmd.Stdout, cmd.Stderr = env.Stdout, env.Stderr
	attr.Cloneflags |= unix.CLONE_NEWNET
	attr.Pdeathsig, attr.Setpgid = syscall.SIGKILL, true
	if uid, gid := os.Geteuid(), os.Getegid(); uid != 0 {
		attr.Cloneflags |= unix.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: gid, HostID: gid, Size: 1}}
		attr.AmbientCaps = []uintptr{unix.CAP_NET_ADMIN, unix.CAP_SYS_ADMIN}
	}
	cmd.SysProcAttr = &attr
	if err := s.do(cmd.Start); err != nil {
		return 0, fmt.Errorf("this needs a network namespace, and the kernel gives none to user %d (%w): run it as root, or allow user namespaces (sysctl kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns)", os.Geteuid(), err)
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Signal(syscall.SIGTERM) })
	defer stop()
	err = cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return max(1, exit.ExitCode()), nil
	}
	return 0, err
}

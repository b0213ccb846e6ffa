package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// A data plane in the kernel leads every process of a cgroup or a network namespace,
// and auto may choose one. dev and demo then run in a network namespace, a mount
// namespace and a cgroup of their own: nothing is attached to a cgroup that others are in, no address that is led
// there is dialled from here, and all is gone with its processes, whatever ends
// them, but the empty directory of the cgroup. Who made it removes it, or the next one if that
// was killed.

const (
	// cgroupFlag tells the copy of this program that is isolated its cgroup.
	cgroupFlag = "cgroup"
	// devCgroupPrefix begins the name of such a cgroup: fairlead-dev.PID.BEGAN.
	devCgroupPrefix = "fairlead-dev."
	// noCgroup stands in its place where the host has no cgroup v2.
	noCgroup = "none"
	// cgroupPatience is how long the last processes may take to leave.
	cgroupPatience = 2 * sweepPatience
)

// localVIPs are the addresses of the services where a data plane leads them.
func localVIPs() map[string]string {
	return map[string]string{"web": "10.200.0.10", "api": "10.200.0.11"}
}

// wantsKernel reports whether the agents may run a data plane in the kernel: as
// root one of any name but that of the HTTP proxy may be. For an ordinary user auto
// finds none, and a stranger's can do no harm.
func wantsKernel(env Env) bool {
	root := os.Geteuid() == 0
	return slices.ContainsFunc(dataplanes(env), func(name string) bool {
		switch name {
		case "", "off", l7Name:
			return false
		case ebpfName, "iptables", "nftables":
			return true
		}
		return root
	})
}

// runInKernel runs the command of these arguments in a copy of this program that has
// the namespaces and the cgroup for itself. The copy knows by cgroupFlag.
func (a *app) runInKernel(ctx context.Context, command string, args ...string) error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("%s: %s=%s alters a kernel: run it as root (sudo -E fairlead %[1]s), or leave the variable out", command, dataplaneVariable, a.env.getenv(dataplaneVariable))
	}
	attr := syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS}
	dir, err := makeCgroup()
	switch {
	case err == nil:
		defer removeCgroup(dir)
		cgroup, err := os.Open(dir)
		if err != nil {
			return fmt.Errorf("%s: %w", command, err)
		}
		defer cgroup.Close()
		attr.UseCgroupFD, attr.CgroupFD = true, int(cgroup.Fd())
	case errors.Is(err, errNoCgroup2) && !slices.Contains(dataplanes(a.env), ebpfName):
		dir = noCgroup // only ebpf needs one
	default:
		return fmt.Errorf("%s: %w", command, err)
	}
	code, err := runIsolated(ctx, a.env, attr, append([]string{command, "--" + cgroupFlag, dir, "--output", a.output}, args...)...)
	if err != nil {
		return fmt.Errorf("%s: %w", command, err)
	}
	if code != 0 {
		return &exitError{code: code} // it said why
	}
	return nil
}

// makeCgroup makes the cgroup of this process's copy, after it has removed those of
// processes that are gone.
func makeCgroup() (string, error) {
	root, err := cgroup2Root()
	if err != nil {
		return "", err
	}
	removeDeadCgroups(root)
	began, err := beganAt(os.Getpid())
	if err != nil {
		return "", err
	}
	dir := filepath.Join(root, fmt.Sprintf("%s%d.%s", devCgroupPrefix, os.Getpid(), began))
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", fmt.Errorf("make a cgroup: %w", err)
	}
	return dir, nil
}

// settle prepares the namespaces from inside.
func settle() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("keep mounts to this process: %w", err)
	}
	// What is pinned here goes with the last process that sees it. A kernel that has no
	// such file system has nothing to pin, either.
	err := unix.Mount("bpf", "/sys/fs/bpf", "bpf", 0, "mode=0700")
	if err != nil && !errors.Is(err, unix.ENODEV) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("mount a BPF file system at /sys/fs/bpf: %w", err)
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("make a socket: %w", err)
	}
	defer unix.Close(fd)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo); err != nil {
		return fmt.Errorf("raise loopback: %w", err)
	}
	return nil
}

var errNoCgroup2 = errors.New("no cgroup v2 hierarchy is mounted: `mount -t cgroup2 none /sys/fs/cgroup/unified`")

// cgroup2Root is where the whole cgroup v2 hierarchy is mounted, also on hosts
// that have version 1 beside it.
func cgroup2Root() (string, error) {
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(table)) {
		before, after, _ := strings.Cut(line, " - ")
		if fields := strings.Fields(before); len(fields) > 4 && strings.HasPrefix(after, "cgroup2 ") && fields[3] == "/" {
			return fields[4], nil
		}
	}
	return "", errNoCgroup2
}

// removeDeadCgroups removes those of devs that were killed.
func removeDeadCgroups(root string) {
	entries, _ := os.ReadDir(root)
	for _, e := range entries {
		rest, ours := strings.CutPrefix(e.Name(), devCgroupPrefix)
		text, began, _ := strings.Cut(rest, ".")
		pid, err := strconv.Atoi(text)
		if !ours || err != nil {
			continue
		}
		if now, err := beganAt(pid); err != nil || now != began {
			removeCgroup(filepath.Join(root, e.Name()))
		}
	}
}

// removeCgroup waits for the processes of a cgroup, kills them when they take too
// long, and removes it.
func removeCgroup(dir string) {
	for _, last := range []bool{false, true} {
		for deadline := time.Now().Add(cgroupPatience); ; {
			err := unix.Rmdir(dir)
			if !errors.Is(err, unix.EBUSY) {
				return
			}
			if time.Now().After(deadline) {
				break
			}
			_, _ = unix.Poll(nil, 20)
		}
		if !last {
			_ = os.WriteFile(filepath.Join(dir, "cgroup.kill"), []byte("1"), 0o644) // since 5.14
		}
	}
}

func (a *app) devExecCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "exec COMMAND [ARG…]",
		Short: "Run a command where the VIPs of `fairlead dev` lead",
		Long: `Run a command in the network namespace and the cgroup of "fairlead dev", where
its data plane leads connections. That is for a dev that has them for itself: one
that was started as root with ebpf, iptables, nftables or auto in FAIRLEAD_DATAPLANE.`,
		Example: "  sudo fairlead dev exec curl http://10.200.0.10/",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef(cmd, "%s needs a command to run, such as curl http://%s/", cmd.CommandPath(), localVIPs()["web"])
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			code, err := a.devExec(args)
			if err != nil {
				return fmt.Errorf("dev exec: %w", err)
			}
			if code != 0 {
				return &exitError{code: code}
			}
			return nil
		},
	}
	cmd.Flags().SetInterspersed(false) // the command's flags are its own
	return cmd
}

// devExec runs a command beside the first agent of dev and returns its exit code.
func (a *app) devExec(args []string) (int, error) {
	socket := devSocket(devDir(a.env))
	pid, err := servedBy(socket)
	if err != nil {
		return 0, fmt.Errorf("no `fairlead dev` of this user runs: %w", err)
	}
	space, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		return 0, err
	}
	defer space.Close()
	if here, err := os.Stat("/proc/self/ns/net"); err == nil {
		if there, err := space.Stat(); err == nil && os.SameFile(here, there) {
			return 0, fmt.Errorf("dev has no network namespace for itself: run the command as it is, or start dev as root with %s=ebpf,l7", dataplaneVariable)
		}
	}
	attr := &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cgroup, err := openCgroup(pid)
	switch {
	case err == nil:
		defer cgroup.Close()
		attr.UseCgroupFD, attr.CgroupFD = true, int(cgroup.Fd())
	case !errors.Is(err, errNoCgroup2): // then no data plane needs it
		return 0, err
	}
	s, err := newSpawner(func() error { return unix.Setns(int(space.Fd()), unix.CLONE_NEWNET) })
	if err != nil {
		return 0, fmt.Errorf("enter the network namespace of process %d: %w", pid, err)
	}
	defer s.close()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = a.env.Environ, a.env.Stdin, a.env.Stdout, a.env.Stderr
	cmd.SysProcAttr = attr
	if err := s.do(cmd.Start); err != nil {
		return 0, err
	}
	err = cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return max(1, exit.ExitCode()), nil
	}
	return 0, err
}

// servedBy is the process that listens at a socket.
func servedBy(socket string) (int, error) {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0, err
	}
	var peer *unix.Ucred
	var asked error
	if err := raw.Control(func(fd uintptr) { peer, asked = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return 0, err
	}
	if asked != nil {
		return 0, fmt.Errorf("who listens at %s: %w", socket, asked)
	}
	return int(peer.Pid), nil
}

// openCgroup opens the directory of a process's cgroup.
func openCgroup(pid int) (*os.File, error) {
	root, err := cgroup2Root()
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		if path, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::"); ok {
			return os.Open(filepath.Join(root, path))
		}
	}
	return nil, fmt.Errorf("process %d is in no cgroup of version 2", pid)
}

package ebpf

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/plugins/ebpf/internal/datapath"
	"github.com/fairlead/fairlead/plugins/ebpf/internal/host"
	"github.com/fairlead/fairlead/plugins/ebpf/internal/reaper"
)

// trial is one thing to test. What comes after a required one that failed is not
// tried: it would fail for the same reason.
type trial struct {
	id       string
	required bool
	try      func() error
	good     string // what it means that it works
	remedy   string
	rights   []host.Right // without which it is forbidden
	// What to do where it is forbidden though no right is lacking; "": see forbidden.
	allow string
}

const (
	newer = "use a newer kernel, or another data plane"
	// forbidden is for what root may not do either.
	forbidden = "something else than rights forbids it: allow bpf(2) in the seccomp profile of the container, run in the first user namespace, and turn kernel lockdown off"
	// guess is what the library adds to each refusal; whether it is so is known here.
	guess = " (MEMLOCK may be too low, consider rlimit.RemoveMemlock)"
	lift  = "raise the limit of locked memory: `ulimit -l unlimited`, or LimitMEMLOCK=infinity in the unit"
	// outside is for processes that are in no cgroup that they see.
	outside = "start the agent where it sees its own cgroup: on WSL2 as a service of systemd (`systemctl start fairlead`), since sessions begin beside the tree that begins at systemd's init.scope; " +
		"in a container in the host's cgroup namespace (--cgroupns=host), and where the hierarchy is mounted with nsdelegate, not by entering the namespace from outside (nsenter)"
)

// Probe tries what the provider does, on objects that nobody else sees, and gives
// them up. To see a hook fire, a program that only counts is attached to this
// process's own cgroup for the time of one connect.
func (p *Provider) Probe(context.Context) (dataplane.Report, error) {
	datapath.RaiseLocked()
	report := dataplane.Report{Verdict: dataplane.Supported}
	for _, t := range trials() {
		c := t.check()
		report.Verdict = max(report.Verdict, c.Result)
		report.Checks = append(report.Checks, c)
		if c.Result == dataplane.Unsupported {
			break
		}
	}
	return report, nil
}

// check tries, and says what came of it.
func (t trial) check() dataplane.Check {
	c := dataplane.Check{ID: t.id, Required: t.required, Result: dataplane.Supported, Reason: t.good}
	err := datapath.Unlocked(t.try())
	if err == nil {
		return c
	}
	c.Result, c.Remedy = dataplane.Unsupported, t.solve(err)
	c.Reason = strings.ReplaceAll(err.Error(), guess, "")
	if !t.required {
		c.Result = dataplane.Degraded
	}
	return c
}

// solve says what to do about an error.
func (t trial) solve(err error) string {
	lacking := host.Lacking(t.rights...)
	switch {
	case errors.Is(err, host.ErrOutside):
		return outside
	case errors.Is(err, syscall.ENOSYS):
		return t.remedy
	case len(lacking) > 0: // whatever the kernel calls it
		names := make([]string, len(lacking))
		for i, r := range lacking {
			names[i] = r.String()
		}
		return "run the agent as root, or give it " + strings.Join(names, " and ")
	case errors.Is(err, datapath.ErrLocked):
		return lift
	case !datapath.Forbidden(err):
		return t.remedy
	case t.allow != "":
		return t.allow
	}
	return forbidden
}

func trials() []trial {
	making := []host.Right{host.Programs}
	attaching := []host.Right{host.Programs, host.Hooks}
	all := append(attaching, host.Tracing)
	list := []trial{
		{
			id: "bpf-syscall", required: true, try: datapath.TryMap, rights: all,
			good:   "maps can be made",
			remedy: newer + "; CONFIG_BPF_SYSCALL has to be on, and a container's seccomp profile has to let bpf(2) through",
		},
		{id: "memlock", required: true, try: datapath.TryLarge, rights: making, good: "a map of 1 MiB can be made", remedy: lift},
		{
			id: "cgroup2-root", required: true, try: findCgroup2,
			good:   "the cgroup v2 hierarchy is mounted, and this process is in what is seen of it",
			remedy: "mount it: `mkdir -p /sys/fs/cgroup/unified && mount -t cgroup2 none /sys/fs/cgroup/unified`",
		},
		{id: "cgroup2-whole", try: seeWhole, good: "all processes of the host can be led", remedy: "run the agent in the host's cgroup namespace (containers: --cgroupns=host, with /sys/fs/cgroup of the host); or leave it so if its own processes are all that are to be led"},
		{
			id: "bpffs", required: true, try: findBPFFS, rights: []host.Right{host.Mounting},
			good:   "a BPF file system is at " + host.DefaultBPFFS + ", or can be",
			remedy: "mount one that can be written: `mount -t bpf bpf " + host.DefaultBPFFS + "` (containers: bind it, read-write)",
			allow:  "mount one before the agent starts: `mount -t bpf bpf " + host.DefaultBPFFS + "`, of mode 0700 and the agent's user",
		},
		{id: "mapped-arrays", required: true, try: datapath.TryMemory, rights: making, good: "arrays can be mapped, and graces waited for", remedy: newer + " (5.5 or later)"},
	}
	for _, h := range datapath.Hooks() {
		list = append(list, trial{
			id: "hook-" + h.Name, required: true, try: h.CanLoad, rights: attaching,
			good: "the kernel has it", remedy: newer + " (5.8 or later with CONFIG_CGROUP_BPF and CONFIG_IPV6)",
		})
	}
	// Whoever attached it does not want others: not ours to remove.
	const alone = "a program is attached there, or above, that lets no other run beside it: find it with `bpftool cgroup tree`, and let its owner attach it with BPF_F_ALLOW_MULTI"
	return append(
		list,
		trial{id: "programs", required: true, try: datapath.TryPrograms, rights: all, good: "the verifier takes all programs", remedy: newer},
		trial{
			id: "cgroup-links", required: true, try: atOwnCgroup(datapath.TryLink), rights: attaching, allow: alone,
			good: "programs can be attached by links", remedy: newer + " (5.7 or later)",
		},
		trial{
			id: "hook-fires", required: true, try: atOwnCgroup(datapath.TryHook), rights: attaching, allow: alone,
			good:   "a connect of this process was seen at its cgroup",
			remedy: "before Linux 5.14 a process in a cgroup of net_cls or net_prio (version 1) hides its sockets: take it out of them, or boot with cgroup_no_v1=net_cls,net_prio",
		},
		trial{
			id: "errno", try: tryRetval, rights: attaching,
			good: "a refused connection says ECONNREFUSED", remedy: "refusals show as EPERM: use kernel 5.18 or later",
		},
		trial{
			id: "btf", try: datapath.HasBTF,
			good:   "the kernel describes its types",
			remedy: "connections to endpoints that are gone are ended one by one: use a kernel with CONFIG_DEBUG_INFO_BTF",
		},
		trial{
			id: "socket-destroy", try: tryReaper, rights: []host.Right{host.Programs, host.Hooks, host.Tracing, host.Mounting},
			good:   "connections to endpoints that are gone can be ended",
			remedy: "they end by themselves only: use a kernel with CONFIG_INET_DIAG_DESTROY, or 6.5 or later",
		},
	)
}

var errPart = errors.New("it is a part of the cgroup v2 hierarchy, as in a container: only the processes of that part can be led")

func findCgroup2() error {
	mounts, err := host.Mounts()
	if err != nil {
		return err
	}
	_, err = host.OwnDir(mounts)
	return err
}

// seeWhole fails in a cgroup namespace with nothing but its own cgroups mounted.
func seeWhole() error {
	mounts, err := host.Mounts()
	if err != nil {
		return err
	}
	root, err := host.Cgroup2(mounts)
	if err != nil {
		return err
	}
	part, err := host.IsPart(root)
	if part {
		return fmt.Errorf("%s: %w", root, errPart)
	}
	return err
}

// findBPFFS tries a directory in the file system, or, where none is, to make one.
func findBPFFS() error {
	if !host.IsBPFFS(host.DefaultBPFFS) {
		if err := host.CanMountBPFFS(); err != nil {
			return fmt.Errorf("no BPF file system at %s, and none can be made: %w", host.DefaultBPFFS, err)
		}
		return nil
	}
	dir, err := os.MkdirTemp(host.DefaultBPFFS, "fairlead-probe-")
	if err != nil {
		return fmt.Errorf("the BPF file system at %s: %w", host.DefaultBPFFS, err)
	}
	return os.Remove(dir)
}

// atOwnCgroup tries at the cgroup of this process, which is in whatever tree is led.
func atOwnCgroup(try func(string) error) func() error {
	return func() error {
		mounts, err := host.Mounts()
		if err != nil {
			return err
		}
		own, err := host.OwnDir(mounts)
		if err != nil {
			return err
		}
		return try(own)
	}
}

var errNoRetval = errors.New("this kernel does not let a program choose the error of a refused connection")

func tryRetval() error {
	if !datapath.HasRetval() {
		return errNoRetval
	}
	return nil
}

func tryReaper() error {
	sockets, err := datapath.NewSockets()
	if err != nil {
		return err
	}
	defer sockets.Close()
	r, err := reaper.New(sockets)
	if err != nil {
		return err
	}
	r.Close()
	return nil
}

package ebpf

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/plugins/ebpf/internal/datapath"
	"github.com/fairlead/fairlead/plugins/ebpf/internal/host"
	"github.com/fairlead/fairlead/plugins/ebpf/internal/reaper"
)

// rights is the remedy for a lack of them.
const rights = "run the agent as root, or give it CAP_BPF, CAP_NET_ADMIN and CAP_SYS_ADMIN"

// trial is one thing to test. What comes after a required one that failed is not
// tried: it would fail for the same reason.
type trial struct {
	id       string
	required bool
	try      func() error
	good     string // what it means that it works
	remedy   string
}

// Probe tries what the provider does, on objects that nobody else sees, and gives
// them up. To see a hook fire, a program that only counts is attached to this
// process's own cgroup for the time of one connect.
func (p *Provider) Probe(context.Context) (dataplane.Report, error) {
	datapath.RaiseLocked()
	report := dataplane.Report{Verdict: dataplane.Supported}
	for _, t := range p.trials() {
		c := dataplane.Check{ID: t.id, Required: t.required, Result: dataplane.Supported, Reason: t.good}
		if err := t.try(); err != nil {
			c.Result, c.Reason, c.Remedy = dataplane.Unsupported, err.Error(), t.remedy
			if datapath.Forbidden(err) {
				c.Remedy = rights
			}
			if !t.required {
				c.Result = dataplane.Degraded
			}
			report.Verdict = max(report.Verdict, c.Result)
		}
		report.Checks = append(report.Checks, c)
		if c.Result == dataplane.Unsupported {
			break
		}
	}
	return report, nil
}

func (p *Provider) trials() []trial {
	const newer = "use a newer kernel, or another data plane"
	list := []trial{
		{"bpf-syscall", true, datapath.TryMap, "maps can be made", newer + "; CONFIG_BPF_SYSCALL has to be on"},
		{"memlock", true, datapath.TryLarge, "a map of 1 MiB can be made", "raise the limit of locked memory: `ulimit -l unlimited`, or LimitMEMLOCK=infinity in the unit"},
		{"cgroup2-root", true, findCgroup2, "the cgroup v2 hierarchy is mounted", "mount it: `mkdir -p /sys/fs/cgroup/unified && mount -t cgroup2 none /sys/fs/cgroup/unified`"},
		{"bpffs", true, findBPFFS, "a BPF file system is at " + host.DefaultBPFFS + ", or can be", "`mount -t bpf bpf " + host.DefaultBPFFS + "`"},
		{"mapped-arrays", true, datapath.TryMemory, "arrays can be mapped, and graces waited for", newer + " (5.5 or later)"},
	}
	for _, h := range datapath.Hooks() {
		list = append(list, trial{"hook-" + h.Name, true, h.CanLoad, "the kernel has it", newer + " (5.8 or later with CONFIG_CGROUP_BPF and CONFIG_IPV6)"})
	}
	return append(
		list,
		trial{"programs", true, datapath.TryPrograms, "the verifier takes all programs", newer},
		trial{
			"hook-fires", true, p.tryHook, "a connect of this process was seen at its cgroup",
			"a process in a cgroup v1 hierarchy with net_cls or net_prio, or a foreign program that lets no other run beside it, hides sockets: see the README",
		},
		trial{"errno", false, tryRetval, "a refused connection says ECONNREFUSED", "refusals show as EPERM: use kernel 5.18 or later"},
		trial{"btf", false, datapath.HasBTF, "the kernel describes its types", "connections to endpoints that are gone are ended one by one: use a kernel with CONFIG_DEBUG_INFO_BTF"},
		trial{"socket-destroy", false, tryReaper, "connections to endpoints that are gone can be ended", "they end by themselves only: use a kernel with CONFIG_INET_DIAG_DESTROY, or 6.5 or later"},
	)
}

func findCgroup2() error {
	mounts, err := host.Mounts()
	if err != nil {
		return err
	}
	_, err = host.Cgroup2(mounts)
	return err
}

func findBPFFS() error {
	if host.IsBPFFS(host.DefaultBPFFS) {
		return nil
	}
	if err := host.CanMountBPFFS(); err != nil {
		return fmt.Errorf("no BPF file system at %s, and none can be made: %w", host.DefaultBPFFS, err)
	}
	return nil
}

// tryHook tries at the cgroup of this process, which is in whatever tree is led.
func (p *Provider) tryHook() error {
	mounts, err := host.Mounts()
	if err != nil {
		return err
	}
	root, err := host.Cgroup2(mounts)
	if err != nil {
		return err
	}
	own, err := host.OwnCgroup()
	if err != nil {
		return err
	}
	return datapath.TryHook(filepath.Join(root, own))
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

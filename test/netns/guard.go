package netns

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// socketHooks are the places at which Fairlead's data plane attaches programs, which have these names.
func socketHooks() map[string]ebpf.AttachType {
	return map[string]ebpf.AttachType{
		"connect4": ebpf.AttachCGroupInet4Connect, "connect6": ebpf.AttachCGroupInet6Connect,
		"sendmsg4": ebpf.AttachCGroupUDP4Sendmsg, "sendmsg6": ebpf.AttachCGroupUDP6Sendmsg,
		"recvmsg4": ebpf.AttachCGroupUDP4Recvmsg, "recvmsg6": ebpf.AttachCGroupUDP6Recvmsg,
		"getpeername4": ebpf.AttachCgroupInet4GetPeername, "getpeername6": ebpf.AttachCgroupInet6GetPeername,
	}
}

// RootIsFree is for the end of TestMain of packages that start agents: it is an error if a program of Fairlead is attached at the
// root of the machine's cgroup hierarchy. There it leads every process of the machine, while tests attach to cgroups of their own
// only. It looks at the kernel, so it also finds what is left of processes that are gone. An ordinary user can attach nothing: nil.
func RootIsFree() error {
	if os.Geteuid() != 0 {
		return nil
	}
	root, err := cgroupRoot()
	if errors.Is(err, errNoCgroups) {
		return nil
	}
	if err != nil {
		return err
	}
	at, err := attachedAt(root)
	if err == nil && len(at) > 0 {
		err = fmt.Errorf("netns: these programs are attached at %s and lead all processes of this machine: %s; an agent ran with a data plane that it must not have in a test; they are pinned below /sys/fs/bpf/fairlead", root, strings.Join(at, ", "))
	}
	return err
}

// attachedAt names the programs of Fairlead that are attached at a cgroup.
func attachedAt(dir string) ([]string, error) {
	cgroup, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("netns: %w", err)
	}
	defer cgroup.Close()
	var found []string
	for name, hook := range socketHooks() {
		r, err := link.QueryPrograms(link.QueryOptions{Target: int(cgroup.Fd()), Attach: hook})
		if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EINVAL) || errors.Is(err, ebpf.ErrNotSupported) {
			return nil, nil // a machine that shows none lets none be attached, either
		}
		if err != nil {
			return nil, fmt.Errorf("netns: programs at %s of %s: %w", name, dir, err)
		}
		for _, attached := range r.Programs {
			p, err := ebpf.NewProgramFromID(attached.ID)
			if errors.Is(err, os.ErrNotExist) {
				continue // it went meanwhile
			}
			if err != nil {
				return nil, fmt.Errorf("netns: program %d at %s of %s: %w", attached.ID, name, dir, err)
			}
			info, err := p.Info()
			_ = p.Close()
			if err != nil {
				return nil, fmt.Errorf("netns: program %d: %w", attached.ID, err)
			}
			if info.Name == name {
				found = append(found, fmt.Sprintf("%s (program %d)", name, attached.ID))
			}
		}
	}
	return found, nil
}

package ebpf

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/fairlead/fairlead/dataplane/conformance/l4"
	"github.com/fairlead/fairlead/plugins/ebpf/internal/datapath"
	"github.com/fairlead/fairlead/test/netns"
	"github.com/fairlead/fairlead/test/scale"
)

// TestTraffic asks the provider, as a process, what becomes of connections and
// datagrams.
func TestTraffic(t *testing.T) {
	cgroup := netns.Isolated(t)
	pin := func(h l4.Host) string {
		return filepath.Join(datapath.Root("/sys/fs/bpf", h.InstanceID), "links", "connect4")
	}
	l4.Test(t, l4.Target{Exec: build(t)}, l4.Profile{
		Limit:   &l4.Limit{Config: []byte(`{"max_frontends": 8}`), Services: 20, Fit: 7},
		Foreign: func(h l4.Host) (func() error, error) { return attachForeign(t, h.Cgroup) },
		Damage: map[string]func(l4.Host) error{
			"a link detached": func(h l4.Host) error {
				l, err := link.LoadPinnedLink(pin(h), nil)
				if err != nil {
					return err
				}
				return errors.Join(l.(interface{ Detach() error }).Detach(), l.Close())
			},
			"a link unpinned":  func(h l4.Host) error { return os.Remove(pin(h)) },
			"all pins removed": func(h l4.Host) error { return os.RemoveAll(datapath.Root("/sys/fs/bpf", h.InstanceID)) },
		},
	}, l4.Options{Config: []byte(`{"check_interval": "1s"}`), Scale: scale.Factor()})
	entries, err := os.ReadDir(cgroup)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() {
			t.Errorf("the suite left the cgroup %s", e.Name())
		}
	}
}

// attachForeign attaches a program of somebody else at connect4, and says how to
// ask whether it is there.
func attachForeign(t *testing.T, cgroup string) (func() error, error) {
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.CGroupSockAddr, AttachType: ebpf.AttachCGroupInet4Connect, License: "MIT",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 1), asm.Return()},
	})
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { p.Close() })
	l, err := link.AttachCgroup(link.CgroupOptions{Path: cgroup, Attach: ebpf.AttachCGroupInet4Connect, Program: p})
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { l.Close() })
	info, err := p.Info()
	if err != nil {
		return nil, err
	}
	id, _ := info.ID()
	return func() error {
		dir, err := os.Open(cgroup)
		if err != nil {
			return err
		}
		defer dir.Close()
		r, err := link.QueryPrograms(link.QueryOptions{Target: int(dir.Fd()), Attach: ebpf.AttachCGroupInet4Connect})
		if err != nil {
			return err
		}
		for _, attached := range r.Programs {
			if attached.ID == id {
				return nil
			}
		}
		return fmt.Errorf("program %d is gone from %s; there are %v", id, cgroup, r.Programs)
	}, nil
}

package netns

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
)

// A program at a cgroup is found if it has the name and the place of one of ours.
func TestAttachedAt(t *testing.T) {
	Require(t)
	root, err := cgroupRoot()
	if errors.Is(err, errNoCgroups) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp(root, "fairlead-guard.")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { removeCgroup(dir) })
	attach := func(name string, hook ebpf.AttachType) {
		t.Helper()
		p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
			Name: name, Type: ebpf.CGroupSockAddr, AttachType: hook, License: "MIT",
			Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 1), asm.Return()},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { p.Close() })
		l, err := link.AttachCgroup(link.CgroupOptions{Path: dir, Attach: hook, Program: p})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
	}
	attach("foreign", ebpf.AttachCGroupInet4Connect)
	if found, err := attachedAt(dir); err != nil || len(found) != 0 {
		t.Fatalf("a foreign program: %v, %v", found, err)
	}
	for name, hook := range socketHooks() {
		attach(name, hook)
	}
	if found, err := attachedAt(dir); err != nil || len(found) != len(socketHooks()) {
		t.Errorf("found %v, %v", found, err)
	}
	if err := RootIsFree(); err != nil {
		t.Error(err)
	}
	if _, err := attachedAt(filepath.Join(dir, "none")); err == nil {
		t.Error("a cgroup that is not there has programs")
	}
}

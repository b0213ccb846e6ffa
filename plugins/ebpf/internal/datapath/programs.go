package datapath

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/fairlead/fairlead/bpf"
)

// Hook is a place at which the kernel asks a program about a socket's address.
type Hook struct {
	Name   string // of the program and of the link's pin
	Attach ebpf.AttachType
}

// Hooks lists all of them in the order in which they are attached and replaced:
// what shows a frontend comes before what leads away from it. They are removed in
// the opposite order.
func Hooks() []Hook {
	return []Hook{
		{bpf.SocketProgGetpeername4, ebpf.AttachCgroupInet4GetPeername},
		{bpf.SocketProgGetpeername6, ebpf.AttachCgroupInet6GetPeername},
		{bpf.SocketProgRecvmsg4, ebpf.AttachCGroupUDP4Recvmsg},
		{bpf.SocketProgRecvmsg6, ebpf.AttachCGroupUDP6Recvmsg},
		{bpf.SocketProgSendmsg4, ebpf.AttachCGroupUDP4Sendmsg},
		{bpf.SocketProgSendmsg6, ebpf.AttachCGroupUDP6Sendmsg},
		{bpf.SocketProgConnect4, ebpf.AttachCGroupInet4Connect},
		{bpf.SocketProgConnect6, ebpf.AttachCGroupInet6Connect},
	}
}

// HasRetval reports whether a program may choose the errno of a refusal.
func HasRetval() bool {
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.CGroupSockAddr, AttachType: ebpf.AttachCGroupInet4Connect, License: "Dual MIT/GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R1, -1), asm.FnSetRetval.Call(), asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
	if err != nil {
		return false
	}
	_ = p.Close()
	return true
}

// CanLoad lets the kernel judge a program for a hook that does nothing.
func (h Hook) CanLoad() error {
	p, err := ebpf.NewProgram(nothing(h.Attach))
	if err != nil {
		return err
	}
	return p.Close()
}

// nothing is a program that lets all pass.
func nothing(hook ebpf.AttachType) *ebpf.ProgramSpec {
	return &ebpf.ProgramSpec{
		Type: ebpf.CGroupSockAddr, AttachType: hook, License: "Dual MIT/GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 1), asm.Return()},
	}
}

// programs are loaded programs by the name of their hook.
type programs map[string]*ebpf.Program

// loadPrograms loads programs that use these maps.
func loadPrograms(home uint64, maps ...map[string]*ebpf.Map) (programs, error) {
	spec, err := bpf.LoadSocket()
	if err != nil {
		return nil, err
	}
	for name, value := range map[string]any{bpf.SocketVarHome: home, bpf.SocketVarHasRetval: HasRetval()} {
		if err := spec.Variables[name].Set(value); err != nil {
			return nil, fmt.Errorf("constant %s: %w", name, err)
		}
	}
	for name, index := range map[string]string{bpf.SocketVarMask4: bpf.SocketMapFrontends4, bpf.SocketVarMask6: bpf.SocketMapFrontends6} {
		for _, some := range maps {
			if m := some[index]; m != nil {
				if err := spec.Variables[name].Set(m.MaxEntries() - 1); err != nil {
					return nil, fmt.Errorf("constant %s: %w", name, err)
				}
			}
		}
	}
	replace := make(map[string]*ebpf.Map)
	for _, some := range maps {
		for name, m := range some {
			replace[name] = m
			spec.Maps[name].MaxEntries = m.MaxEntries()
		}
	}
	c, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: replace})
	if err != nil {
		return nil, fmt.Errorf("programs: %w", Unlocked(err))
	}
	defer c.Close()
	out := make(programs)
	for _, h := range Hooks() {
		out[h.Name] = c.DetachProgram(h.Name)
	}
	return out, nil
}

func (p programs) close() {
	for _, one := range p {
		_ = one.Close()
	}
}

// ErrLocked explains a refusal that looks like a lack of rights.
var ErrLocked = errors.New("the memory that this process may lock is too little (ulimit -l)")

// Unlocked adds to a refusal for lack of rights what old kernels mean by it.
func Unlocked(err error) error {
	if errors.Is(err, ebpf.ErrNotSupported) || !errors.Is(err, errPermission) || enoughLocked() {
		return err
	}
	return fmt.Errorf("%w: %w", err, ErrLocked)
}

package datapath

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/plugins/ebpf/internal/layout"
)

// smallest is the size of maps that are made to see whether they can be.
func smallest() layout.Size {
	return layout.Size{Frontends: [layout.Families]uint32{1, 1}, Services: 1, Slots: [layout.Families]uint32{1, 1}}
}

// TryMap makes the smallest map there is: whether bpf(2) is there and allowed.
func TryMap() error {
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err != nil {
		return err
	}
	return m.Close()
}

// TryLarge makes a map that takes more memory than old kernels let a process lock
// by default.
func TryLarge() error {
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4096, MaxEntries: 256})
	if err != nil {
		return Unlocked(err)
	}
	return m.Close()
}

// TryPrograms loads all programs on maps of their own, and gives them up.
func TryPrograms() error {
	spec, err := bpf.LoadSocket()
	if err != nil {
		return err
	}
	sized(spec, smallest())
	if err := spec.Variables[bpf.SocketVarHasRetval].Set(HasRetval()); err != nil {
		return err
	}
	c, err := ebpf.NewCollection(spec)
	if err != nil {
		return Unlocked(err)
	}
	c.Close()
	return nil
}

// TryMemory maps an array into this process, and waits for a grace.
func TryMemory() error {
	maps, err := newMaps(smallest(), nil)
	if err != nil {
		return err
	}
	maps.Close()
	g, err := NewGrace()
	if err != nil {
		return err
	}
	defer g.Close()
	return g.Wait()
}

// TryLink attaches a program that does nothing to a cgroup by a link, which is what
// outlives a process and is replaced in place, and gives it up.
func TryLink(cgroup string) error {
	p, err := ebpf.NewProgram(nothing(ebpf.AttachCGroupInet4Connect))
	if err != nil {
		return err
	}
	defer p.Close()
	l, err := link.AttachCgroup(link.CgroupOptions{Path: cgroup, Attach: ebpf.AttachCGroupInet4Connect, Program: p})
	if err != nil {
		return fmt.Errorf("attach to %s: %w", cgroup, err)
	}
	defer l.Close()
	if _, err := l.Info(); errors.Is(err, ebpf.ErrNotSupported) {
		return fmt.Errorf("links to cgroups: %w", err) // the library attached it in the way of older kernels
	}
	return nil
}

// ErrSilent is wrapped when a hook did not fire.
var ErrSilent = errors.New("the hook did not fire")

// TryHook attaches a program that only counts to a cgroup that this process is in,
// makes a connection to itself, and sees whether it was counted. The link is not
// pinned: it ends with the call, or with the process.
func TryHook(cgroup string) error {
	l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return err
	}
	defer l.Close()
	spec, err := bpf.LoadProbe()
	if err != nil {
		return err
	}
	// The program compares with the port as it is in memory: in network order.
	port := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, uint16(l.Addr().(*net.TCPAddr).Port)))
	if err := spec.Variables[bpf.ProbeVarPort].Set(port); err != nil {
		return err
	}
	c, err := ebpf.NewCollection(spec)
	if err != nil {
		return err
	}
	defer c.Close()
	attached, err := link.AttachCgroup(link.CgroupOptions{
		Path: cgroup, Attach: ebpf.AttachCGroupInet4Connect, Program: c.Programs[bpf.ProbeProgSawConnect4],
	})
	if err != nil {
		return fmt.Errorf("attach to %s: %w", cgroup, err)
	}
	defer attached.Close()
	conn, err := net.DialTimeout("tcp4", l.Addr().String(), time.Second)
	if err != nil {
		return fmt.Errorf("a dial of this process's own listener: %w", err)
	}
	defer conn.Close()
	var seen uint64
	if err := c.Maps[bpf.ProbeMapSeen].Lookup(uint32(0), &seen); err != nil {
		return err
	}
	if seen == 0 {
		return fmt.Errorf("%w at %s for this process", ErrSilent, cgroup)
	}
	return nil
}

// HasBTF reports whether the kernel describes its own types.
func HasBTF() error {
	_, err := os.Stat("/sys/kernel/btf/vmlinux")
	return err
}

// Forbidden reports whether an error is a lack of rights.
func Forbidden(err error) bool { return errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) }

// NewSockets makes the map of socket storage, for a trial.
func NewSockets() (*ebpf.Map, error) {
	spec, err := bpf.LoadSocket()
	if err != nil {
		return nil, err
	}
	return ebpf.NewMap(spec.Maps[bpf.SocketMapSockets])
}

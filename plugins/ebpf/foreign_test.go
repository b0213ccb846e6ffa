package ebpf

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/plugins/ebpf/internal/datapath"
	"github.com/fairlead/fairlead/test/netns"
)

// Flags with which a program is attached to a cgroup (linux/bpf.h).
const (
	alone    = 0
	override = 1 << 0 // BPF_F_ALLOW_OVERRIDE
	multi    = 1 << 1 // BPF_F_ALLOW_MULTI
	preorder = 1 << 6 // BPF_F_PREORDER, since 6.15
)

// passing is a program that lets all pass.
func passing() asm.Instructions { return asm.Instructions{asm.Mov.Imm(asm.R0, 1), asm.Return()} }

// leading is a program that leads connects to one IPv4 address to another.
func leading(from, to netip.Addr) asm.Instructions {
	word := func(a netip.Addr) int32 { return int32(words(a)) }
	const userIP4 = 4 // offset in struct bpf_sock_addr
	return asm.Instructions{
		asm.LoadMem(asm.R2, asm.R1, userIP4, asm.Word),
		asm.Mov.Imm32(asm.R3, word(from)),
		asm.JNE.Reg(asm.R2, asm.R3, "pass"),
		asm.Mov.Imm32(asm.R3, word(to)),
		asm.StoreMem(asm.R1, userIP4, asm.R3, asm.Word),
		asm.Mov.Imm(asm.R0, 1).WithSymbol("pass"),
		asm.Return(),
	}
}

// words is an IPv4 address as programs see it.
func words(a netip.Addr) uint32 {
	b := a.As4()
	return binary.NativeEndian.Uint32(b[:])
}

// stranger attaches a program of somebody else at connect4, in the way of before
// there were links, with flags. It is an error where the kernel refuses.
func stranger(t *testing.T, cgroup string, flags uint32, does asm.Instructions) (*ebpf.Program, error) {
	t.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.CGroupSockAddr, AttachType: ebpf.AttachCGroupInet4Connect, License: "MIT", Instructions: does})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	dir, err := os.Open(cgroup)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dir.Close() })
	at := link.RawAttachProgramOptions{Target: int(dir.Fd()), Program: p, Attach: ebpf.AttachCGroupInet4Connect, Flags: flags}
	if err := link.RawAttachProgram(at); err != nil {
		return nil, err
	}
	t.Cleanup(func() {
		_ = link.RawDetachProgram(link.RawDetachProgramOptions{Target: at.Target, Program: p, Attach: at.Attach})
	})
	return p, nil
}

// hooked counts the programs at each hook of a cgroup.
func hooked(t *testing.T, cgroup string) map[string]int {
	t.Helper()
	dir, err := os.Open(cgroup)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	out := make(map[string]int)
	for _, h := range datapath.Hooks() {
		r, err := link.QueryPrograms(link.QueryOptions{Target: int(dir.Fd()), Attach: h.Attach})
		if err != nil {
			t.Fatal(err)
		}
		out[h.Name] = len(r.Programs)
	}
	return out
}

// each is so many programs at every hook.
func each(n int) map[string]int {
	out := make(map[string]int)
	for _, h := range datapath.Hooks() {
		out[h.Name] = n
	}
	return out
}

// below makes a cgroup in that of the tests.
func below(t *testing.T, name string) string {
	t.Helper()
	dir := filepath.Join(netns.Isolated(t), name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		netns.EventuallyNil(t, patience, func() error {
			if err := os.Remove(dir); !errors.Is(err, os.ErrNotExist) {
				return err
			}
			return nil
		}, "the cgroup to be empty")
	})
	return dir
}

// askFrom asks over TCP from a process in a cgroup.
func askFrom(t *testing.T, cgroup, addr string) (string, error) {
	t.Helper()
	dir, err := os.Open(cgroup)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	host, port, _ := strings.Cut(addr, ":")
	cmd := exec.CommandContext(ctx, "bash", "-c", fmt.Sprintf("exec 3<>/dev/tcp/%s/%s && head -c 1 <&3", host, port))
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, out)
	}
	return string(out), err
}

// TestForeignProgramsOfEachKind: somebody else has a program at the cgroup that is
// led, or above. Where the kernel lets ours run beside it both run; where it does
// not, that is said, with what to do, and nothing is altered.
func TestForeignProgramsOfEachKind(t *testing.T) {
	for _, test := range []struct {
		name    string
		flags   uint32
		above   bool
		refused bool
	}{
		{"alone, here", alone, false, true},
		{"alone, above", alone, true, true},
		{"override, here", override, false, true},
		{"override, above", override, true, false}, // who attached it said that it may be replaced below
		{"multi, here", multi, false, false},
		{"multi, above", multi, true, false},
		{"before others, here", multi | preorder, false, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			outer := below(t, "outer")
			inner := below(t, "outer/inner")
			at := inner
			if test.above {
				at = outer
			}
			if _, err := stranger(t, at, test.flags, passing()); err != nil {
				if test.flags&preorder != 0 && errors.Is(err, unix.EINVAL) {
					t.Skipf("skipped: this kernel lets no program come before others: %v", err)
				}
				t.Fatal(err)
			}
			before := hooked(t, at)
			w := &world{t: t, provider: New("test"), now: &dataplane.Snapshot{}}
			w.config = dataplane.Config{JSON: fmt.Appendf(nil, `{"cgroup": %q}`, inner), InstanceID: "test." + t.Name()}
			t.Cleanup(func() {
				if err := w.provider.Shutdown(t.Context(), dataplane.ShutdownRemove); err != nil {
					t.Error(err)
				}
			})
			w.configure()
			next := snapshot(1, service("a", vip("10.200.8.1:80", dataplane.TCP), listenTCP(t, "127.0.0.1:0", "a")))
			_, err := w.provider.Reconcile(t.Context(), next, dataplane.Diff(w.now, next, nil))
			if !test.refused {
				if got, asked := askFrom(t, inner, "10.200.8.1:80"); err != nil || got != "a" {
					t.Errorf("beside it: %v; %q, %v", err, got, asked)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), "lets no other run beside it") || !strings.Contains(err.Error(), "bpftool cgroup") {
				t.Errorf("beside a program that stands alone: %v", err)
			}
			if now := hooked(t, at); !maps.Equal(now, before) {
				t.Errorf("attached are %v, were %v", now, before)
			}
			if now := hooked(t, inner); test.above && !maps.Equal(now, each(0)) {
				t.Errorf("some of ours are attached: %v", now)
			}
			r := reportFrom(t, inner)
			if c, ok := check(r, "cgroup-links"); r.Verdict != dataplane.Unsupported || !ok || !strings.Contains(c.Remedy, "bpftool cgroup tree") {
				t.Errorf("Probe there: %v, %+v", r.Verdict, c)
			}
		})
	}
}

// reportFrom is what Probe reports in a process in a cgroup.
func reportFrom(t *testing.T, cgroup string) dataplane.Report {
	t.Helper()
	return deprived(t, buildDeprive(t), "-cgroup", cgroup)
}

// TestForeignProgramsBelow: whoever attaches what at a cgroup below, sockets there
// are led all the same, and programs there come first: what they lead to a service
// address is led on.
func TestForeignProgramsBelow(t *testing.T) {
	w := newWorld(t)
	w.good(w.apply(service("a", vip("10.200.8.1:80", dataplane.TCP), listenTCP(t, "127.0.0.1:0", "a"))))
	for name, flags := range map[string]uint32{"alone": alone, "override": override, "multi": multi} {
		t.Run(name, func(t *testing.T) {
			child := below(t, "child")
			if _, err := stranger(t, child, flags, leading(netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("10.200.8.1"))); err != nil {
				t.Fatal(err)
			}
			for _, addr := range []string{"10.200.8.1:80", "192.0.2.1:80"} {
				if got, err := askFrom(t, child, addr); got != "a" {
					t.Errorf("%s: %q, %v", addr, got, err)
				}
			}
		})
	}
}

// TestUpdateLeavesForeignPrograms: the kernel once replaced another program than the
// link's when one stood there that comes before others. Maps that are made anew let
// every link be led to other programs.
func TestUpdateLeavesForeignPrograms(t *testing.T) {
	cgroup := netns.Isolated(t)
	var strangers []ebpf.ProgramID
	add := func(flags uint32) {
		t.Helper()
		p, err := stranger(t, cgroup, flags, passing())
		if errors.Is(err, unix.EINVAL) {
			t.Skipf("skipped: this kernel lets no program come before others: %v", err)
		}
		if err != nil {
			t.Fatal(err)
		}
		info, err := p.Info()
		if err != nil {
			t.Fatal(err)
		}
		id, _ := info.ID()
		strangers = append(strangers, id)
	}
	add(multi | preorder)
	w := newWorld(t)
	endpoint := listenTCP(t, "127.0.0.1:0", "a")
	first := service("first", vip("10.200.8.2:80", dataplane.TCP), endpoint)
	w.good(w.apply(first))
	add(multi | preorder)
	add(multi)
	was := w.provider.data.Program("connect4")
	w.good(w.apply(append(crowd(3000, endpoint), first)...))
	if w.provider.data.Program("connect4") == was {
		t.Fatal("the programs were not replaced")
	}
	present := make(map[ebpf.ProgramID]bool)
	dir, err := os.Open(cgroup)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	r, err := link.QueryPrograms(link.QueryOptions{Target: int(dir.Fd()), Attach: ebpf.AttachCGroupInet4Connect})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range r.Programs {
		present[p.ID] = true
	}
	for _, id := range strangers {
		if !present[id] {
			t.Errorf("program %d of somebody else is gone", id)
		}
	}
	if len(present) != len(strangers)+1 {
		t.Errorf("%d programs are attached, want %d and ours", len(present), len(strangers))
	}
	if got, err := ask("tcp", "10.200.8.2:80"); got != "a" {
		t.Errorf("%q, %v", got, err)
	}
}

// TestRestartsAttachOnce: after ten lives every hook has one program, also if pins
// were lost between two of them.
func TestRestartsAttachOnce(t *testing.T) {
	w := newWorld(t)
	svc := service("a", vip("10.200.8.3:80", dataplane.TCP), listenTCP(t, "127.0.0.1:0", "a"))
	w.good(w.apply(svc))
	for n := range 10 {
		if err := w.provider.Shutdown(t.Context(), dataplane.ShutdownKeep); err != nil {
			t.Fatal(err)
		}
		if n%3 == 2 {
			if err := os.Remove(filepath.Join(datapath.Root("/sys/fs/bpf", w.config.InstanceID), "links", "recvmsg4")); err != nil {
				t.Fatal(err)
			}
		}
		w.provider = New("test")
		w.configure()
		if got := hooked(t, netns.Isolated(t)); !maps.Equal(got, each(1)) {
			t.Fatalf("in life %d programs are attached: %v", n+2, got)
		}
		if got, err := ask("tcp", "10.200.8.3:80"); got != "a" {
			t.Errorf("in life %d: %q, %v", n+2, got, err)
		}
	}
}

// TestCgroupGoneBetweenLives: the cgroup was removed and made again while nobody
// looked, so links are pinned that lead nowhere: the next process makes new ones.
func TestCgroupGoneBetweenLives(t *testing.T) {
	child := below(t, "short")
	w := newWorld(t, func(s *settings) { s.Cgroup = child })
	w.good(w.apply(service("a", vip("10.200.8.4:80", dataplane.TCP), listenTCP(t, "127.0.0.1:0", "a"))))
	if err := w.provider.Shutdown(t.Context(), dataplane.ShutdownKeep); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Remove(child), os.Mkdir(child, 0o755)); err != nil {
		t.Fatal(err)
	}
	w.provider = New("test")
	w.configure()
	if got := hooked(t, child); !maps.Equal(got, each(1)) {
		t.Errorf("programs at the new cgroup: %v", got)
	}
	if got, err := askFrom(t, child, "10.200.8.4:80"); got != "a" {
		t.Errorf("%q, %v", got, err)
	}
}

// TestCleanupAfterAKill: kill -9, then Cleanup by a process that knows nothing:
// nothing is attached, nothing pinned, and connects are direct.
func TestCleanupAfterAKill(t *testing.T) {
	p := startProcess(t)
	own := listenTCP(t, "127.0.0.1:0", "own")
	p.apply(snapshot(1,
		service("a", vip("10.200.8.5:80", dataplane.TCP), listenTCP(t, "127.0.0.1:0", "a")),
		service("b", intercept(own.String(), dataplane.TCP), listenTCP(t, "127.0.0.1:0", "b")),
	))
	p.kill()
	for addr, want := range map[string]string{"10.200.8.5:80": "a", own.String(): "b"} {
		if got, err := ask("tcp", addr); got != want {
			t.Errorf("after the kill %s: %q, %v", addr, got, err)
		}
	}
	if _, err := New("test").Cleanup(t.Context(), dataplane.CleanupOptions{InstanceID: p.config.InstanceID}); err != nil {
		t.Fatal(err)
	}
	if got := hooked(t, netns.Isolated(t)); !maps.Equal(got, each(0)) {
		t.Errorf("programs are attached: %v", got)
	}
	if left, err := filepath.Glob("/sys/fs/bpf/fairlead/*"); err != nil || len(left) > 0 {
		t.Errorf("pinned: %v, %v", left, err)
	}
	if got, err := ask("tcp", own.String()); got != "own" {
		t.Errorf("the listener behind the intercept: %q, %v", got, err)
	}
	if _, err := ask("tcp", "10.200.8.5:80"); !errors.Is(err, syscall.ENETUNREACH) {
		t.Errorf("the address: %v, want ENETUNREACH", err)
	}
	p.start() // for the end of the test
}

package ebpf

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/plugins/ebpf/internal/datapath"
	"github.com/fairlead/fairlead/plugins/ebpf/internal/host"
	"github.com/fairlead/fairlead/plugins/ebpf/internal/layout"
	"github.com/fairlead/fairlead/test/netns"
	"github.com/fairlead/fairlead/test/scale"
)

// attached counts the programs at connect4 of the tests' cgroup.
func attached(t *testing.T) int {
	t.Helper()
	dir, err := os.Open(netns.Isolated(t))
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	r, err := link.QueryPrograms(link.QueryOptions{Target: int(dir.Fd()), Attach: ebpf.AttachCGroupInet4Connect})
	if err != nil {
		t.Fatal(err)
	}
	return len(r.Programs)
}

// crowd is n services with VIPs of their own and an endpoint that all share.
func crowd(n int, endpoint netip.AddrPort) []*dataplane.Service {
	out := make([]*dataplane.Service, n)
	for i := range out {
		addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 201, byte(i >> 8), byte(i)}), 80)
		out[i] = service(fmt.Sprint("crowd", i), vip(addr.String(), dataplane.TCP), endpoint)
	}
	return out
}

// TestMapsGrowUnderLoad: no connect fails while the maps are made anew, and the old
// ones are gone afterwards.
func TestMapsGrowUnderLoad(t *testing.T) {
	w := newWorld(t)
	endpoint := listenTCP(t, "127.0.0.1:0", "a")
	first := service("first", vip("10.200.5.2:80", dataplane.TCP), endpoint)
	w.good(w.apply(first))
	size := w.provider.data.Table().Size()
	load := startCallers("10.200.5.2:80")
	n := scale.N(50_000)
	services := crowd(n, endpoint)
	for step := 16; ; step *= 4 {
		some := min(step, n)
		w.good(w.apply(append(services[:some:some], first)...))
		if some == n {
			break
		}
	}
	was := load.Count()
	netns.Eventually(t, patience, func() bool { return load.Count() > was+20 }, "connects afterwards")
	load.Stop(t)
	if now := w.provider.data.Table().Size(); now == size {
		t.Errorf("%d services fit into maps of %+v", n, now)
	}
	if got, err := ask("tcp", services[n-1].Frontends[0].Addr.String()); got != "a" {
		t.Errorf("the last of %d services: %q, %v", n, got, err)
	}
	if n := attached(t); n != 1 {
		t.Errorf("%d programs are attached at connect4", n)
	}
	left, err := filepath.Glob(filepath.Join(datapath.Root("/sys/fs/bpf", w.config.InstanceID), "layout-*"))
	if err != nil || len(left) != 1 {
		t.Errorf("maps that are pinned: %v, %v", left, err)
	}
	// All go again; what they took can be used by others.
	w.good(w.apply(first))
	if load := w.provider.data.Table().Load(); load.Services != 2 {
		t.Errorf("%d services are left in the maps", load.Services)
	}
}

// TestFullMapsKeepWhatTheyHave: the service that does not fit is named, Health says
// so, the others work as before; and when there is room it comes in by itself.
func TestFullMapsKeepWhatTheyHave(t *testing.T) {
	w := newWorld(t, func(s *settings) { s.MaxFrontends = 8 })
	endpoint := listenTCP(t, "127.0.0.1:0", "a")
	services := crowd(20, endpoint)
	r := w.apply(services...)
	if len(r.Statuses) != 20-(8-1) {
		t.Errorf("%d of 20 services do not fit into 8 places, of which one is the provider's", len(r.Statuses))
	}
	missing := make(map[dataplane.Key]bool)
	for _, st := range r.Statuses {
		missing[st.Service] = true
		if st.Status != dataplane.StatusRejected || st.Reason != dataplane.ReasonApplyFailed || st.Message == "" {
			t.Errorf("%+v", st)
		}
	}
	check := func(svc *dataplane.Service) {
		t.Helper()
		if got, err := ask("tcp", svc.Frontends[0].Addr.String()); got != "a" {
			t.Errorf("%s: %q, %v", svc.Key, got, err)
		}
	}
	for _, svc := range services {
		if !missing[svc.Key] {
			check(svc)
		}
	}
	if h := w.provider.Health(t.Context()); h.State != dataplane.HealthDegraded || len(h.Reasons) == 0 {
		t.Errorf("health is %v %v", h.State, h.Reasons)
	}
	w.good(w.apply(services[15:]...))
	for _, svc := range services[15:] {
		check(svc)
	}
	if h := w.provider.Health(t.Context()); h.State != dataplane.HealthReady {
		t.Errorf("with room again health is %v %v", h.State, h.Reasons)
	}
}

// frontends is the memory in which programs look up IPv4 addresses.
func frontends(w *world) []uint64 {
	entries, _ := w.provider.data.Maps().Frontends(layout.V4)
	return entries
}

// TestDriftIsRepaired: a link that somebody removed, a frontend, all pins.
func TestDriftIsRepaired(t *testing.T) {
	w := newWorld(t, func(s *settings) { s.CheckInterval = "20ms" })
	w.good(w.apply(service("a", vip("10.200.5.3:80", dataplane.TCP), listenTCP(t, "127.0.0.1:0", "a"))))
	events := make(chan dataplane.Event, 64)
	go func() { _ = w.provider.Watch(t.Context(), nil, func(e dataplane.Event) { events <- e }) }()
	netns.Eventually(t, patience, func() bool {
		w.provider.mu.Lock()
		defer w.provider.mu.Unlock()
		return len(w.provider.watchers) == 1
	}, "the watcher")
	root := datapath.Root("/sys/fs/bpf", w.config.InstanceID)
	for what, damage := range map[string]func() error{
		"a link detached": func() error {
			l, err := link.LoadPinnedLink(filepath.Join(root, "links", "connect4"), nil)
			if err != nil {
				return err
			}
			return errors.Join(l.(interface{ Detach() error }).Detach(), l.Close())
		},
		"a link unpinned":    func() error { return os.Remove(filepath.Join(root, "links", "connect4")) },
		"a frontend deleted": func() error { clear(frontends(w)); return nil },
		"all pins removed":   func() error { return os.RemoveAll(root) },
	} {
		t.Run(what, func(t *testing.T) {
			w.provider.mu.Lock()
			err := damage()
			w.provider.mu.Unlock()
			if err != nil {
				t.Fatal(err)
			}
			netns.EventuallyNil(t, patience, func() error {
				w.provider.mu.Lock()
				defer w.provider.mu.Unlock()
				return w.provider.data.Check()
			}, "repair")
			if got, err := ask("tcp", "10.200.5.3:80"); got != "a" {
				t.Errorf("%q, %v", got, err)
			}
			for told := false; !told; {
				select {
				case e := <-events:
					if told = e.Drift != nil; told && !e.Drift.Repaired {
						t.Errorf("told of %+v", e.Drift)
					}
				case <-time.After(patience):
					t.Fatal("nothing was told of it")
				}
			}
		})
	}
}

// TestHooksOutliveTheirPins: who removes the pins, or unmounts the file system that
// they are in, breaks no connect; and the keeper puts them back.
func TestHooksOutliveTheirPins(t *testing.T) {
	w := newWorld(t, func(s *settings) { s.CheckInterval = "20ms" })
	w.good(w.apply(service("a", vip("10.200.5.3:80", dataplane.TCP), listenTCP(t, "127.0.0.1:0", "a"))))
	root := datapath.Root("/sys/fs/bpf", w.config.InstanceID)
	for what, damage := range map[string]func() error{
		"removed":   func() error { return os.RemoveAll(root) },
		"unmounted": func() error { return unix.Unmount("/sys/fs/bpf", unix.MNT_DETACH) },
	} {
		t.Run(what, func(t *testing.T) {
			w.provider.mu.Lock() // and the keeper waits
			err := damage()
			got, askErr := ask("tcp", "10.200.5.3:80")
			w.provider.mu.Unlock()
			if err != nil || got != "a" {
				t.Fatalf("%v; %q answers: %v", err, got, askErr)
			}
			netns.EventuallyNil(t, patience, func() error {
				w.provider.mu.Lock()
				defer w.provider.mu.Unlock()
				return w.provider.data.Check()
			}, "repair")
			if got, err := ask("tcp", "10.200.5.3:80"); got != "a" {
				t.Errorf("%q answers: %v", got, err)
			}
			if n := attached(t); n != 1 {
				t.Errorf("%d programs are attached at connect4", n)
			}
		})
	}
}

// TestDoubtIsLookedInto: a link that was detached is made anew when Health sees that
// it does not work, and not only when it is time to look.
func TestDoubtIsLookedInto(t *testing.T) {
	w := newWorld(t, func(s *settings) { s.CheckInterval = "1h" })
	w.good(w.apply(service("a", vip("10.200.5.3:80", dataplane.TCP), listenTCP(t, "127.0.0.1:0", "a"))))
	l, err := link.LoadPinnedLink(filepath.Join(datapath.Root("/sys/fs/bpf", w.config.InstanceID), "links", "connect4"), nil)
	if err == nil {
		err = errors.Join(l.(interface{ Detach() error }).Detach(), l.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	if h := w.provider.Health(t.Context()); h.State != dataplane.HealthFailed {
		t.Fatalf("health is %v %v", h.State, h.Reasons)
	}
	netns.Eventually(t, patience, func() bool {
		return w.provider.Health(t.Context()).State == dataplane.HealthReady
	}, "repair")
}

// TestTwoInstances share a kernel, and Cleanup of one leaves the other.
func TestTwoInstances(t *testing.T) {
	a := newWorld(t)
	endpoint := listenTCP(t, "127.0.0.1:0", "a")
	a.good(a.apply(service("a", vip("10.200.5.5:80", dataplane.TCP), endpoint)))
	t.Run("other", func(t *testing.T) {
		b := newWorld(t)
		b.good(b.apply(service("b", vip("10.200.5.6:80", dataplane.TCP), endpoint)))
		for _, addr := range []string{"10.200.5.5:80", "10.200.5.6:80"} {
			if got, err := ask("tcp", addr); got != "a" {
				t.Errorf("%s: %q, %v", addr, got, err)
			}
		}
		kept := 0
		items, err := b.provider.Cleanup(t.Context(), dataplane.CleanupOptions{InstanceID: b.config.InstanceID, DryRun: true})
		for _, i := range items {
			if i.Result == dataplane.Kept && strings.Contains(i.Message, a.config.InstanceID) {
				kept++
			}
		}
		if err != nil || kept == 0 {
			t.Errorf("a dry run does not say that it keeps the other's: %v, %v", items, err)
		}
	})
	if got, err := ask("tcp", "10.200.5.5:80"); got != "a" {
		t.Errorf("after the other went: %q, %v", got, err)
	}
}

// TestCgroupOfItsOwn: only the tree that is configured is led; a cgroup that was
// removed and made again is found by the keeper.
func TestCgroupOfItsOwn(t *testing.T) {
	child := filepath.Join(netns.Isolated(t), "child")
	if err := os.Mkdir(child, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(child) })
	w := newWorld(t, func(s *settings) { s.Cgroup, s.CheckInterval = child, "20ms" })
	w.good(w.apply(service("a", vip("10.200.5.7:80", dataplane.TCP), listenTCP(t, "127.0.0.1:0", "a"))))
	if got, err := ask("tcp", "10.200.5.7:80"); err == nil {
		t.Errorf("outside of the tree %q answers", got)
	}
	if h := w.provider.Health(t.Context()); h.State != dataplane.HealthDegraded {
		t.Errorf("outside of the tree health is %v %v, want DEGRADED: it cannot be tried", h.State, h.Reasons)
	}
	if err := errors.Join(os.Remove(child), os.Mkdir(child, 0o755)); err != nil {
		t.Fatal(err)
	}
	netns.EventuallyNil(t, patience, func() error {
		w.provider.mu.Lock()
		defer w.provider.mu.Unlock()
		return w.provider.data.Check()
	}, "the links at the new cgroup")
}

func TestFlowsAreTold(t *testing.T) {
	w := newWorld(t)
	w.good(w.apply(
		service("a", vip("10.200.5.8:80", dataplane.TCP), listenTCP(t, "127.0.0.1:0", "a")), service("b", vip("10.200.5.9:80", dataplane.TCP)),
	))
	flows := make(chan dataplane.Flow, 64)
	go func() {
		_ = w.provider.Watch(t.Context(), &dataplane.FlowOptions{}, func(e dataplane.Event) {
			if e.Flow != nil {
				flows <- *e.Flow
			}
		})
	}()
	netns.Eventually(t, patience, func() bool {
		w.provider.mu.Lock()
		defer w.provider.mu.Unlock()
		return w.provider.flows != nil
	}, "the reader")
	cgroup, err := host.OwnCgroup()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ addr, service, verdict, reason string }{
		{"10.200.5.8:80", "a", "forwarded", ""}, {"10.200.5.9:80", "b", "refused", "empty_refused"},
	} {
		start := time.Now()
		_, _ = ask("tcp", c.addr)
		select {
		case f := <-flows:
			if f.Service != name(c.service) || f.Frontend.Addr.String() != c.addr || f.Verdict != c.verdict || (f.Endpoint != 0) != (c.verdict == "forwarded") {
				t.Errorf("told of %+v", f)
			}
			if f.Reason != c.reason {
				t.Errorf("the reason is %q, want %q", f.Reason, c.reason)
			}
			if p := f.Process; p.PID != uint32(os.Getpid()) || p.Cgroup != cgroup || p.CgroupID == 0 || p.Name == "" {
				t.Errorf("told of process %+v, this is %d in %s", p, os.Getpid(), cgroup)
			}
			if f.At.Before(start.Add(-time.Second)) || f.At.After(time.Now().Add(time.Second)) {
				t.Errorf("at %v, it was %v", f.At, start)
			}
		case <-time.After(patience):
			t.Errorf("nothing was told of %s", c.addr)
		}
	}
}

// A flow names the process that connects and the cgroup of that, below the one
// whose processes are led; also of a process that has ended by then.
func TestFlowsNameOtherProcesses(t *testing.T) {
	w := newWorld(t)
	w.good(w.apply(service("b", vip("10.200.5.9:80", dataplane.TCP))))
	child := filepath.Join(netns.Isolated(t), "shop")
	if err := os.Mkdir(child, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		netns.EventuallyNil(t, patience, func() error { return os.Remove(child) }, "the cgroup to be empty")
	})
	dir, err := os.Open(child)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	own, err := host.OwnCgroup()
	if err != nil {
		t.Fatal(err)
	}
	flows := make(chan dataplane.Flow, 64)
	go func() {
		_ = w.provider.Watch(t.Context(), &dataplane.FlowOptions{}, func(e dataplane.Event) {
			if e.Flow != nil {
				flows <- *e.Flow
			}
		})
	}()
	netns.Eventually(t, patience, func() bool {
		w.provider.mu.Lock()
		defer w.provider.mu.Unlock()
		return w.provider.flows != nil
	}, "the reader")
	for range 3 {
		cmd := exec.Command("bash", "-c", "echo > /dev/tcp/10.200.5.9/80")
		cmd.Env = append(os.Environ(), "LC_ALL=C")
		cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
		if output, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(output), "refused") {
			t.Fatalf("the connection was not refused: %v: %s", err, output)
		}
		want := dataplane.Process{PID: uint32(cmd.Process.Pid), Name: "bash", Cgroup: filepath.Join(own, "shop")}
		select {
		case f := <-flows:
			f.Process.CgroupID = 0
			if f.Process != want || f.Verdict != "refused" {
				t.Errorf("told of %+v, want %+v", f, want)
			}
		case <-time.After(patience):
			t.Fatal("nothing was told")
		}
	}
}

func TestProbeHere(t *testing.T) {
	netns.Isolated(t)
	before := attached(t)
	r, err := New("test").Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range r.Checks {
		t.Logf("%s: %v: %s; %s", c.ID, c.Result, c.Reason, c.Remedy)
		if c.Result == dataplane.Unsupported {
			t.Errorf("%s is %v here: %s", c.ID, c.Result, c.Reason)
		}
	}
	if after := attached(t); after != before {
		t.Errorf("%d programs are attached after it, %d before", after, before)
	}
}

// TestReplacedUnderLoad: what a former process left cannot be read, as after an
// upgrade to another layout. Its programs serve on until the new maps are full, and
// no connect fails.
func TestReplacedUnderLoad(t *testing.T) {
	w := newWorld(t)
	svc := service("a", vip("10.200.5.10:80", dataplane.TCP), listenTCP(t, "127.0.0.1:0", "a"))
	w.good(w.apply(svc))
	load := startCallers("10.200.5.10:80")
	for range scale.N(20) {
		was := w.provider.data.Program("connect4")
		words := frontends(w)
		words[slices.Index(words, 0)&^1] |= 1 << 50 // it is no address
		if err := w.provider.Shutdown(t.Context(), dataplane.ShutdownKeep); err != nil {
			t.Fatal(err)
		}
		w.provider = New("test")
		w.provider.UseLogger(slog.New(slog.NewTextHandler(t.Output(), nil)))
		w.configure()
		if st, err := w.provider.State(t.Context()); err != nil || st.Generation != 0 {
			t.Fatalf("State says %+v, %v", st, err)
		}
		if w.provider.data.Attached() {
			t.Fatal("the hooks run programs that know nothing")
		}
		if h := w.provider.Health(t.Context()); h.State != dataplane.HealthStarting {
			t.Errorf("before that is known that should be there, health is %v %v", h.State, h.Reasons)
		}
		calls := load.Count()
		netns.Eventually(t, patience, func() bool { return load.Count() > calls+10 }, "connects by the old programs")
		w.now = &dataplane.Snapshot{}
		w.good(w.apply(svc))
		if !w.provider.data.Attached() || w.provider.data.Program("connect4") == was {
			t.Fatal("the hooks do not run the new programs")
		}
		if h := w.provider.Health(t.Context()); h.State != dataplane.HealthReady {
			t.Errorf("afterwards health is %v %v", h.State, h.Reasons)
		}
		calls = load.Count()
		netns.Eventually(t, patience, func() bool { return load.Count() > calls+10 }, "connects by the new programs")
	}
	load.Stop(t)
	if n := attached(t); n != 1 {
		t.Errorf("%d programs are attached at connect4", n)
	}
}

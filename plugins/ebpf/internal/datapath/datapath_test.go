package datapath

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/plugins/ebpf/internal/layout"
	"github.com/fairlead/fairlead/test/netns"
)

func TestMain(m *testing.M) { os.Exit(netns.Main(m)) }

const bpffs = "/sys/fs/bpf" // of these tests alone

func options(t *testing.T) Options {
	t.Helper()
	o := Options{
		BPFFS: bpffs, Instance: "a/b.c", Cgroup: netns.Isolated(t), Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Size: layout.Size{Frontends: [layout.Families]uint32{8, 8}, Services: 8, Slots: [layout.Families]uint32{32, 32}},
	}
	t.Cleanup(func() {
		found, err := Find(bpffs)
		if err != nil {
			t.Error(err)
		}
		for _, f := range found {
			for _, object := range f.Objects() {
				if err := f.RemoveObject(object); err != nil {
					t.Error(err)
				}
			}
		}
	})
	return o
}

func open(t *testing.T, o Options) *Datapath {
	t.Helper()
	d, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}

// set programs a service with one frontend and one endpoint.
func set(t *testing.T, d *Datapath, n int) dataplane.Binding {
	t.Helper()
	b := dataplane.Binding{Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(n)}), 80), Protocol: dataplane.TCP}
	plan := layout.Plan{Frontends: []dataplane.Frontend{{Addr: b.Addr, Protocol: b.Protocol, Kind: dataplane.FrontendVIP}}}
	plan.Needs[layout.V4], plan.Shared[layout.V4] = true, true
	plan.Slots[layout.V4][layout.Home] = []layout.Slot{{Addr: netip.MustParseAddrPort("127.0.0.1:9"), ID: uint64(n)}}
	if _, err := d.Table().Set(dataplane.Key{Namespace: "t", Name: fmt.Sprint(n)}, plan, []uint64{uint64(n)}); err != nil {
		t.Fatal(err)
	}
	d.Table().Finish()
	return b
}

func TestGoesOnWithWhatIsThere(t *testing.T) {
	o := options(t)
	d := open(t, o)
	set(t, d, 1)
	want := dataplane.State{Session: dataplane.Session{AgentID: "x", BootEpoch: 3}, Generation: 7, Digest: []byte("d"), Complete: true}
	d.Maps().Mark(want)
	d.Close()
	d = open(t, o)
	if !d.Attached() || d.Table().Len() != 1 {
		t.Errorf("attached %v, %d services", d.Attached(), d.Table().Len())
	}
	if got := d.State(); got.Generation != 7 || got.Session != want.Session || string(got.Digest) != "d" || !got.Complete {
		t.Errorf("marked as applied: %+v", got)
	}
	d.Maps().Unmark()
	if got := d.State(); got.Generation != 0 {
		t.Errorf("after the mark was taken back: %+v", got)
	}
	d.Maps().Mark(dataplane.State{Generation: 8, InstanceID: strings.Repeat("x", 2000)})
	if got := d.State(); got.Generation != 0 {
		t.Errorf("what is too long to be marked: generation %d", got.Generation)
	}
	if err := d.Check(); err != nil {
		t.Error(err)
	}
}

func TestGrowKeepsAll(t *testing.T) {
	d := open(t, options(t))
	for n := range 7 {
		set(t, d, n)
	}
	size := d.Maps().Size()
	size.Frontends[layout.V4], size.Slots[layout.V4], size.Services = 64, 256, 64
	if err := d.Grow(size); err != nil {
		t.Fatal(err)
	}
	for n := range 20 {
		set(t, d, n)
	}
	if err := d.Check(); err != nil {
		t.Error(err)
	}
	if d.Maps().LockedBytes() == 0 {
		t.Error("the maps take no memory")
	}
	tight := size
	tight.Slots[layout.V4] = 4
	if err := d.Grow(tight); err == nil {
		t.Error("20 services fit into 4 slots")
	}
	if err := d.Check(); err != nil {
		t.Errorf("after it could not be done: %v", err)
	}
	if d.Program("connect4") == nil || d.Shared("sockets") == nil {
		t.Error("no program, or no socket storage")
	}
}

func TestFullMapSaysSo(t *testing.T) {
	d := open(t, options(t))
	for n := range 8 {
		set(t, d, n)
	}
	plan := layout.Plan{Frontends: []dataplane.Frontend{{Addr: netip.MustParseAddrPort("10.0.1.1:80"), Protocol: dataplane.TCP, Kind: dataplane.FrontendVIP}}}
	plan.Needs[layout.V4], plan.Shared[layout.V4] = true, true
	if _, err := d.Table().Set(dataplane.Key{Namespace: "t", Name: "ninth"}, plan, nil); !errors.Is(err, layout.ErrFull) {
		t.Errorf("a ninth frontend in maps for 8: %v, want ErrFull", err)
	}
}

// stray lets an address lead to nothing that makes sense, as somebody else might.
func stray(d *Datapath) {
	entries, foreign := d.Maps().Frontends(layout.V4)
	x := layout.NewIndex(layout.V4, entries, foreign)
	b := dataplane.Binding{Addr: netip.MustParseAddrPort("10.9.9.9:80"), Protocol: dataplane.TCP}
	if entry, ok := x.Alloc(b); ok {
		x.Publish(entry, 7, 7)
		x.Lead(entry, b)
	}
}

func TestCheckFindsAndRepairMends(t *testing.T) {
	o := options(t)
	d := open(t, o)
	set(t, d, 1)
	root := Root(o.BPFFS, o.Instance)
	for what, damage := range map[string]func() error{
		"a link":       func() error { return detach(filepath.Join(root, linksName, "sendmsg4")) },
		"a frontend":   func() error { entries, _ := d.Maps().Frontends(layout.V4); clear(entries); return nil },
		"all pins":     func() error { return os.RemoveAll(root) },
		"a map":        func() error { return os.Remove(filepath.Join(root, d.current.String(), layoutMaps()[0])) },
		"a shared map": func() error { return os.Remove(filepath.Join(root, sharedName, sharedMaps()[0])) },
		"the layout":   func() error { return os.RemoveAll(filepath.Join(root, d.current.String())) },
		"another one":  func() error { stray(d); return nil },
		"another way":  func() error { _, foreign := d.Maps().Frontends(layout.V4); clear(foreign); return nil },
	} {
		if err := damage(); err != nil {
			t.Fatal(err)
		}
		if err := d.Check(); err == nil {
			t.Errorf("%s: the damage was not found", what)
		}
		if err := errors.Join(d.Repair(), d.Check()); err != nil {
			t.Errorf("%s: not repaired: %v", what, err)
		}
	}
	// And the next process finds all of it.
	d.Close()
	if d = open(t, o); d.Table().Len() != 1 {
		t.Errorf("the next process finds %d services", d.Table().Len())
	}
}

// TestWhatCannotBeReadServesOn: maps that make no sense are replaced only when the
// new ones are full; until then the hooks run the old programs.
func TestWhatCannotBeReadServesOn(t *testing.T) {
	o := options(t)
	d := open(t, o)
	set(t, d, 1)
	pin := filepath.Join(Root(o.BPFFS, o.Instance), linksName, "connect4")
	before := program(t, pin)
	stray(d)
	d.Close()
	d = open(t, o)
	if d.Attached() || d.Table().Len() != 0 || program(t, pin) != before {
		t.Errorf("attached %v, %d services", d.Attached(), d.Table().Len())
	}
	set(t, d, 1)
	if err := d.Attach(); err != nil {
		t.Fatal(err)
	}
	if program(t, pin) == before {
		t.Error("the hook runs the old program")
	}
	if found, err := layouts(Root(o.BPFFS, o.Instance)); err != nil || len(found) != 1 {
		t.Errorf("layouts: %v, %v", found, err)
	}
}

// program is what a pinned link runs.
func program(t *testing.T, pin string) uint32 {
	t.Helper()
	l, err := link.LoadPinnedLink(pin, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	info, err := l.Info()
	if err != nil {
		t.Fatal(err)
	}
	return uint32(info.Program)
}

func TestNewerLayoutIsLeftAlone(t *testing.T) {
	o := options(t)
	newer := filepath.Join(Root(o.BPFFS, o.Instance), fmt.Sprintf("layout-%d-1", layout.Version+1))
	if err := os.MkdirAll(newer, 0o700); err != nil {
		t.Fatal(err)
	}
	if d, err := Open(o); !errors.Is(err, ErrNewer) {
		if err == nil {
			d.Close()
		}
		t.Errorf("beside %s: %v, want ErrNewer", newer, err)
	}
	if !exists(newer) {
		t.Error("it was removed")
	}
}

func TestFindAndRemove(t *testing.T) {
	o := options(t)
	d := open(t, o)
	if !Exists(bpffs, o.Instance) || Exists(bpffs, "other") {
		t.Error("the instance is not where it should be")
	}
	found, err := Find(bpffs)
	if err != nil || len(found) != 1 || found[0].Instance != o.Instance {
		t.Fatalf("%+v, %v", found, err)
	}
	objects := found[0].Objects()
	if first := filepath.Base(objects[0]); !strings.HasPrefix(first, "connect") {
		t.Errorf("%s goes first, before what leads to endpoints", first)
	}
	for _, object := range objects {
		if err := found[0].RemoveObject(object); err != nil {
			t.Errorf("%s: %v", object, err)
		}
	}
	if found, err := Find(bpffs); err != nil || len(found) != 0 {
		t.Errorf("left: %+v, %v", found, err)
	}
	if err := d.Check(); err == nil {
		t.Error("a process that still has the links open finds them as they were")
	}
}

func TestCgroupThatIsNone(t *testing.T) {
	o := options(t)
	o.Cgroup = t.TempDir()
	if d, err := Open(o); err == nil {
		d.Close()
		t.Error("hooks of a directory that is no cgroup were attached")
	}
}

func TestTrials(t *testing.T) {
	cgroup := netns.Isolated(t)
	for name, try := range map[string]func() error{
		"map": TryMap, "large": TryLarge, "programs": TryPrograms, "memory": TryMemory, "btf": HasBTF,
		"hook": func() error { return TryHook(cgroup) }, "link": func() error { return TryLink(cgroup) },
	} {
		if err := try(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, h := range Hooks() {
		if err := h.CanLoad(); err != nil {
			t.Errorf("hook %s: %v", h.Name, err)
		}
	}
	empty := filepath.Join(cgroup, "empty")
	if err := os.Mkdir(empty, 0o755); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(empty)
	if err := TryHook(empty); !errors.Is(err, ErrSilent) {
		t.Errorf("the hook of a cgroup that this process is not in: %v, want ErrSilent", err)
	}
	if !Forbidden(unix.EPERM) || Forbidden(unix.ENOENT) {
		t.Error("a lack of rights is not told from others")
	}
	if s, err := NewSockets(); err != nil {
		t.Error(err)
	} else {
		s.Close()
	}
}

// TestWhatShowsComesBeforeWhatLeads: "switches with link.Update (reverse hooks first,
// connect last)"; and they go in the opposite order.
func TestWhatShowsComesBeforeWhatLeads(t *testing.T) {
	var order []string
	for _, h := range Hooks() {
		order = append(order, strings.TrimRight(h.Name, "46"))
	}
	if got := strings.Join(slices.Compact(order), " "); got != "getpeername recvmsg sendmsg connect" {
		t.Errorf("hooks are attached in the order %s", got)
	}
	o := options(t)
	d := open(t, o)
	if err := d.Attach(); err != nil {
		t.Fatal(err)
	}
	found, err := Find(bpffs)
	if err != nil || len(found) != 1 {
		t.Fatalf("%v, %v", found, err)
	}
	var gone []string
	for _, object := range found[0].Objects() {
		if filepath.Base(filepath.Dir(object)) == linksName {
			gone = append(gone, strings.TrimRight(filepath.Base(object), "46"))
		}
	}
	if got := strings.Join(slices.Compact(gone), " "); got != "connect sendmsg recvmsg getpeername" {
		t.Errorf("hooks are removed in the order %s", got)
	}
}

func TestReasonsHaveNames(t *testing.T) {
	d := open(t, options(t))
	sums, err := ReadReasons(d.Shared("reasons"))
	if err != nil || len(sums) != len(Reasons()) {
		t.Fatalf("%v, %v", sums, err)
	}
	seen := make(map[string]bool)
	for _, r := range append(Reasons(), 99) {
		if name := r.String(); name == "" || seen[name] {
			t.Errorf("reason %d is called %q", uint8(r), name)
		} else {
			seen[name] = true
		}
	}
	s, err := NewSample(d.Shared("settings"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	s.Set(9)
	var value [2]uint32
	if err := d.Shared("settings").Lookup(uint32(0), &value); err != nil || value[0] != 9 {
		t.Errorf("the programs see %v, %v", value, err)
	}
}

// TestMemlockIsNamed: old kernels say EPERM where the limit of locked memory is
// reached.
func TestMemlockIsNamed(t *testing.T) {
	var was unix.Rlimit
	if err := unix.Prlimit(0, unix.RLIMIT_MEMLOCK, nil, &was); err != nil {
		t.Fatal(err)
	}
	low := unix.Rlimit{Cur: 64 << 10, Max: was.Max}
	if err := unix.Prlimit(0, unix.RLIMIT_MEMLOCK, &low, nil); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Prlimit(0, unix.RLIMIT_MEMLOCK, &was, nil) }()
	if err := Unlocked(fmt.Errorf("map: %w", unix.EPERM)); !errors.Is(err, ErrLocked) {
		t.Errorf("with 64 KiB: %v", err)
	}
	RaiseLocked()
	if err := Unlocked(unix.EPERM); errors.Is(err, ErrLocked) != (was.Max < lockedNeed) {
		t.Errorf("after the limit was raised to what is allowed, %d: %v", was.Max, err)
	}
}

package ebpf

import (
	"encoding/binary"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/plugins/ebpf/internal/datapath"
	"github.com/fairlead/fairlead/plugins/ebpf/internal/host"
	"github.com/fairlead/fairlead/plugins/ebpf/internal/layout"
	"github.com/fairlead/fairlead/test/netns"
)

// former is what a provider of layout version 1 left in the kernel: its programs and
// maps as they were committed, filled as it filled them.
type former struct {
	t    *testing.T
	root string
	c    *ebpf.Collection
}

// newFormer pins it for an instance, and leads the hooks of a cgroup to it.
func newFormer(t *testing.T, instance, cgroup string) *former {
	t.Helper()
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		t.Skip("skipped: testdata/layout-1.o is for machines that are little-endian")
	}
	spec, err := ebpf.LoadCollectionSpec("testdata/layout-1.o")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"frontends4", "frontends6", "publications", "endpoints4", "endpoints6", "hits4", "hits6", "services"} {
		spec.Maps[name].MaxEntries = 64
	}
	home, err := host.Cookie()
	if err != nil {
		t.Fatal(err)
	}
	if err := spec.Variables["home"].Set(home); err != nil {
		t.Fatal(err)
	}
	c, err := ebpf.NewCollection(spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	f := &former{t, datapath.Root("/sys/fs/bpf", instance), c}
	f.pin("shared-1", "sockets", "datagrams", "bonds", "reasons", "denials", "flows", "settings")
	f.pin("layout-1-3", "frontends4", "frontends6", "publications", "endpoints4", "endpoints6", "hits4", "hits6", "services", "stamp")
	f.mkdir("links")
	for _, h := range datapath.Hooks() {
		l, err := link.AttachCgroup(link.CgroupOptions{Path: cgroup, Attach: h.Attach, Program: c.Programs[h.Name]})
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Pin(filepath.Join(f.root, "links", h.Name)); err != nil {
			t.Fatal(err)
		}
		l.Close()
	}
	return f
}

func (f *former) mkdir(name string) {
	f.t.Helper()
	if err := os.MkdirAll(filepath.Join(f.root, name), 0o700); err != nil {
		f.t.Fatal(err)
	}
}

func (f *former) pin(dir string, maps ...string) {
	f.t.Helper()
	f.mkdir(dir)
	for _, name := range maps {
		if err := f.c.Maps[name].Pin(filepath.Join(f.root, dir, name)); err != nil {
			f.t.Fatalf("%s: %v", name, err)
		}
	}
}

func (f *former) put(name string, key, value any) {
	f.t.Helper()
	if err := f.c.Maps[name].Put(key, value); err != nil {
		f.t.Fatalf("%s: %v", name, err)
	}
}

// serve programs one service: a VIP that leads to one endpoint.
func (f *former) serve(vip, endpoint netip.AddrPort) {
	f.t.Helper()
	const id, service, set = 2, 9, 8
	bytes := func(a netip.AddrPort, rest ...byte) []byte {
		return append(binary.BigEndian.AppendUint16(a.Addr().AsSlice(), a.Port()), rest...)
	}
	name := make([]byte, 128)
	copy(name, "test/a")
	f.put("services", uint32(service), name)
	f.put("endpoints4", uint32(set), append(binary.NativeEndian.AppendUint32(nil, service), make([]byte, 12)...))
	f.put("endpoints4", uint32(set+1), binary.NativeEndian.AppendUint64(bytes(endpoint, 0, 0), 1))
	for scope := range uint32(2) {
		f.put("publications", uint32(id)*2+scope, uint64(set)|1<<32|3<<48)
	}
	f.put("frontends4", bytes(vip, 6, 0), uint32(id))
}

// TestUpgradeFromLayout1: the maps of the version before are of another layout. Its
// programs serve on until the new maps are full, then the hooks are led to the new
// ones, and no connect fails; sockets that the old ones led still show their frontend.
func TestUpgradeFromLayout1(t *testing.T) {
	const addr = "10.200.5.12:80"
	w := newWorld(t) // Cleanup is its
	if err := w.provider.Shutdown(t.Context(), dataplane.ShutdownRemove); err != nil {
		t.Fatal(err)
	}
	endpoint := listenTCP(t, "127.0.0.1:0", "a")
	old := newFormer(t, w.config.InstanceID, netns.Isolated(t))
	old.serve(netip.MustParseAddrPort(addr), endpoint)
	open, err := net.DialTimeout("tcp", addr, patience)
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	load := startCallers(addr)
	w.provider = New("test")
	w.configure()
	if st, err := w.provider.State(t.Context()); err != nil || st.Generation != 0 {
		t.Fatalf("State says %+v, %v: what is applied is not known here", st, err)
	}
	if w.provider.data.Attached() {
		t.Fatal("the hooks run programs that know nothing")
	}
	calls := load.Count()
	netns.Eventually(t, patience, func() bool { return load.Count() > calls+10 }, "connects by the old programs")
	w.good(w.apply(service("a", vip(addr, dataplane.TCP), endpoint)))
	calls = load.Count()
	netns.Eventually(t, patience, func() bool { return load.Count() > calls+20 }, "connects by the new programs") // those under way were begun by the old ones
	load.Stop(t)
	if h := w.provider.Health(t.Context()); h.State != dataplane.HealthReady {
		t.Errorf("afterwards health is %v %v", h.State, h.Reasons)
	}
	if hits := w.hits("a"); hits < 10 {
		t.Errorf("%d connects are counted in the new maps", hits)
	}
	raw, err := open.(syscall.Conn).SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) {
			if got := peer(t, int(fd)); got != addr {
				t.Errorf("the socket from before shows %s", got)
			}
		})
	}
	if err != nil {
		t.Error(err)
	}
	left, err := filepath.Glob(filepath.Join(old.root, "layout-*"))
	if err != nil || len(left) != 1 || filepath.Base(left[0]) != "layout-2-4" {
		t.Errorf("maps that are pinned: %v, %v", left, err)
	}
	if n := attached(t); n != 1 {
		t.Errorf("%d programs are attached at connect4", n)
	}
}

// hits is how often an endpoint of a service was chosen.
func (w *world) hits(key string) (n uint64) {
	w.t.Helper()
	w.provider.data.Table().Services(func(v layout.View) bool {
		if v.Key == name(key) {
			n = v.Hits.Total
		}
		return true
	})
	return n
}

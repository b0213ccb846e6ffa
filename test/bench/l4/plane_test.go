package l4

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	bpf "github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/plugins/ebpf"
	"github.com/fairlead/fairlead/test/netns"
)

// plane is a data plane under test: a kind of seat.
type plane interface {
	name() string
	// enter makes the calling thread one whose sockets are led by the provider that
	// it returns, configured and empty. It is called once on the thread of each seat,
	// which makes all calls of that provider.
	enter(t *testing.T, seat string) (dataplane.Provider, costs)
}

// costs are what the kernel says of a plane at one seat.
type costs interface {
	memory() (bytes uint64, err error)
	// program is how often its program for connects ran, and for how long in all;
	// false: it has none.
	program() (runs uint64, took time.Duration, has bool, err error)
}

// ebpfPlane leads the sockets of a cgroup.
type ebpfPlane struct{ parent string }

func (ebpfPlane) name() string { return "ebpf" }

func (p ebpfPlane) enter(t *testing.T, seat string) (dataplane.Provider, costs) {
	t.Helper()
	dir, err := os.MkdirTemp(p.parent, seat+".") // removed with the cgroup of the benchmark
	if err != nil {
		t.Fatal(err)
	}
	// Threads of one process may be in different cgroups only if those are threaded.
	for _, w := range []struct{ file, text string }{{"cgroup.type", "threaded"}, {"cgroup.threads", strconv.Itoa(unix.Gettid())}} {
		if err := os.WriteFile(filepath.Join(dir, w.file), []byte(w.text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	// The regular check would fall into some rounds and not into others.
	settings, err := json.Marshal(map[string]string{"cgroup": dir, "check_interval": "1h"})
	if err != nil {
		t.Fatal(err)
	}
	provider := ebpf.New("bench")
	if _, err := provider.Configure(t.Context(), dataplane.Config{JSON: settings, InstanceID: "bench-" + filepath.Base(dir)}); err != nil {
		t.Fatal(err)
	}
	return provider, ebpfCosts{dir}
}

// isolated is the eBPF plane in the cgroup of the benchmark.
func isolated(t *testing.T) plane { return ebpfPlane{netns.Isolated(t)} }

// ebpfCosts are those of the programs at a cgroup.
type ebpfCosts struct{ cgroup string }

// hooks are those at which programs of the plane are.
func hooks() []bpf.AttachType {
	return []bpf.AttachType{
		bpf.AttachCGroupInet4Connect, bpf.AttachCGroupInet6Connect, bpf.AttachCGroupUDP4Sendmsg, bpf.AttachCGroupUDP6Sendmsg,
		bpf.AttachCGroupUDP4Recvmsg, bpf.AttachCGroupUDP6Recvmsg, bpf.AttachCgroupInet4GetPeername, bpf.AttachCgroupInet6GetPeername,
	}
}

// memory is that of all maps that the programs use, each once.
func (c ebpfCosts) memory() (sum uint64, err error) {
	seen := make(map[bpf.MapID]bool)
	for _, h := range hooks() {
		p, err := c.attached(h)
		if err != nil {
			return 0, err
		}
		info, err := p.Info()
		p.Close()
		if err != nil {
			return 0, err
		}
		ids, _ := info.MapIDs()
		for _, id := range ids {
			if seen[id] {
				continue
			}
			seen[id] = true
			n, err := mapMemory(id)
			if err != nil {
				return 0, err
			}
			sum += n
		}
	}
	return sum, nil
}

func mapMemory(id bpf.MapID) (uint64, error) {
	m, err := bpf.NewMapFromID(id)
	if err != nil {
		return 0, err
	}
	defer m.Close()
	info, err := m.Info()
	if err != nil {
		return 0, err
	}
	n, ok := info.Memlock()
	if !ok {
		return 0, fmt.Errorf("the kernel does not say how large map %s is", info.Name)
	}
	return n, nil
}

func (c ebpfCosts) program() (uint64, time.Duration, bool, error) {
	p, err := c.attached(bpf.AttachCGroupInet4Connect)
	if err != nil {
		return 0, 0, false, err
	}
	defer p.Close()
	s, err := p.Stats()
	if err != nil {
		return 0, 0, false, err
	}
	return s.RunCount, s.Runtime, true, nil
}

// attached is the one program at a hook.
func (c ebpfCosts) attached(h bpf.AttachType) (*bpf.Program, error) {
	dir, err := os.Open(c.cgroup)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	found, err := link.QueryPrograms(link.QueryOptions{Target: int(dir.Fd()), Attach: h})
	if err != nil {
		return nil, err
	}
	if len(found.Programs) != 1 {
		return nil, fmt.Errorf("%d programs at %v of %s, want 1", len(found.Programs), h, c.cgroup)
	}
	return bpf.NewProgramFromID(found.Programs[0].ID)
}

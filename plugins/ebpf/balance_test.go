package ebpf

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/test/netns"
	"github.com/fairlead/fairlead/test/scale"
)

// many endpoints need no listeners: a UDP connect only chooses, and getpeername
// without its hook would say where; the socket's storage does.
func manyEndpoints(n int, weight func(int) uint16) *dataplane.Service {
	svc := service("many", vip("10.200.2.1:53", dataplane.UDP))
	var list []dataplane.Endpoint
	for i := range n {
		addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 1, byte(i >> 8), byte(i)}), 53)
		list = append(list, dataplane.Endpoint{ID: uint64(i + 1), Addr: addr, Weight: weight(i)})
	}
	svc.Endpoints = dataplane.NewEndpoints(list...)
	return svc
}

// connects makes n connects, and returns how often each endpoint was chosen.
func connects(t *testing.T, w *world, svc *dataplane.Service, n int) map[uint64]uint64 {
	t.Helper()
	before := hits(t, w, svc.Key)
	for range n {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(unix.Connect(fd, sockaddr(svc.Frontends[0].Addr.String())), unix.Close(fd)); err != nil {
			t.Fatal(err)
		}
	}
	after := hits(t, w, svc.Key)
	for id, b := range before {
		after[id] -= b
	}
	return after
}

// hits reads the counters of a service's endpoints.
func hits(t *testing.T, w *world, k dataplane.Key) map[uint64]uint64 {
	t.Helper()
	out := make(map[uint64]uint64)
	err := w.provider.Stats(t.Context(), func(c dataplane.Counter) bool {
		if c.Service == k && c.Endpoint != 0 && c.Name == forwarded {
			out[c.Endpoint] = c.Value
		}
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestBalanceIsFair by chi-square. The bound is the quantile of one in a million,
// by the approximation of Wilson and Hilferty, so that a run fails for a reason.
func TestBalanceIsFair(t *testing.T) {
	for _, n := range []int{2, 3, 10, 100, 1000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			w := newWorld(t)
			svc := manyEndpoints(n, func(int) uint16 { return 1 })
			w.good(w.apply(svc))
			total := scale.N(1_000_000)/10 + 20*n
			got := connects(t, w, svc, total)
			chi, want := 0.0, float64(total)/float64(n)
			for id := range n {
				d := float64(got[uint64(id+1)]) - want
				chi += d * d / want
			}
			if bound := quantile(float64(n - 1)); chi > bound {
				t.Errorf("chi-square of %d connects to %d endpoints is %.1f, at most %.1f: %v", total, n, chi, bound, got)
			}
		})
	}
}

func quantile(freedom float64) float64 {
	const z = 4.753 // of one in a million
	c := 2 / (9 * freedom)
	x := 1 - c + z*math.Sqrt(c)
	return freedom * x * x * x
}

func TestWeights(t *testing.T) {
	w := newWorld(t)
	weights := []uint16{10, 20, 70, 0}
	svc := manyEndpoints(4, func(i int) uint16 { return weights[i] })
	w.good(w.apply(svc))
	total := scale.N(1_000_000)
	got := connects(t, w, svc, total)
	for i, weight := range weights {
		share, want := float64(got[uint64(i+1)])/float64(total), float64(weight)/100
		if share < want-0.01 || share > want+0.01 {
			t.Errorf("weight %d of 100 gets %.3f", weight, share)
		}
	}
}

// TestAffinity: a client stays with its endpoint while that takes connections and
// the client comes back in time; then it goes to another, and stays there.
func TestAffinity(t *testing.T) {
	w := newWorld(t)
	svc := manyEndpoints(50, func(int) uint16 { return 1 })
	svc.Affinity = dataplane.Affinity{ByClient: true, TTL: time.Hour}
	w.good(w.apply(svc))
	only := func() uint64 {
		t.Helper()
		got := connects(t, w, svc, 50)
		for id, n := range got {
			if n > 0 && n != 50 {
				t.Fatalf("a client with affinity was led to %v", got)
			}
			if n == 50 {
				return id
			}
		}
		t.Fatalf("nothing was counted: %v", got)
		return 0
	}
	first := only()
	change := func(edit func(*dataplane.Endpoint)) {
		t.Helper()
		next := *svc
		list := svc.Endpoints.Slice()
		for i := range list {
			edit(&list[i])
		}
		next.Endpoints = dataplane.NewEndpoints(list...)
		svc = &next
		w.good(w.apply(svc))
	}
	change(func(e *dataplane.Endpoint) { // another set, in which the endpoint stands elsewhere
		if e.ID != first && e.ID%2 == 0 {
			e.State = dataplane.Draining
		}
	})
	if now := only(); now != first {
		t.Errorf("led to %d, then, when others went, to %d", first, now)
	}
	change(func(e *dataplane.Endpoint) {
		if e.ID == first {
			e.State = dataplane.Draining
		}
	})
	second := only()
	if second == first {
		t.Errorf("led to %d although it drains", first)
	}
	next := *svc
	next.Affinity.TTL = time.Second
	svc = &next
	w.good(w.apply(svc))
	seen := make(map[uint64]bool)
	netns.Eventually(t, 20*time.Second, func() bool {
		late := time.NewTimer(1100 * time.Millisecond) // the clock of the kernel cannot be set
		<-late.C
		seen[only()] = true
		return len(seen) > 1
	}, "a client that comes back too late to be led elsewhere")
}

// TestForeignNamespace: a socket in another network namespace is given the address
// that means the same there; an endpoint that has none is not offered.
func TestForeignNamespace(t *testing.T) {
	w := newWorld(t)
	topo := netns.New(t, netns.Options{Nodes: 1})
	node := topo.Node(0)
	other, err := node.Listen("tcp", "127.0.0.1:7001") // what 127.0.0.1 means there
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	outside, err := node.Listen("tcp", node.Addr().String()+":7002")
	if err != nil {
		t.Fatal(err)
	}
	defer outside.Close()
	go answer(outside, "outside")
	home := listenTCP(t, "127.0.0.1:7001", "home")

	svc := service("both", vip("10.200.3.1:80", dataplane.TCP))
	svc.Endpoints = dataplane.NewEndpoints(dataplane.Endpoint{
		ID: 1, Weight: 1, Addr: home, AddrForeign: netip.MustParseAddrPort(outside.Addr().String()),
	})
	w.good(w.apply(svc, service("near", vip("10.200.3.2:80", dataplane.TCP), home)))
	if got, err := ask("tcp", "10.200.3.1:80"); got != "home" {
		t.Errorf("at home: %q, %v", got, err)
	}
	dial := func(addr string) (string, error) {
		var got string
		err := node.Do(func() (err error) { got, err = ask("tcp", addr); return err })
		return got, err
	}
	if got, err := dial("10.200.3.1:80"); got != "outside" {
		t.Errorf("in another namespace: %q, %v", got, err)
	}
	if got, err := dial("10.200.3.2:80"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("an endpoint on loopback, in another namespace: %q, %v; want ECONNREFUSED", got, err)
	}
}

func answer(l net.Listener, name string) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		_, _ = c.Write([]byte(name))
		_ = c.Close()
	}
}

// TestVerdictsAreCounted: the sum of the reasons is the traffic.
func TestVerdictsAreCounted(t *testing.T) {
	w := newWorld(t)
	w.good(w.apply(
		service("live", vip("10.200.2.2:80", dataplane.TCP), listenTCP(t, "127.0.0.1:0", "a")), service("empty", vip("10.200.2.3:80", dataplane.TCP)),
		service("pass", intercept("127.0.0.1:8009", dataplane.TCP)),
	))
	before := verdicts(t, w)
	for _, addr := range []string{"10.200.2.2:80", "10.200.2.3:80", "127.0.0.1:8009", "127.0.0.1:9"} {
		_, _ = ask("tcp", addr)
	}
	after := verdicts(t, w)
	for name, want := range map[string]uint64{"forwarded": 1, "empty_refused": 1, "empty_passed": 1, "no_frontend": 1, "peer": 1} {
		if got := after[name] - before[name]; got != want {
			t.Errorf("%s was counted %d times, want %d", name, got, want)
		}
	}
}

func verdicts(t *testing.T, w *world) map[string]uint64 {
	t.Helper()
	out := make(map[string]uint64)
	err := w.provider.Stats(t.Context(), func(c dataplane.Counter) bool {
		if reason, ok := strings.CutPrefix(c.Name, "verdict_"); ok {
			out[reason] = c.Value
		}
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

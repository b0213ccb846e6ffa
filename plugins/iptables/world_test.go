package iptables

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/plugins/iptables/internal/host"
	"github.com/fairlead/fairlead/plugins/iptables/internal/rules"
	"github.com/fairlead/fairlead/test/await"
	"github.com/fairlead/fairlead/test/netns"
)

// eachVariant runs a test with legacy and with nft.
func eachVariant(t *testing.T, f func(*testing.T, host.Variant)) {
	for _, v := range []host.Variant{host.Legacy, host.NFT} {
		t.Run(string(v), func(t *testing.T) { f(t, v) })
	}
}

// world is a provider in this process, in the network of the tests.
type world struct {
	t        testing.TB
	variant  host.Variant
	provider *Provider
	config   dataplane.Config
	now      *dataplane.Snapshot
}

// newWorld configures a provider; what it leaves is removed with the test.
func newWorld(t testing.TB, v host.Variant, edits ...func(*settings)) *world {
	t.Helper()
	netns.Isolated(t)
	s := settings{Variant: string(v), Mode: "all", Routes: "auto"}
	for _, edit := range edits {
		edit(&s)
	}
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, variant: v, config: dataplane.Config{JSON: text, InstanceID: "test." + t.Name(), StateDir: t.TempDir()}, now: &dataplane.Snapshot{}}
	w.restart()
	t.Cleanup(func() {
		if err := w.provider.Shutdown(context.Background(), dataplane.ShutdownRemove); err != nil {
			t.Error(err)
		}
		for _, v := range []host.Variant{host.Legacy, host.NFT} {
			for _, text := range saved(t, v) {
				if ours(text) {
					t.Errorf("rules are left in the %s tables:\n%s", v, text)
				}
			}
		}
		if left := command(t, "ip", "rule"); strings.Contains(left, fmt.Sprint(host.RouteProtocol)) {
			t.Errorf("routing rules are left:\n%s", left)
		}
	})
	return w
}

// restart begins anew as a process does that was killed: with what the system and
// the state directory hold.
func (w *world) restart() {
	w.t.Helper()
	if w.provider != nil {
		if err := w.provider.Shutdown(w.t.Context(), dataplane.ShutdownKeep); err != nil {
			w.t.Fatal(err)
		}
	}
	w.provider = New("test")
	w.provider.UseLogger(slog.New(slog.NewTextHandler(w.t.Output(), nil)))
	if _, err := w.provider.Configure(w.t.Context(), w.config); err != nil {
		w.t.Fatal(err)
	}
}

// snapshot is the next generation: just these services.
func (w *world) snapshot(services ...*dataplane.Service) *dataplane.Snapshot {
	w.t.Helper()
	e := (&dataplane.Snapshot{}).Edit()
	for _, svc := range services {
		if p := svc.Check(); p != nil {
			w.t.Fatalf("%s: %s", svc.Key, p.Message)
		}
		if old := w.now.Service(svc.Key); old != nil {
			if _, changed := dataplane.Compare(old, svc, nil); !changed {
				svc = old
			}
		}
		e.Set(svc)
	}
	next := e.Done()
	next.Session = dataplane.Session{AgentID: "test", BootEpoch: 1}
	next.Generation, next.Digest, next.Completeness = w.now.Generation+1, []byte("digest"), dataplane.Exchanged
	return next
}

// apply makes the world just these services.
func (w *world) apply(services ...*dataplane.Service) dataplane.Result {
	w.t.Helper()
	next := w.snapshot(services...)
	r, err := w.provider.Reconcile(w.t.Context(), next, dataplane.Diff(w.now, next, nil))
	if err != nil {
		w.t.Fatal(err)
	}
	w.now = next
	return r
}

// good fails the test if a result names a service.
func (w *world) good(r dataplane.Result) {
	w.t.Helper()
	for _, st := range r.Statuses {
		w.t.Fatalf("%s is %v, %s: %s", st.Service, st.Status, st.Reason, st.Message)
	}
}

func name(s string) dataplane.Key { return dataplane.Key{Namespace: "test", Name: s} }

// service makes a service; endpoint n has id n+1.
func service(key string, frontends []dataplane.Frontend, addrs ...netip.AddrPort) *dataplane.Service {
	var list []dataplane.Endpoint
	for i, a := range addrs {
		list = append(list, dataplane.Endpoint{ID: uint64(i + 1), Addr: a, Weight: 1})
	}
	return &dataplane.Service{Key: name(key), Frontends: frontends, Endpoints: dataplane.NewEndpoints(list...), DrainTime: time.Hour}
}

func vip(addr string, p dataplane.Protocol) []dataplane.Frontend {
	return []dataplane.Frontend{{Addr: netip.MustParseAddrPort(addr), Protocol: p, Kind: dataplane.FrontendVIP}}
}

// listenTCP answers each connection with a word.
func listenTCP(t testing.TB, addr, word string) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, word)
			_ = c.Close()
		}
	}()
	return l.Addr().(*net.TCPAddr).AddrPort()
}

// listenUDP answers each datagram with a word.
func listenUDP(t testing.TB, addr, word string) netip.AddrPort {
	t.Helper()
	c, err := net.ListenPacket("udp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	go func() {
		b := make([]byte, 64)
		for {
			_, from, err := c.ReadFrom(b)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				_, _ = c.WriteTo([]byte(word), from)
			}
		}
	}()
	return c.LocalAddr().(*net.UDPAddr).AddrPort()
}

// ask connects and reads the word.
func ask(addr string) (string, error) {
	c, err := net.DialTimeout("tcp", addr, await.Patience)
	if err != nil {
		return "", err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(await.Patience))
	b, err := io.ReadAll(c)
	return string(b), err
}

// answers fails the test unless a word comes from an address.
func answers(t testing.TB, addr, want string) {
	t.Helper()
	if got, err := ask(addr); got != want || err != nil {
		t.Errorf("%s answers %q, %v; want %q", addr, got, err, want)
	}
}

// command runs a command that has to succeed.
func command(t testing.TB, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// saved is the nat table of each family.
func saved(t testing.TB, v host.Variant) map[rules.Family]string {
	t.Helper()
	return map[rules.Family]string{
		rules.IPv4: command(t, "iptables-"+string(v)+"-save", "-t", "nat"),
		rules.IPv6: command(t, "ip6tables-"+string(v)+"-save", "-t", "nat"),
	}
}

func ours(text string) bool {
	return strings.Contains(text, ourChains) || strings.Contains(text, ourComments)
}

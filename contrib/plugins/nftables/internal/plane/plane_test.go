package plane

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/contrib/plugins/nftables/internal/netspace"
	"github.com/fairlead/fairlead/contrib/plugins/nftables/internal/table"
	"github.com/fairlead/fairlead/dataplane"
)

func TestMain(m *testing.M) { os.Exit(netspace.Main(m)) }

// patience bounds each wait; it is long as the machine may be busy.
const patience = time.Minute

// agent plays the host of a provider.
type agent struct {
	t        *testing.T
	p        *Provider
	snapshot *dataplane.Snapshot
}

// start configures a provider of an instance that is cleaned up in the end.
func start(t *testing.T, instance, config string) *agent {
	t.Helper()
	netspace.Require(t)
	a := &agent{t: t, p: New(), snapshot: &dataplane.Snapshot{Session: dataplane.Session{AgentID: "test", BootEpoch: 1}, Completeness: dataplane.Exchanged}}
	if _, err := a.p.Configure(t.Context(), dataplane.Config{InstanceID: instance, JSON: []byte(config)}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.p.Shutdown(context.Background(), dataplane.ShutdownRemove); err != nil {
			t.Error(err)
		}
		a.p.mu.Lock()
		a.p.leave()
		a.p.mu.Unlock()
		found, err := table.Find()
		for _, f := range found {
			if f.Tag == table.Name(instance) {
				t.Errorf("left: %+v, %v", f, err)
			}
		}
	})
	return a
}

// says brings services to the provider, with what changed.
func (a *agent) says(edit func(*dataplane.Editor)) dataplane.Result {
	a.t.Helper()
	r, _ := a.timed(edit)
	return r
}

// timed is says, with how long the provider took.
func (a *agent) timed(edit func(*dataplane.Editor)) (dataplane.Result, time.Duration) {
	a.t.Helper()
	e := a.snapshot.Edit()
	edit(e)
	next := e.Done()
	next.Generation = a.snapshot.Generation + 1
	delta := dataplane.Diff(a.snapshot, next, nil)
	begin := time.Now()
	r, err := a.p.Reconcile(a.t.Context(), next, delta)
	took := time.Since(begin)
	if err != nil {
		a.t.Fatal(err)
	}
	a.snapshot = next
	return r, took
}

func service(name, frontend string, protocol dataplane.Protocol, endpoints ...string) *dataplane.Service {
	s := &dataplane.Service{
		Key:       dataplane.Key{Namespace: "default", Name: name},
		Frontends: []dataplane.Frontend{{Addr: netip.MustParseAddrPort(frontend), Protocol: protocol, Kind: dataplane.FrontendVIP}},
	}
	var list []dataplane.Endpoint
	for i, e := range endpoints {
		list = append(list, dataplane.Endpoint{ID: uint64(i + 1), Addr: netip.MustParseAddrPort(e), Weight: 1})
	}
	s.Endpoints = dataplane.NewEndpoints(list...)
	return s
}

// serve answers each connection with one byte, and keeps it until the other side
// ends it.
func serve(t *testing.T, address string) string {
	t.Helper()
	l, err := net.Listen("tcp", address)
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
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	return l.Addr().String()
}

func echoes(c net.Conn) error {
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if _, err := c.Write([]byte("x")); err != nil {
		return err
	}
	_, err := io.ReadFull(c, make([]byte, 1))
	return err
}

// TestHostWithoutRoutes: a host that has no route but to itself reaches services, and
// none of its listeners is reached at their addresses.
func TestHostWithoutRoutes(t *testing.T) {
	a := start(t, "routes", "")
	v4, v6 := serve(t, "127.0.0.1:0"), serve(t, "[::1]:0")
	wildcard, err := net.Listen("tcp", "[::]:0")
	if err != nil {
		t.Fatal(err)
	}
	defer wildcard.Close()
	a.says(func(e *dataplane.Editor) {
		e.Set(service("web", "10.200.0.10:80", dataplane.TCP, v4))
		e.Set(service("web6", "[fd00:200::10]:80", dataplane.TCP, v6))
		e.Set(service("none", "10.200.0.11:80", dataplane.TCP))
	})
	for _, vip := range []string{"10.200.0.10:80", "[fd00:200::10]:80"} {
		c, err := net.DialTimeout("tcp", vip, patience)
		if err != nil {
			t.Errorf("%s: %v", vip, err)
			continue
		}
		if err := echoes(c); err != nil {
			t.Errorf("%s: %v", vip, err)
		}
		c.Close()
	}
	if _, err := net.DialTimeout("tcp", "10.200.0.11:80", patience); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a service without endpoints: %v, want connection refused", err)
	}
	_, port, _ := net.SplitHostPort(wildcard.Addr().String())
	for _, host := range []string{"10.200.0.10", "fd00:200::10"} {
		if c, err := net.DialTimeout("tcp", net.JoinHostPort(host, port), 300*time.Millisecond); err == nil {
			c.Close()
			t.Errorf("a listener of this host answers at %s", host)
		}
	}
	a.says(func(e *dataplane.Editor) { e.Delete(dataplane.Key{Namespace: "default", Name: "web"}) })
	if _, err := net.DialTimeout("tcp", "10.200.0.10:80", patience); !errors.Is(err, syscall.ENETUNREACH) {
		t.Errorf("after it is gone: %v, want network unreachable", err)
	}
}

// TestRoutesAreMadeAnew: what somebody else removed comes back; at once where rules
// were removed, too.
func TestRoutesAreMadeAnew(t *testing.T) {
	for what, alone := range map[string]bool{"routes alone": true, "all": false} {
		t.Run(what, func(t *testing.T) {
			a := start(t, "rules", `{"check_interval": "10ms"}`)
			a.says(func(e *dataplane.Editor) {
				e.Set(service("web", "10.200.5.10:80", dataplane.TCP, serve(t, "127.0.0.1:0")))
			})
			a.p.mu.Lock()
			a.p.keeper.routes = time.Now().Add(time.Hour) // not for a long time
			if alone {
				a.p.keeper.routes = time.Time{}
			}
			damage := removeRules()
			if !alone {
				damage = errors.Join(damage, removeTable(table.Name("rules")))
			}
			a.p.mu.Unlock()
			if damage != nil {
				t.Fatal(damage)
			}
			until := time.Now().Add(patience)
			for {
				c, err := net.DialTimeout("tcp", "10.200.5.10:80", patience)
				if err == nil {
					c.Close()
					return
				}
				if time.Now().After(until) {
					t.Fatal(err)
				}
				pause(t, 20*time.Millisecond)
			}
		})
	}
}

// removeRules removes the routing rules that lead to services.
func removeRules() error {
	rules, err := netlink.RuleList(netlink.FAMILY_V4)
	for _, r := range rules {
		if r.IifName == "lo" {
			err = errors.Join(err, netlink.RuleDel(&r))
		}
	}
	return err
}

func removeTable(name string) error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	c.DelTable(&nftables.Table{Name: name, Family: nftables.TableFamilyIPv4})
	return c.Flush()
}

// TestLinger: who leaves lets open connections go on, by a rule that goes with them.
func TestLinger(t *testing.T) {
	a := start(t, "linger", "")
	v4, v6 := serve(t, "127.0.0.1:0"), serve(t, "[::1]:0")
	a.says(func(e *dataplane.Editor) {
		e.Set(service("web", "10.200.1.10:80", dataplane.TCP, v4))
		e.Set(service("web6", "[fd00:200::11]:80", dataplane.TCP, v6))
	})
	// What this namespace remembers of a connection that was reset goes after a second.
	if err := os.WriteFile("/proc/sys/net/netfilter/nf_conntrack_tcp_timeout_close", []byte("1"), 0); err != nil {
		t.Fatal(err)
	}
	var open []net.Conn
	for _, vip := range []string{"10.200.1.10:80", "[fd00:200::11]:80"} {
		c, err := net.Dial("tcp", vip)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		open = append(open, c)
	}
	leave := dataplane.CleanupOptions{InstanceID: "linger", Linger: true}
	pending := func(p *Provider) bool {
		items, err := p.Cleanup(t.Context(), leave)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range items {
			if i.Result == dataplane.Failed || i.InstanceID != "linger" {
				t.Errorf("%+v", i)
			}
		}
		return slices.ContainsFunc(items, func(i dataplane.CleanupItem) bool { return i.Result == dataplane.Pending })
	}
	if !pending(a.p) {
		t.Fatal("nothing is left for connections that are open")
	}
	for _, c := range open {
		if err := echoes(c); err != nil {
			t.Errorf("%v: %v", c.RemoteAddr(), err)
		}
	}
	if !pending(New()) {
		t.Error("a new process does not find what is left")
	}
	for _, c := range open {
		if err := c.(*net.TCPConn).SetLinger(0); err != nil { // so that conntrack forgets it soon
			t.Error(err)
		}
		c.Close()
	}
	for until := time.Now().Add(patience); pending(New()); {
		if time.Now().After(until) {
			t.Fatal("still pending after the connections ended")
		}
		pause(t, 100*time.Millisecond)
	}
}

// TestLingerBesideAnother: what is waited for are the connections from before, not those
// that the data plane in its place leads, nor those that are over. That the instance is
// back and leaves once more begins anew.
func TestLingerBesideAnother(t *testing.T) {
	a, successor := start(t, "before", ""), start(t, "after", "")
	web := service("web", "10.200.8.10:80", dataplane.TCP, serve(t, "127.0.0.1:0"))
	dial := func() net.Conn {
		t.Helper()
		c, err := net.DialTimeout("tcp", "10.200.8.10:80", patience)
		if err == nil {
			err = echoes(c)
		}
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	pending := func() string {
		t.Helper()
		items, err := a.p.Cleanup(t.Context(), dataplane.CleanupOptions{InstanceID: "before", Linger: true})
		if err != nil {
			t.Fatal(err)
		}
		says := ""
		for _, i := range items {
			if i.Result == dataplane.Pending {
				says = i.Message
			}
		}
		return says
	}
	waitsFor := func(prefix string) {
		t.Helper()
		says := pending()
		for until := time.Now().Add(patience); !strings.HasPrefix(says, prefix) || prefix == "" && says != ""; says = pending() {
			if time.Now().After(until) {
				t.Fatalf("it waits for %q, want %q", says, prefix)
			}
			pause(t, 50*time.Millisecond)
		}
	}
	for range 2 {
		a.says(func(e *dataplane.Editor) { e.Set(web) })
		before := dial()
		for range 20 {
			dial().Close()
		}
		successor.says(func(e *dataplane.Editor) { e.Set(web) })
		waitsFor("1 ") // the others are over as soon as the server closed them too
		after := dial()
		if says := pending(); !strings.HasPrefix(says, "1 ") {
			t.Errorf("beside a connection of the successor it waits for %q", says)
		}
		if err := echoes(before); err != nil {
			t.Errorf("a connection from before: %v", err)
		}
		before.Close()
		waitsFor("")
		if err := echoes(after); err != nil {
			t.Errorf("a connection of the successor: %v", err)
		}
		after.Close()
		found, err := table.Find()
		if err != nil || len(found) != 1 || found[0].Tag != table.Name("after") {
			t.Errorf("after the leave there is %+v, %v", found, err)
		}
	}
}

// pause waits between two looks.
func pause(t *testing.T, d time.Duration) {
	select {
	case <-time.After(d):
	case <-t.Context().Done():
	}
}

// TestForwardedLeavesThisHostAlone: beside another plane only packets from elsewhere are led.
func TestForwardedLeavesThisHostAlone(t *testing.T) {
	a := start(t, "forwarded", `{"mode": "forwarded"}`)
	a.says(func(e *dataplane.Editor) { e.Set(service("web", "10.200.2.10:80", dataplane.TCP, "127.0.0.1:1")) })
	if _, err := net.DialTimeout("tcp", "10.200.2.10:80", patience); !errors.Is(err, syscall.ENETUNREACH) {
		t.Errorf("a dial of this host: %v, want network unreachable", err)
	}
	if h := a.p.Health(t.Context()); h.State != dataplane.HealthReady {
		t.Errorf("health %v", h)
	}
	// Another mode is another shape of the same tables.
	if _, err := a.p.Configure(t.Context(), dataplane.Config{InstanceID: "forwarded"}); err != nil {
		t.Fatal(err)
	}
	a.says(func(e *dataplane.Editor) {
		e.Set(service("web", "10.200.2.10:80", dataplane.TCP, serve(t, "127.0.0.1:0")))
	})
	c, err := net.DialTimeout("tcp", "10.200.2.10:80", patience)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}

// TestWhatCannotBeLed: what nftables cannot do is said, and the rest is served.
func TestWhatCannotBeLed(t *testing.T) {
	a := start(t, "unsupported", "")
	both := service("both", "10.200.3.10:80", dataplane.TCP, serve(t, "127.0.0.1:0"))
	both.Frontends = append(both.Frontends, dataplane.Frontend{Addr: netip.MustParseAddrPort("127.0.0.1:8001"), Protocol: dataplane.TCP, Kind: dataplane.FrontendIntercept})
	r := a.says(func(e *dataplane.Editor) {
		e.Set(both)
		e.Set(service("loop", "127.0.0.5:80", dataplane.TCP, "10.0.0.1:80"))
	})
	want := map[string]dataplane.Status{"both": dataplane.StatusPartial, "loop": dataplane.StatusUnsupported}
	if len(r.Statuses) != len(want) {
		t.Errorf("statuses %+v", r.Statuses)
	}
	for _, s := range r.Statuses {
		if want[s.Service.Name] != s.Status {
			t.Errorf("%+v", s)
		}
	}
	c, err := net.DialTimeout("tcp", "10.200.3.10:80", patience)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}

// TestWhatIsRefusedStaysAsItWas, and goes when the service does.
func TestWhatIsRefusedStaysAsItWas(t *testing.T) {
	a := start(t, "refused", "")
	good := service("web", "10.200.6.10:80", dataplane.TCP, serve(t, "127.0.0.1:0"))
	bad := service("web", "127.0.0.6:80", dataplane.TCP, "10.0.0.1:80")
	reached := func() error {
		c, err := net.DialTimeout("tcp", "10.200.6.10:80", patience)
		if err == nil {
			c.Close()
		}
		return err
	}
	set := func(s *dataplane.Service) { a.says(func(e *dataplane.Editor) { e.Set(s) }) }
	set(good)
	set(bad)
	if err := reached(); err != nil {
		t.Errorf("after a version that cannot be led: %v", err)
	}
	set(service("web", "10.200.6.11:80", dataplane.TCP, "127.0.0.1:1"))
	if err := reached(); !errors.Is(err, syscall.ENETUNREACH) {
		t.Errorf("after it moved: %v, want network unreachable", err)
	}
	set(good)
	set(bad)
	a.says(func(e *dataplane.Editor) { e.Delete(good.Key) })
	if err := reached(); !errors.Is(err, syscall.ENETUNREACH) {
		t.Errorf("after it went: %v, want network unreachable", err)
	}
}

// TestNftPrintsTheTables: an administrator and other tools can read the rules of this
// host, with what stands for each kind of service.
func TestNftPrintsTheTables(t *testing.T) {
	a := start(t, "list", "")
	nft, err := exec.LookPath("nft")
	if err != nil {
		t.Skip("the program nft is not installed")
	}
	sticky := service("dns", "[fd00::1]:53", dataplane.UDP, "[fd01::1]:53", "[fd01::2]:53")
	sticky.Affinity = dataplane.Affinity{ByClient: true, TTL: time.Minute}
	a.says(func(e *dataplane.Editor) {
		e.Set(service("web", "10.200.7.10:80", dataplane.TCP, "10.9.0.1:80", "127.0.0.1:81"))
		e.Set(service("none", "10.200.7.11:80", dataplane.TCP))
		e.Set(sticky)
	})
	out, err := exec.Command(nft, "list", "ruleset").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{"default/web", "goto refuse", "masquerade", "numgen random mod 2 map @slots", "goto sticky-"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}

// TestCounters: they count connections, and never fall, also when an endpoint goes
// and when the tables are made anew.
func TestCounters(t *testing.T) {
	t.Run("plain", func(t *testing.T) { counters(t, dataplane.Affinity{}) })
	t.Run("affinity", func(t *testing.T) { counters(t, dataplane.Affinity{ByClient: true, TTL: time.Minute}) })
}

func counters(t *testing.T, affinity dataplane.Affinity) {
	a := start(t, "counters", "")
	one, two := serve(t, "127.0.0.1:0"), serve(t, "127.0.0.1:0")
	total := func() (n uint64) {
		err := a.p.Stats(t.Context(), func(c dataplane.Counter) bool {
			if c.Name == connections && c.Endpoint == 0 {
				n = c.Value
			}
			return true
		})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	connect := func(times int) {
		for range times {
			c, err := net.Dial("tcp", "10.200.4.10:80")
			if err != nil {
				t.Fatal(err)
			}
			c.Close()
		}
	}
	set := func(endpoints ...string) {
		svc := service("web", "10.200.4.10:80", dataplane.TCP, endpoints...)
		svc.Affinity = affinity
		a.says(func(e *dataplane.Editor) { e.Set(svc) })
	}
	set(one, two)
	connect(20)
	if n := total(); n != 20 {
		t.Errorf("%d connections, want 20", n)
	}
	set(one)
	connect(5)
	if n := total(); n != 25 {
		t.Errorf("%d connections after an endpoint went, want 25", n)
	}
	c := new(nftables.Conn)
	c.DelTable(&nftables.Table{Name: table.Name("counters"), Family: nftables.TableFamilyIPv4})
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
	until := time.Now().Add(patience)
	for a.p.Health(t.Context()).State != dataplane.HealthReady {
		if time.Now().After(until) {
			t.Fatal("the table is not made anew")
		}
		pause(t, 50*time.Millisecond)
	}
	connect(3)
	if n := total(); n != 28 {
		t.Errorf("%d connections after the table was made anew, want 28", n)
	}
}

// TestProbe says that all works here, and leaves nothing; without the right to it
// says which.
func TestProbe(t *testing.T) {
	netspace.Require(t)
	r, err := New().Probe(t.Context())
	if err != nil || r.Verdict != dataplane.Supported {
		t.Errorf("%+v, %v", r, err)
	}
	if tables, err := new(nftables.Conn).ListTables(); err != nil || len(tables) != 0 {
		t.Errorf("left %v, %v", tables, err)
	}
	done := make(chan dataplane.Report)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with its rights
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var none [2]unix.CapUserData
		if err := unix.Capset(&header, &none[0]); err != nil {
			t.Error(err)
		}
		r, _ := New().Probe(context.Background())
		done <- r
	}()
	r = <-done
	if last := r.Checks[len(r.Checks)-1]; r.Verdict != dataplane.Unsupported || last.Remedy != rights {
		t.Errorf("without rights: %v, %+v", r.Verdict, last)
	}
}

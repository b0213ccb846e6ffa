package hostcheck

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/core/swim/wire"
	"github.com/fairlead/fairlead/test/netns"
)

// TestMain runs the tests in a network namespace, with a BPF file system and a
// cgroup of their own.
func TestMain(m *testing.M) { os.Exit(netns.Main(m)) }

// run runs a program in the namespace of the tests.
func run(t *testing.T, name string, args ...string) {
	t.Helper()
	if tool(name) == "" {
		t.Skipf("no %s here", name)
	}
	if out, err := exec.Command(tool(name), args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}

// device makes one with an address of the VIP pool, and a small MTU, that lives
// until the end of the test. Nobody is behind it.
func device(t *testing.T) {
	t.Helper()
	run(t, "ip", "link", "add", "far0", "type", "veth", "peer", "name", "far1")
	t.Cleanup(func() { run(t, "ip", "link", "del", "far0") })
	for _, args := range []string{"link set far1 up", "link set far0 mtu 1300 up", "addr add 10.200.5.1/24 dev far0", "addr add fd00:5::1/64 dev far0 nodad"} {
		run(t, "ip", strings.Fields(args)...)
	}
}

func finding(t *testing.T, findings []Finding, check string) Finding {
	t.Helper()
	i := slices.IndexFunc(findings, func(f Finding) bool { return f.Check == check })
	if i < 0 {
		t.Fatalf("no finding about %s in %+v", check, findings)
	}
	return findings[i]
}

// local is a configuration on loopback with a data directory of the test's.
func local(t *testing.T) Config {
	bind := netip.MustParseAddrPort("127.0.0.1:7400")
	return Config{Cluster: "prod", Bind: bind, Advertise: bind, DataDir: t.TempDir(), Pools: []netip.Prefix{netip.MustParsePrefix("10.200.0.0/16")}, PacketSize: 1400}
}

// TestGatherNetwork: what is wrong with a network is seen in a namespace that has it.
func TestGatherNetwork(t *testing.T) {
	netns.Isolated(t)
	device(t)
	taken, err := net.Listen("tcp", "127.0.0.1:7402")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	answers(t, "127.0.0.2:7400", "prod")
	answers(t, "127.0.0.4:7400", "")
	answers(t, "127.0.0.5:7400", "staging")
	before, err := os.ReadFile("/proc/sys/net/ipv4/ip_forward")
	if err != nil {
		t.Fatal(err)
	}
	for _, value := range []string{"0", "1"} {
		if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte(value), 0o644); err != nil {
			t.Fatal(err)
		}
		if got := sysctl("net/ipv4/ip_forward"); got.Why != "" || got.Value != int(value[0]-'0') {
			t.Errorf("ip_forward is %s and was read as %+v", value, got)
		}
	}
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", before, 0o644); err != nil {
		t.Fatal(err)
	}

	c := local(t)
	c.Listen = map[string]netip.AddrPort{
		"api.listen": netip.MustParseAddrPort("127.0.0.1:7402"), "http.listen": netip.MustParseAddrPort("192.0.2.1:7403"),
	}
	c.Join = []string{"127.0.0.1:7400", "127.0.0.2:7400", "127.0.0.3:7400", "127.0.0.4:7400", "127.0.0.5:7400", "10.200.5.77:7400"}
	var f Facts
	wants := map[string]struct {
		state State
		seen  string
	}{
		"port gossip.bind/udp":   {OK, "is free"},
		"port gossip.bind/tcp":   {OK, "is free"},
		"port api.listen/tcp":    {Failed, "taken by another"},
		"port http.listen/tcp":   {Failed, "no address of this host"},
		"vip-pool 10.200.0.0/16": {Warning, "the network 10.200.5.0/24 of far0"},
		"mtu":                    {OK, "on lo"},
		"peer 127.0.0.1:7400":    {OK, "this node itself"},
		"peer 127.0.0.2:7400":    {OK, "answers TCP and UDP"},
		"peer 127.0.0.4:7400":    {Warning, "accepts TCP, but UDP"},
		"peer 127.0.0.5:7400":    {Warning, "accepts TCP, but no ping"},
		"peer 127.0.0.3:7400":    {Warning, "refused"},
		"peer 10.200.5.77:7400":  {Warning, "timeout"},
	}
	netns.EventuallyNil(t, 30*time.Second, func() error { // a busy machine may take longer than a peer is waited for
		f = Gather(t.Context(), c, Agent{})
		findings := Evaluate(f)
		for check, want := range wants {
			if got := finding(t, findings, check); got.State != want.state || !strings.Contains(got.Seen, want.seen) {
				return fmt.Errorf("%s: %+v, want %s with %q", check, got, want.state, want.seen)
			}
		}
		return nil
	}, "the findings are right")
	if !slices.Contains(f.Network.Routes, Route{"far0", netip.MustParsePrefix("10.200.5.0/24")}) || !slices.Contains(f.Network.Routes, Route{"far0", netip.MustParsePrefix("fd00:5::/64")}) {
		t.Errorf("routes are %v", f.Network.Routes)
	}

	// The ports that were tried are free again.
	for range 2 {
		if got := tryPort("gossip.bind", "tcp", c.Bind); got.State != PortFree {
			t.Errorf("tried again: %+v", got)
		}
	}
	c.Bind, c.Advertise = netip.MustParseAddrPort("10.200.5.1:7400"), netip.MustParseAddrPort("10.200.5.1:7400")
	if got := finding(t, Evaluate(Gather(t.Context(), c, Agent{})), "mtu"); got.State != Warning || !strings.Contains(got.Seen, "1300 bytes on far0") {
		t.Errorf("mtu: %+v", got)
	}
}

// answers listens at an address by TCP, and acks pings of a cluster by UDP, if it has
// a name.
func answers(t *testing.T, at, cluster string) {
	t.Helper()
	l, err := net.Listen("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	if cluster == "" {
		return
	}
	conn, err := net.ListenPacket("udp", at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	go func() {
		buf := make([]byte, maxDatagram)
		for {
			size, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			codec := wire.NewCodec(cluster)
			p, err := codec.Open(buf[:size])
			if err != nil {
				continue
			}
			r := p.Reader()
			for m := (wire.Message{}); r.Next(&m); {
				if m.Type == wire.Ping {
					_, _ = conn.WriteTo(codec.Seal(wire.AppendAck(codec.Begin(nil, 7, 1, 0), m.Seq)), from)
				}
			}
		}
	}()
}

// TestGatherRules: rules of others in both variants, and traces of ours.
func TestGatherRules(t *testing.T) {
	netns.Isolated(t)
	if n, l := gatherRules(t.Context()); n.Legacy.Value+n.NFT.Value+l.Chains.Value+l.Tables.Value != 0 {
		t.Fatalf("in an empty namespace there are %+v, %+v", n, l)
	}
	t.Cleanup(func() { run(t, "nft", "flush", "ruleset") })
	run(t, "nft", "add", "table", "ip", "fairlead-x")
	run(t, "nft", "add", "table", "ip", "foreign")
	if _, l := gatherRules(t.Context()); l.Tables != (Known[int]{Value: 1}) {
		t.Errorf("tables of ours are %+v, want 1", l.Tables)
	}
	run(t, "iptables-nft", "-A", "INPUT", "-j", "ACCEPT")
	run(t, "iptables-nft", "-t", "nat", "-N", "FAIRLEAD-x-PRE")
	run(t, "iptables-nft", "-t", "nat", "-A", "PREROUTING", "-j", "FAIRLEAD-x-PRE")
	n, l := gatherRules(t.Context())
	if n.NFT != (Known[int]{Value: 1}) || n.Legacy != (Known[int]{}) || l.Chains != (Known[int]{Value: 1}) || n.Iptables == "" {
		t.Errorf("seen %+v and %+v, want a rule of others and a chain of ours", n, l)
	}
	run(t, "iptables-legacy", "-A", "INPUT", "-j", "ACCEPT")
	t.Cleanup(func() { run(t, "iptables-legacy", "-F", "INPUT") })
	n, _ = gatherRules(t.Context())
	if got := finding(t, backend(Facts{Netfilter: n}), "iptables"); got.State != Warning || !strings.Contains(got.Seen, "1 rules in the legacy variant and 1") {
		t.Errorf("with both variants: %+v", got)
	}
}

func TestCountRules(t *testing.T) {
	others, ours := countRules("*nat\n:PREROUTING ACCEPT [0:0]\n:FAIRLEAD-a-PRE - [0:0]\n:KUBE - [0:0]\n-A PREROUTING -j FAIRLEAD-a-PRE\n-A FAIRLEAD-a-PRE -j RETURN\n-A KUBE -j RETURN\nCOMMIT\n")
	if others != 1 || ours != 1 {
		t.Errorf("counted %d rules of others and %d chains of ours, want 1 and 1", others, ours)
	}
}

func TestGatherKernel(t *testing.T) {
	netns.Isolated(t)
	k := gatherKernel()
	if !slices.Contains(k.BPFFS, "/sys/fs/bpf") || len(k.Cgroup2) == 0 || k.Release == "" || !strings.HasPrefix(k.Cgroup, "/") || k.Capabilities == 0 {
		t.Errorf("of the kernel was seen %+v", k)
	}
	if got := pinned(k.BPFFS); got.Why != "" || len(got.Value) != 0 {
		t.Errorf("in an empty BPF file system there are %+v", got)
	}
	const dir = "/sys/fs/bpf/fairlead/some-instance"
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(filepath.Dir(dir))
	if got := pinned(k.BPFFS); !slices.Equal(got.Value, []string{dir}) {
		t.Errorf("pins are %+v, want %s", got, dir)
	}
}

func TestUnescape(t *testing.T) {
	if got := unescape(`/a\040b\134c`); got != `/a b\c` {
		t.Errorf("unescaped %q", got)
	}
}

func TestRoute4(t *testing.T) {
	if got, ok := route4("0005C80A", "00FFFFFF"); !ok || got != netip.MustParsePrefix("10.200.5.0/24") {
		t.Errorf("read %v, %v", got, ok)
	}
	for _, bad := range [][2]string{{"x", "0"}, {"0", "y"}} {
		if _, ok := route4(bad[0], bad[1]); ok {
			t.Errorf("%q is no route", bad)
		}
	}
}

func TestDirectory(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if d := directory(dir); !d.Exists || !d.IsDir || !d.Mine || !d.Writable {
		t.Errorf("a directory is %+v", d)
	}
	if d := directory(file); !d.Exists || d.IsDir {
		t.Errorf("a file is %+v", d)
	}
	if d := directory(filepath.Join(dir, "a", "b")); d.Exists || d.Above != dir || !d.Writable {
		t.Errorf("one to be made is %+v", d)
	}
	if d := directory(filepath.Join(file, "b")); d.Exists || d.Writable {
		t.Errorf("one below a file is %+v", d)
	}
	if d := directory(""); d != (Directory{}) {
		t.Errorf("none is %+v", d)
	}
}

func TestFsyncLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	for _, path := range []string{dir, filepath.Join(dir, "to", "be", "made")} {
		if got := measureFsync(t.Context(), path, directory(path)); got.Why != "" || got.Value <= 0 {
			t.Errorf("in %s: %+v", path, got)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
	if got := measureFsync(t.Context(), dir, Directory{Hidden: true}); got.Why == "" {
		t.Errorf("where nobody may write it took %v", got.Value)
	}
}

func TestPercentile99(t *testing.T) {
	all := make([]time.Duration, 100)
	for i := range all {
		all[i] = time.Duration(100-i) * time.Millisecond
	}
	if got := percentile99(all); got != 99*time.Millisecond {
		t.Errorf("of 1 to 100 ms it is %v", got)
	}
	if got := percentile99(all[:1]); got != time.Millisecond {
		t.Errorf("of 1 ms it is %v", got)
	}
	if got := percentile99(nil); got != 0 {
		t.Errorf("of none it is %v", got)
	}
}

func TestLockHeld(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	if got := lockHeld(path); got != (Known[bool]{}) {
		t.Errorf("a lock that nobody made is %+v", got)
	}
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if got := lockHeld(path); got.Value || got.Why != "" {
		t.Errorf("a free lock is %+v", got)
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		t.Fatalf("it was not let go: %v", err)
	}
	if got := lockHeld(path); !got.Value {
		t.Errorf("a held lock is %+v", got)
	}
}

// Gather ends soon after its context.
func TestGatherIsBounded(t *testing.T) {
	netns.Isolated(t)
	device(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c := local(t)
	c.Join = []string{"10.200.5.77:7400"}
	done := make(chan Facts, 1)
	go func() { done <- Gather(ctx, c, Agent{}) }()
	select {
	case f := <-done:
		if f.Network.Peers[0].TCP == "" {
			t.Error("a peer that is not there answered")
		}
	case <-time.After(30 * time.Second):
		t.Error("it still looks, 30 s after its context ended")
	}
}

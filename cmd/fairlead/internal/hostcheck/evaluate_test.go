package hostcheck

import (
	"net/netip"
	"strings"
	"testing"
	"time"
)

// healthy is a host without anything to say about, with an agent that runs.
func healthy() Facts {
	bind := netip.MustParseAddrPort("10.9.0.1:7400")
	return Facts{
		Config: Config{
			Cluster: "prod", Bind: bind, Advertise: bind, Join: []string{"10.9.0.2:7400"}, DataDir: "/var/lib/fairlead",
			Pools: []netip.Prefix{netip.MustParsePrefix("10.200.0.0/16")}, Planes: []string{"auto", "l7"}, PacketSize: 1400,
		},
		Kernel: Kernel{
			Release: "6.1.0-18-amd64", BTF: true, Cgroup2: []string{"/sys/fs/cgroup"}, Cgroup: "/user.slice", BPFFS: []string{"/sys/fs/bpf"},
			UnprivilegedBPF: Known[int]{Value: 2}, Capabilities: 1<<12 | 1<<39,
		},
		Netfilter: Netfilter{Iptables: "iptables v1.8.9 (nf_tables)", NFT: Known[int]{Value: 7}, Conntrack: Known[Conntrack]{Value: Conntrack{10, 1000}}},
		Network: Network{
			Ports: []Port{{Key: "gossip.bind", Transport: "udp", Addr: bind, State: PortFree}},
			Addresses: []Address{
				{Device: "lo", Loopback: true, MTU: 65536, Prefix: netip.MustParsePrefix("127.0.0.1/8")},
				{Device: "lo", Loopback: true, MTU: 65536, Prefix: netip.MustParsePrefix("10.200.0.9/32")},
				{Device: "eth0", MTU: 1500, Prefix: netip.MustParsePrefix("10.9.0.1/24")},
			},
			Routes:   []Route{{Device: "eth0", Prefix: netip.MustParsePrefix("10.9.0.0/24")}},
			Forward:  Known[int]{Value: 1},
			RPFilter: Known[int]{Value: 2},
			Clock:    Known[Clock]{Value: Clock{true, 20 * time.Millisecond}},
			Peers:    []Peer{{Addr: "10.9.0.2:7400", RTT: time.Millisecond}},
		},
		Storage: Storage{
			Dir:   Directory{Exists: true, IsDir: true, Mode: 0o40700, Mine: true, Writable: true},
			Fsync: Known[time.Duration]{Value: 2 * time.Millisecond},
		},
		Files:  Known[uint64]{Value: 1 << 16},
		Planes: []Plane{{Name: "l7", Verdict: "SUPPORTED"}},
	}
}

func TestHealthy(t *testing.T) {
	findings := Evaluate(healthy())
	for _, f := range findings {
		if f.State != OK || f.Fix != "" || f.Seen == "" || f.Group == "" || f.Check == "" {
			t.Errorf("on a healthy host: %+v", f)
		}
	}
	if Worst(findings) != OK {
		t.Errorf("the worst is %s", Worst(findings))
	}
}

// TestFindings: each check, with values that do not pass it. TestHealthy has the
// one that does.
func TestFindings(t *testing.T) {
	told := make(map[string]bool)
	for _, c := range []struct {
		check  string // GROUP CHECK
		state  State
		seen   string
		fix    string
		change func(*Facts)
	}{
		{"kernel release", Warning, "4.19.0", "5.7 or newer", func(f *Facts) { f.Kernel.Release = "4.19.0" }},
		{"kernel release", Warning, "5.6.1", "5.7 or newer", func(f *Facts) { f.Kernel.Release = "5.6.1" }},
		{"kernel release", OK, "5.7.0", "", func(f *Facts) { f.Kernel.Release = "5.7.0" }},
		{"kernel release", Failed, "4.19.0", "5.7", func(f *Facts) { f.Kernel.Release, f.Config.Planes = "4.19.0", []string{"ebpf"} }},
		{"kernel release", OK, "not asked for", "", func(f *Facts) { f.Kernel.Release, f.Config.Planes = "4.19.0", []string{"l7"} }},
		{"kernel release", Skipped, "no release", "", func(f *Facts) { f.Kernel.Release = "" }},
		{"kernel btf", Warning, "no /sys/kernel/btf", "CONFIG_DEBUG_INFO_BTF", func(f *Facts) { f.Kernel.BTF = false }},
		{"kernel cgroup2", Warning, "not mounted", "mount -t cgroup2", func(f *Facts) { f.Kernel.Cgroup2 = nil }},
		{"kernel cgroup", Warning, "/../x, outside", "cgroup namespace", func(f *Facts) { f.Kernel.Cgroup = "/../x" }},
		{"kernel cgroup", Skipped, "no cgroup", "", func(f *Facts) { f.Kernel.Cgroup = "" }},
		{"kernel bpffs", Warning, "not mounted", "mount -t bpf", func(f *Facts) { f.Kernel.BPFFS = nil }},
		{"kernel bpffs", OK, "the data plane ebpf does that", "", func(f *Facts) { f.Kernel.BPFFS, f.Kernel.Capabilities = nil, 1<<21|1<<12 }},
		{"kernel btf", Warning, "no /sys/kernel/btf", "CONFIG_DEBUG_INFO_BTF", func(f *Facts) { f.Kernel.BTF, f.Config.Planes = false, []string{"ebpf"} }},
		{"kernel btf", OK, "not asked for", "", func(f *Facts) { f.Kernel.BTF, f.Config.Planes = false, []string{"l7"} }},
		{"kernel bpffs", Failed, "not mounted", "mount -t bpf", func(f *Facts) { f.Kernel.BPFFS, f.Config.Planes = nil, []string{"ebpf", "l7"} }},
		{"kernel unprivileged-bpf", Warning, "any user", "sysctl -w kernel.unprivileged_bpf_disabled=2", func(f *Facts) { f.Kernel.UnprivilegedBPF.Value = 0 }},
		{"kernel unprivileged-bpf", Skipped, "no such", "", func(f *Facts) { f.Kernel.UnprivilegedBPF.Why = "no such" }},
		{"kernel capabilities", Skipped, "no CAP_NET_ADMIN, no CAP_BPF", "rights of the agent", func(f *Facts) { f.Kernel.Capabilities = 0 }},
		{"kernel capabilities", Skipped, "no CAP_BPF", "rights", func(f *Facts) { f.Kernel.Capabilities = 1 << 12 }},
		{"kernel capabilities", OK, "CAP_BPF", "", func(f *Facts) { f.Kernel.Capabilities = 1<<12 | 1<<21 }}, // CAP_SYS_ADMIN is enough

		{"netfilter iptables", Warning, "not installed", "apt-get install iptables", func(f *Facts) { f.Netfilter.Iptables = "" }},
		{"netfilter iptables", Failed, "not installed", "apt-get", func(f *Facts) { f.Netfilter.Iptables, f.Config.Planes = "", []string{"iptables", "l7"} }},
		{"netfilter iptables", Warning, "3 rules in the legacy variant and 7", "have all of them use one", func(f *Facts) { f.Netfilter.Legacy.Value = 3 }},
		{"netfilter iptables", Skipped, needsRoot, "run it as root", func(f *Facts) { f.Netfilter.NFT.Why = needsRoot }},
		{"netfilter xtables-lock", Warning, "held", "fuser", func(f *Facts) { f.Netfilter.LockHeld.Value = true }},
		{"netfilter xtables-lock", Skipped, needsRoot, "run it as root", func(f *Facts) { f.Netfilter.LockHeld.Why = needsRoot }},
		{"netfilter conntrack", Warning, "800 of 1000", "nf_conntrack_max=2000", func(f *Facts) { f.Netfilter.Conntrack.Value.Count = 800 }},
		{"netfilter conntrack", OK, "799 of 1000", "", func(f *Facts) { f.Netfilter.Conntrack.Value.Count = 799 }},
		{"netfilter conntrack", OK, "not loaded", "", func(f *Facts) { f.Netfilter.Conntrack.Value = Conntrack{} }},
		{"netfilter conntrack", Skipped, "broken", "", func(f *Facts) { f.Netfilter.Conntrack.Why = "broken" }},

		{"network port gossip.bind/udp", Failed, "taken by another process", "set gossip.bind to another port", func(f *Facts) { f.Network.Ports[0].State = PortTaken }},
		{"network port gossip.bind/udp", OK, "the running agent's", "", func(f *Facts) {
			f.Network.Ports[0].State, f.Agent = PortTaken, Agent{Answers: true, Holds: []string{"10.9.0.1:7400"}}
		}},
		{"network port gossip.bind/udp", Failed, "taken by another", "ss -lnp", func(f *Facts) {
			f.Network.Ports[0].State, f.Agent = PortTaken, Agent{Answers: true, Holds: []string{"10.9.0.1:7499"}}
		}},
		{"network port gossip.bind/udp", Skipped, "maybe by the agent", "run it as root", func(f *Facts) { f.Network.Ports[0].State, f.Agent.Denied = PortTaken, true }},
		{"network port gossip.bind/udp", Failed, "no address of this host", "set gossip.bind", func(f *Facts) { f.Network.Ports[0].State = PortAbsent }},
		{"network port gossip.bind/udp", Skipped, "may not listen", "above 1023", func(f *Facts) { f.Network.Ports[0].State = PortForbidden }},
		{"network port gossip.bind/udp", Skipped, "odd", "", func(f *Facts) { f.Network.Ports[0].State, f.Network.Ports[0].Error = PortUnclear, "odd" }},
		{"network advertise", Failed, "no address that others", "node.advertise", func(f *Facts) { f.Config.Advertise = netip.MustParseAddrPort("0.0.0.0:7400") }},
		{"network advertise", Failed, "is loopback", "node.advertise", func(f *Facts) { f.Config.Advertise = netip.MustParseAddrPort("127.0.0.1:7400") }},
		{"network advertise", Failed, "10.9.0.2:7400 cannot reach it", "gossip.bind", func(f *Facts) {
			f.Config.Advertise = netip.MustParseAddrPort("127.0.0.1:7400")
			f.Config.Bind = f.Config.Advertise
		}},
		{"network advertise", OK, "on this host only", "", func(f *Facts) {
			f.Config.Advertise = netip.MustParseAddrPort("127.0.0.1:7400")
			f.Config.Bind, f.Config.Join = f.Config.Advertise, []string{"127.0.0.2:7400"}
		}},
		{"network advertise", Warning, "no address of this host", "translation", func(f *Facts) { f.Config.Advertise = netip.MustParseAddrPort("192.0.2.1:7400") }},
		{"network vip-pool 10.200.0.0/16", Warning, "the network 10.0.0.0/8 of eth1", "vip_pools", func(f *Facts) {
			f.Network.Routes = append(f.Network.Routes, Route{"eth1", netip.MustParsePrefix("10.0.0.0/8")})
		}},
		{"network vip-pool 10.200.0.0/16", Warning, "the network 10.200.5.0/24 of eth1", "vip_pools", func(f *Facts) {
			f.Network.Addresses = append(f.Network.Addresses, Address{Device: "eth1", Prefix: netip.MustParsePrefix("10.200.5.1/24")})
		}},
		{"network mtu", Warning, "1280 bytes on eth0", "ip link set eth0 mtu 1448", func(f *Facts) { f.Network.Addresses[2].MTU = 1280 }},
		{"network mtu", OK, "1448 bytes", "", func(f *Facts) { f.Network.Addresses[2].MTU = 1448 }},
		{"network mtu", Skipped, "no device", "", func(f *Facts) { f.Network.Addresses = nil }},
		{"network sysctls", Warning, "rp_filter 1", "rp_filter=2", func(f *Facts) { f.Network.RPFilter.Value = 1 }},
		{"network sysctls", OK, "ip_forward 0", "", func(f *Facts) { f.Network.RPFilter.Value, f.Network.Forward.Value = 1, 0 }},
		{"network sysctls", Warning, "route_localnet 0", "route_localnet=1", func(f *Facts) { f.Config.Planes = []string{"iptables"} }},
		{"network sysctls", Skipped, "gone", "", func(f *Facts) { f.Network.Forward.Why = "gone" }},
		{"network clock", Warning, "nothing keeps it", "NTP", func(f *Facts) { f.Network.Clock.Value.Synchronised = false }},
		{"network clock", Warning, "wrong by 2s", "chronyc", func(f *Facts) { f.Network.Clock.Value.MaxError = 2 * time.Second }},
		{"network clock", Skipped, "no", "", func(f *Facts) { f.Network.Clock.Why = "no" }},
		{"network peer 10.9.0.2:7400", Failed, "refused", "no peer answers", func(f *Facts) { f.Network.Peers[0].TCP = "refused" }},
		{"network peer 10.9.0.2:7400", Failed, "accepts TCP, but silence", "cluster.name is prod", func(f *Facts) { f.Network.Peers[0].UDP = "silence" }},
		{"network peer 10.9.0.2:7400", Warning, "refused", "another peer answers", func(f *Facts) {
			f.Network.Peers[0].TCP = "refused"
			f.Network.Peers = append(f.Network.Peers, Peer{Addr: "10.9.0.3:7400"})
		}},
		{"network peer 10.9.0.2:7400", OK, "this node itself", "", func(f *Facts) { f.Network.Peers[0].Own, f.Network.Peers[0].TCP = true, "refused" }},

		{"network nodes", OK, "each of 2", "", func(f *Facts) {
			f.Agent.Members = []Member{{"1", "n1", "10.9.0.1:7400"}, {"2", "n2", "10.9.0.2:7400"}}
		}},
		{"network node n1", Failed, "1 at 10.9.0.1:7400 and 2 at 10.9.0.2:7400", "another node.name", func(f *Facts) {
			f.Agent.Members = []Member{{"1", "n1", "10.9.0.1:7400"}, {"2", "n1", "10.9.0.2:7400"}}
		}},
		{"network node 10.9.0.1:7400", Failed, "n1 (1) and n2 (2)", "node.advertise", func(f *Facts) {
			f.Agent.Members = []Member{{"1", "n1", "10.9.0.1:7400"}, {"2", "n2", "10.9.0.1:7400"}}
		}},

		{"storage data-dir", OK, "keeps nothing", "", func(f *Facts) { f.Config.DataDir = "" }},
		{"storage data-dir", OK, "will be made in /var/lib", "", func(f *Facts) { f.Storage.Dir = Directory{Above: "/var/lib", Writable: true} }},
		{"storage data-dir", Skipped, "may not make", "user of the agent", func(f *Facts) { f.Storage.Dir = Directory{Above: "/var/lib"} }},
		{"storage data-dir", Skipped, needsRoot, "run it as root", func(f *Facts) { f.Storage.Dir = Directory{Hidden: true} }},
		{"storage data-dir", Failed, "no directory", "node.data_dir", func(f *Facts) { f.Storage.Dir.IsDir = false }},
		{"storage data-dir", Failed, "others may write", "chmod 700", func(f *Facts) { f.Storage.Dir.Mode = 0o40770 }},
		{"storage data-dir", Skipped, "may not write", "user of the agent", func(f *Facts) { f.Storage.Dir.Writable = false }},
		{"storage data-dir", Warning, "another user", "chown", func(f *Facts) { f.Storage.Dir.Mine = false }},
		{"storage fsync", Warning, "30ms", "less than 20ms", func(f *Facts) { f.Storage.Fsync.Value = 30 * time.Millisecond }},
		{"storage fsync", Skipped, "may not", "", func(f *Facts) { f.Storage.Fsync.Why = "this user may not write it" }},
		{"process files", Warning, "1024 descriptors", "ulimit -n 65536", func(f *Facts) { f.Files.Value = 1024 }},
		{"process files", Skipped, "no", "", func(f *Facts) { f.Files.Why = "no" }},

		{"planes l7", Warning, "DEGRADED: slow", "buy more", func(f *Facts) { f.Planes[0] = Plane{"l7", "DEGRADED", "slow", "buy more"} }},
		{"planes l7", Warning, "UNSUPPORTED: no", "see `fairlead plugin probe l7`", func(f *Facts) { f.Planes[0] = Plane{"l7", "UNSUPPORTED", "no", ""} }},
		{"planes l7", Failed, "UNSUPPORTED: no", "do", func(f *Facts) { f.Config.Written, f.Planes[0] = true, Plane{"l7", "UNSUPPORTED", "no", "do"} }},
		{"planes l7", Failed, "it does not start", "see", func(f *Facts) { f.Config.Written, f.Planes[0] = true, Plane{"l7", "", "it does not start", ""} }},
		{"planes l7", Warning, "not installed", "fairlead-dataplane-l7", func(f *Facts) { f.Planes = nil }},
		{"planes l7", Failed, "not installed", "fairlead-dataplane-l7", func(f *Facts) { f.Config.Written, f.Planes = true, nil }},
		{"planes installed", Warning, "none", "off", func(f *Facts) { f.Config.Planes, f.Planes = []string{"auto"}, nil }},

		{"leftovers pins", Warning, "/sys/fs/bpf/fairlead/x, and no agent", "fairlead cleanup", func(f *Facts) { f.Leftovers.Pins.Value = []string{"/sys/fs/bpf/fairlead/x"} }},
		{"leftovers pins", OK, "an agent runs", "", func(f *Facts) { f.Leftovers.Pins.Value, f.Agent.Answers = []string{"x"}, true }},
		{"leftovers pins", Skipped, "may not ask", "run it as root", func(f *Facts) { f.Leftovers.Pins.Value, f.Agent.Denied = []string{"x"}, true }},
		{"leftovers pins", Skipped, needsRoot, "run it as root", func(f *Facts) { f.Leftovers.Pins.Why = needsRoot }},
		{"leftovers rules", Warning, "2 chains of iptables, 1 tables", "fairlead cleanup", func(f *Facts) { f.Leftovers.Chains.Value, f.Leftovers.Tables.Value = 2, 1 }},
		{"leftovers rules", Skipped, needsRoot, "run it as root", func(f *Facts) { f.Leftovers.Chains.Why = needsRoot }},
		{"leftovers rules", Skipped, "nft failed", "", func(f *Facts) { f.Leftovers.Tables.Why = "nft failed" }},
	} {
		facts := healthy()
		c.change(&facts)
		var got []Finding
		for _, f := range Evaluate(facts) {
			if f.Group+" "+f.Check == c.check {
				got = append(got, f)
			}
			if f.State != OK && f.State != Skipped && f.Fix == "" || strings.Contains(f.Fix+f.Seen, "\n") {
				t.Errorf("without one line of what to do: %+v", f)
			}
		}
		if len(got) != 1 || got[0].State != c.state || !strings.Contains(got[0].Seen, c.seen) || !strings.Contains(got[0].Fix, c.fix) || c.fix == "" && got[0].Fix != "" {
			t.Errorf("%s: %+v, want %s with %q and %q", c.check, got, c.state, c.seen, c.fix)
		}
		if c.state != OK {
			told[c.check] = true
		}
	}
	for _, f := range Evaluate(healthy()) {
		if !told[f.Group+" "+f.Check] {
			t.Errorf("no case has a value that %s %s does not pass", f.Group, f.Check)
		}
	}
}

func TestNothingToSayTwice(t *testing.T) {
	f := healthy()
	f.Kernel.Cgroup2, f.Kernel.Cgroup = nil, ""
	f.Config.DataDir, f.Storage.Fsync.Why = "", "no directory"
	for _, finding := range Evaluate(f) {
		if finding.Check == "cgroup" || finding.Check == "fsync" {
			t.Errorf("said all the same: %+v", finding)
		}
	}
}

func TestWorst(t *testing.T) {
	for want, states := range map[State][]State{OK: {OK, OK}, Skipped: {OK, Skipped}, Warning: {Warning, Skipped, OK}, Failed: {Warning, Failed, OK}} {
		var findings []Finding
		for _, s := range states {
			findings = append(findings, Finding{State: s})
		}
		if got := Worst(findings); got != want {
			t.Errorf("the worst of %v is %s", states, got)
		}
	}
}

package config

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Validate checks every value and how they fit together. [Load] has already
// called it. The origins, which may be nil, say in a message where the value
// was written.
func (c *Config) Validate(origins Origins) []error {
	v := validator{cfg: c, origins: origins}
	v.run()
	return v.errs
}

// validator gathers findings. broken holds keys whose value could not be read:
// rules about them are silent.
type validator struct {
	cfg     *Config
	origins Origins
	broken  map[string]bool
	errs    []error
	// warnings name what works but is hardly meant.
	warnings []string
}

func (v *validator) run() {
	v.node()
	v.cluster()
	v.gossip()
	v.listeners()
	v.rpc()
	v.raft()
	v.servers()
	v.store()
	v.dataplane()
	v.vipPools()
	v.dns()
	v.services()
	v.enum("log.level", v.cfg.Log.Level, "debug", "info", "warn", "error")
	v.enum("log.format", v.cfg.Log.Format, "text", "json")
	v.duration("shutdown_drain", v.cfg.ShutdownDrain, 0, 5*time.Minute)
	v.duration("shutdown_timeout", v.cfg.ShutdownTimeout, 100*time.Millisecond, 10*time.Minute)
}

// failf reports a finding about the key at path.
func (v *validator) failf(path, format string, args ...any) {
	if v.isBroken(path) {
		return
	}
	v.errs = append(v.errs, &Error{Key: path, Origin: v.origins.Of(path), Message: fmt.Sprintf(format, args...)})
}

// warnf reports what works, but is hardly meant, about the key at path.
func (v *validator) warnf(path, format string, args ...any) {
	if !v.isBroken(path) {
		v.warnings = append(v.warnings, fmt.Sprintf("%s: %s ", v.origins.Of(path), path)+fmt.Sprintf(format, args...))
	}
}

// isBroken says whether the value at path, a list around it, an item in it, or
// a neighbour in the same list entry could not be read.
func (v *validator) isBroken(path string) bool {
	for key := range v.broken {
		if key == "" {
			continue
		}
		if key == path || strings.HasPrefix(path, key+"[") || strings.HasPrefix(key, path+"[") {
			return true
		}
		if entry := key[:strings.LastIndexByte(key, ']')+1]; entry != "" && (path == entry || strings.HasPrefix(path, entry+".")) {
			return true
		}
	}
	return false
}

func (v *validator) node() {
	n := v.cfg.Node
	if n.Name == "" && v.origins.Of("node.name").Layer == LayerDefault {
		v.failf("node.name", "is not set and this host has no name; set node.name")
	} else {
		v.name("node.name", n.Name)
	}
	if n.DataDir == "" && !n.InMemory {
		v.failf("node.data_dir", "is empty; name a directory, or set node.in_memory: true for a node without state")
	}
	if !n.Advertise.IsSet() {
		if bind := v.cfg.Gossip.Bind; bind.IsValid() && bind.Addr().IsUnspecified() && !v.isBroken("gossip.bind") {
			v.failf("node.advertise", "is needed because gossip.bind is %s, which names no address; set node.advertise to this host's IP address", bind)
		}
		return
	}
	switch addr := n.Advertise.Addr(); {
	case addr.IsUnspecified():
		v.failf("node.advertise", "is %s, which no other node can reach; set one IP address of this host", n.Advertise)
	case addr.IsMulticast() || addr == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		v.failf("node.advertise", "is %s, which is not the address of one host; set one IP address of this host", n.Advertise)
	case addr.Zone() != "":
		v.failf("node.advertise", "is %s, but the zone %q means nothing on other hosts; set an address without a zone", n.Advertise, addr.Zone())
	case !addr.IsLoopback() && v.cfg.Gossip.Bind.Addr().IsLoopback():
		v.warnf("node.advertise", "is %s, but gossip.bind %s listens on loopback only, so other hosts reach it only through a redirect; set gossip.bind", n.Advertise, v.cfg.Gossip.Bind)
	case addr.IsLoopback() && v.cfg.Gossip.Bind.IsValid() && !v.cfg.Gossip.Bind.Addr().IsLoopback() && !v.cfg.Gossip.Bind.Addr().IsUnspecified():
		v.failf("node.advertise", "is the loopback address %s, but gossip.bind %s does not listen there; set an address that reaches the bind address", n.Advertise, v.cfg.Gossip.Bind)
	}
}

func (v *validator) cluster() {
	c := v.cfg.Cluster
	v.name("cluster.name", c.Name)
	for i, entry := range c.Join {
		if _, err := joinAddress(entry); err != nil {
			v.failf(fmt.Sprintf("cluster.join[%d]", i), "is %s; %s", quote(entry), err)
		}
	}
	if c.BootstrapExpect < AutomaticBootstrap || c.BootstrapExpect > 9 {
		v.failf("cluster.bootstrap_expect", "is %d; set 1 to 9 servers that form the cluster, 0 to wait to be added, or -1 for automatic", c.BootstrapExpect)
	}
}

func (v *validator) gossip() {
	g := v.cfg.Gossip
	switch {
	case !g.Bind.IsValid():
		v.failf("gossip.bind", "is empty; a node without gossip is in no cluster, set ip:port such as 127.0.0.1:7400")
	case g.Bind.Addr().IsMulticast():
		v.failf("gossip.bind", "is the multicast address %s; set an address of this host", g.Bind)
	case !g.Bind.Addr().IsLoopback() && !g.Insecure && !v.isBroken("gossip.insecure"):
		v.failf("gossip.bind", "is %s, beyond loopback, but gossip is not encrypted yet: anyone who reaches the port can forge membership; "+
			"protect the port by other means and set gossip.insecure: true, or bind to 127.0.0.1", g.Bind)
	}
	v.enum("gossip.profile", g.Profile, "lan", "wan", "local")
}

// maxSocketPath is api.MaxSocketPath: a path has to fit into sockaddr_un, with
// room for what tools append to it.
const maxSocketPath = 100

func (v *validator) listeners() {
	api := v.cfg.API
	if listen := api.Listen.AddrPort(); !api.Listen.Off() && !listen.Addr().IsLoopback() && api.TLS.Cert == "" && !api.Insecure &&
		!v.isBroken("api.insecure") && !v.isBroken("api.tls.cert") {
		v.failf("api.listen", "is %s, beyond loopback, without TLS: whoever reaches the port controls the agent; "+
			"set api.tls.cert and api.tls.key, or api.insecure: true, or listen on 127.0.0.1", api.Listen)
	}
	v.pair("api.tls.cert", api.TLS.Cert, "api.tls.key", api.TLS.Key)
	if api.TLS.ClientCA != "" && api.TLS.Cert == "" {
		v.failf("api.tls.client_ca", "is set without api.tls.cert; client certificates need TLS, set api.tls.cert and api.tls.key")
	}
	if length := len(api.SocketPath()); length > maxSocketPath {
		v.failf("api.socket", "has %d bytes, but the path of a Unix socket may have %d here; set a shorter one", length, maxSocketPath)
	}
	v.distinctPorts()
}

// distinctPorts finds two listeners of ours on one TCP address, which the
// kernel would report as a port in use without saying by whom.
func (v *validator) distinctPorts() {
	taken := map[netip.AddrPort]string{}
	for _, l := range []struct {
		path string
		addr netip.AddrPort
	}{
		{"gossip.bind", v.cfg.Gossip.Bind},
		{"rpc.listen", v.cfg.RPC.Listen.AddrPort()},
		{"api.listen", v.cfg.API.Listen.AddrPort()},
		{"http.listen", v.cfg.HTTP.Listen.AddrPort()},
		{"dns.listen", v.cfg.DNS.Listen.AddrPort()},
	} {
		if !l.addr.IsValid() || l.addr.Port() == 0 {
			continue
		}
		if other, ok := taken[l.addr]; ok && !v.isBroken(other) {
			v.failf(l.path, "is %s, which %s (%s) uses too; set another port", l.addr, other, v.origins.Of(other))
			continue
		}
		taken[l.addr] = l.path
	}
}

func (v *validator) raft() {
	r := v.cfg.Raft
	v.duration("raft.heartbeat", r.Heartbeat, 10*time.Millisecond, 10*time.Second)
	v.duration("raft.election", r.Election, 50*time.Millisecond, time.Minute)
	if r.Election < 5*r.Heartbeat && !v.isBroken("raft.heartbeat") {
		v.failf("raft.election", "is %s, less than 5 heartbeats of %s, so that a few late packets would cost the leader its term; raise raft.election or lower raft.heartbeat",
			formatDuration(r.Election), formatDuration(r.Heartbeat))
	}
	if r.Voters < 1 || r.Voters > 9 || r.Voters%2 == 0 {
		v.failf("raft.voters", "is %d; set 1, 3, 5, 7 or 9: an even number of voters survives no more failures than one less", r.Voters)
	}
}

func (v *validator) store() {
	s := v.cfg.Store
	v.enum("store.kind", s.Kind, "embedded", "etcd")
	for i, e := range s.Endpoints {
		hostport := strings.TrimPrefix(strings.TrimPrefix(e, "http://"), "https://")
		if _, err := splitHostPort(hostport); err != nil {
			v.failf(fmt.Sprintf("store.endpoints[%d]", i), "is %s; set host:port or http(s)://host:port", quote(e))
		}
	}
	switch {
	case v.isBroken("store.kind"):
	case s.Kind == "etcd" && len(s.Endpoints) == 0:
		v.failf("store.endpoints", "is empty, but store.kind is etcd; name the etcd cluster's addresses, such as 10.9.0.5:2379")
	case s.Kind == "embedded" && len(s.Endpoints) != 0:
		v.failf("store.endpoints", "is set, but store.kind is embedded and would ignore it; set store.kind: etcd, or remove the endpoints")
	}
	v.pair("store.tls.cert", s.TLS.Cert, "store.tls.key", s.TLS.Key)
}

// dataplane checks the names. Whether two providers would capture the same
// connections only they know, with their settings: the plugin host asks them.
func (v *validator) dataplane() {
	for i, name := range v.cfg.Dataplane {
		switch {
		case !isPluginName(name):
			v.failf("dataplane", "names the provider %s; a name has 1 to 63 lower-case letters, digits and hyphens", quote(name))
		case name == off:
			v.failf("dataplane", "holds off beside other names; set off alone, or remove it")
		case slices.Index(v.cfg.Dataplane, name) < i:
			v.failf("dataplane", "names %s twice; keep one", name)
		}
	}
	v.strayPlugins()
}

// strayPlugins warns of settings for plugins that do not run, which may be those
// of a misspelled name. What auto takes is not known yet; who wrote off means to
// keep the settings for later.
func (v *validator) strayPlugins() {
	if len(v.cfg.Dataplane) == 0 || slices.Contains(v.cfg.Dataplane, "auto") {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(v.cfg.Plugins)) {
		if !slices.Contains(v.cfg.Dataplane, name) {
			v.warnings = append(v.warnings, fmt.Sprintf("plugins.%s has no effect, because dataplane does not name %s; correct the name, or add it to dataplane", name, name))
		}
	}
}

func (v *validator) vipPools() {
	pools := v.cfg.VIPPools
	for i, p := range pools {
		path := fmt.Sprintf("vip_pools[%d]", i)
		switch {
		case !p.IsValid():
			v.failf(path, "is empty; set a prefix such as 10.200.0.0/16")
			continue
		case p != p.Masked():
			v.failf(path, "is %s, which has bits beyond the prefix length; set %s", p, p.Masked())
		case p.Addr().IsLoopback() || p.Addr().IsMulticast() || p.Addr().IsUnspecified() || p.Addr().IsLinkLocalUnicast():
			v.failf(path, "is %s; a VIP cannot be a loopback, link-local, multicast or unspecified address, set a private prefix such as 10.200.0.0/16", p)
		case p.Addr().BitLen()-p.Bits() < 2:
			v.failf(path, "is %s, with room for no VIP beside the network's own addresses; set a shorter prefix", p)
		}
		for j := range i {
			if pools[j].IsValid() && pools[j].Overlaps(p) {
				v.failf(path, "is %s, which overlaps %s of vip_pools[%d]; set separate prefixes", p, pools[j], j)
			}
		}
	}
}

func (v *validator) dns() {
	zone := strings.TrimSuffix(v.cfg.DNS.Zone, ".")
	for label := range strings.SplitSeq(zone, ".") {
		if !isLabel(label) {
			v.failf("dns.zone", "is %s; set a domain of labels with letters, digits and hyphens, such as mesh.internal", quote(v.cfg.DNS.Zone))
			return
		}
	}
	if len(zone) > 200 {
		v.failf("dns.zone", "has %d bytes, which leaves no room for service names; set at most 200", len(zone))
	}
}

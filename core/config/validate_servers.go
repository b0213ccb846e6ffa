package config

import (
	"fmt"
	"net/netip"
	"slices"
)

// Bounds of the limits of rpc., which are those of package transport.
const (
	maxHandshakes = 4096
	minFrameBytes = 64 << 10
	maxFrameBytes = 16 << 20
	minQueueBytes = 1 << 20
	maxQueueBytes = 1 << 30
)

// maxServers bounds a static set: each write waits for more than half of it.
const maxServers = 9

func (v *validator) rpc() {
	r := v.cfg.RPC
	if !r.Listen.Off() && v.cfg.Cluster.SecretFile == "" && !v.isBroken("cluster.secret_file") {
		v.failf("rpc.listen", "is %s, but there is no cluster.secret_file, and agents speak to each other under mutual TLS only; set it to a file that `fairlead keygen --out FILE` made, or remove rpc.listen", r.Listen)
	}
	v.between("rpc.max_handshakes", r.MaxHandshakes, 1, maxHandshakes)
	v.between("rpc.max_frame_bytes", r.MaxFrameBytes, minFrameBytes, maxFrameBytes)
	v.between("rpc.max_queue_bytes", r.MaxQueueBytes, minQueueBytes, maxQueueBytes)
}

func (v *validator) between(path string, n, low, high int) {
	if n < low || n > high {
		v.failf(path, "is %d; set %d to %d", n, low, high)
	}
}

// servers checks the static set, and what it needs of other keys.
func (v *validator) servers() {
	peers := v.cfg.Raft.Peers
	if len(peers) == 0 {
		return
	}
	v.peers(peers)
	if v.isBroken("raft.peers") {
		return
	}
	switch n := len(peers); {
	case n > maxServers:
		v.failf("raft.peers", "has %d servers; set at most %d: each write waits for more than half of them", n, maxServers)
	case n%2 == 0:
		v.warnf("raft.peers", "has %d servers, which survive no more failures than %d; set an odd number", n, n-1)
	}
	if v.cfg.Store.Kind == "etcd" && !v.isBroken("store.kind") {
		v.failf("raft.peers", "is set, but store.kind is etcd, which has servers of its own; remove one of the two")
	}
	if n := v.cfg.Cluster.BootstrapExpect; n != AutomaticBootstrap {
		v.failf("cluster.bootstrap_expect", "is %d, but raft.peers names the servers, which form the cluster without it; remove one of the two", n)
	}
	if v.isBroken("node.name") {
		return
	}
	own := slices.IndexFunc(peers, func(p RaftPeer) bool { return p.Name == v.cfg.Node.Name })
	if len(peers) > 1 || own < 0 {
		v.needsSecret()
	}
	if own < 0 {
		v.noServer()
		return
	}
	v.ownPeer(own)
}

// peers checks the entries one by one.
func (v *validator) peers(peers []RaftPeer) {
	names, addrs := map[string]int{}, map[netip.AddrPort]int{}
	for i, p := range peers {
		path := fmt.Sprintf("raft.peers[%d]", i)
		v.name(path+".name", p.Name)
		if j, dup := names[p.Name]; dup {
			v.failf(path+".name", "is %s, like that of raft.peers[%d]; names are unique", quote(p.Name), j)
		}
		plain := netip.AddrPortFrom(p.Addr.Addr().Unmap(), p.Addr.Port()) // ::ffff:10.9.0.1 is 10.9.0.1
		if j, dup := addrs[plain]; dup && p.Addr.IsValid() {
			v.failf(path+".addr", "is %s, like that of raft.peers[%d]; addresses are unique", p.Addr, j)
		}
		names[p.Name], addrs[plain] = i, i
		if !p.Addr.IsValid() || p.Addr.Addr().IsUnspecified() || p.Addr.Addr().IsMulticast() || p.Addr.Port() == 0 {
			v.failf(path+".addr", "is %s; set the server's rpc.listen address as others reach it, such as 10.9.0.1:7401", quote(addrText(p.Addr)))
		}
	}
}

func (v *validator) needsSecret() {
	if v.cfg.Cluster.SecretFile == "" && !v.isBroken("cluster.secret_file") {
		v.failf("raft.peers", "names other nodes, which are reached under mutual TLS only; set cluster.secret_file, the same on all, to a file that `fairlead keygen --out FILE` made")
	}
}

// noServer is about a node that is not in the set.
func (v *validator) noServer() {
	if v.cfg.Cluster.Server && v.origins.Of("cluster.server").Layer != LayerDefault {
		v.warnf("cluster.server", "is true, but raft.peers names no %s, so this node is no server; correct node.name or raft.peers", v.cfg.Node.Name)
	}
}

// ownPeer is about a node that is in the set.
func (v *validator) ownPeer(own int) {
	path := fmt.Sprintf("raft.peers[%d]", own)
	if !v.cfg.Cluster.Server && !v.isBroken("cluster.server") {
		v.failf(path, "is this node, but cluster.server is false; set cluster.server: true, or take the node out of raft.peers on every node")
		return
	}
	if len(v.cfg.Raft.Peers) == 1 || v.isBroken("rpc.listen") {
		return
	}
	// Without a secret it is off by itself, which was reported.
	switch listen := v.cfg.RPC.Listen; {
	case listen.Off() && v.cfg.Cluster.SecretFile != "":
		v.failf("rpc.listen", "is off, but raft.peers names this node a server, which the others have to reach; set it to the address in %s or remove it", path)
	case !listen.Off() && listen.AddrPort().Port() != v.cfg.Raft.Peers[own].Addr.Port():
		v.warnf(path, "says that this node is reached at %s, but rpc.listen is %s, so the others reach it only through a redirect; set the same port", v.cfg.Raft.Peers[own].Addr, listen)
	}
	if v.cfg.Node.InMemory {
		v.warnf("node.in_memory", "is true on a server of several: when it is restarted it has forgotten what it voted for and stored, so writes that were acknowledged can be lost; this is for trials only")
	}
}

package l4

import (
	"errors"
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

// world is the network in which a plane is tested: the host that it runs on, a
// container whose packets that host forwards, and a host elsewhere. A packet
// that nobody translated goes into the void, which never answers.
//
//	container ── host ── remote
//	 10.88.1.2    │     10.88.2.2
//	             void
type world struct {
	host, container, remote, void *space
	ipv6                          bool
}

// addresses of the namespaces; the host's are those toward the container.
func (w *world) addr(s *space, v6 bool) netip.Addr {
	net, host := 1, 1
	switch s {
	case w.container:
		host = 2
	case w.remote:
		net, host = 2, 2
	}
	if v6 {
		return netip.MustParseAddr(fmt.Sprintf("fd88:%d::%d", net, host))
	}
	return netip.AddrFrom4([4]byte{10, 88, byte(net), byte(host)})
}

func newWorld() (*world, error) {
	w := &world{}
	_, err := os.Stat("/proc/sys/net/ipv6")
	w.ipv6 = err == nil
	if w.host, err = newSpace("host", unix.CLONE_NEWNS, privateMounts); err != nil {
		return nil, err
	}
	for name, s := range map[string]**space{"container": &w.container, "remote": &w.remote, "void": &w.void} {
		if *s, err = newSpace(name, 0, nil); err != nil {
			w.close()
			return nil, err
		}
	}
	if err := w.wire(); err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

// privateMounts gives the host a BPF file system and a /run of its own, so that
// pins and lock files are those of this world.
func privateMounts() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("bpf", "/sys/fs/bpf", "bpf", 0, "mode=0700"); err != nil && !errors.Is(err, unix.ENODEV) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("mount a BPF file system: %w", err)
	}
	if err := unix.Mount("tmpfs", "/run", "tmpfs", 0, "mode=0755"); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("mount /run: %w", err)
	}
	return nil
}

func (w *world) wire() error {
	common := map[string]string{
		// Containers often forbid IPv6 in new namespaces.
		"ipv6/conf/all/disable_ipv6": "0", "ipv6/conf/default/disable_ipv6": "0",
		// Addresses work at once, and nobody asks for routers that do not exist.
		"ipv6/conf/default/accept_dad": "0", "ipv6/conf/default/accept_ra": "0", "ipv6/conf/default/router_solicitations": "0",
		// What is refused is refused each time, not a few times a second.
		"ipv4/icmp_ratelimit": "0", "ipv6/icmp/ratelimit": "0", "ipv4/icmp_msgs_per_sec": "1000000", "ipv4/icmp_msgs_burst": "1000000",
	}
	for _, s := range []*space{w.host, w.container, w.remote, w.void} {
		if err := errors.Join(s.set(common), s.ip("link set lo up")); err != nil {
			return err
		}
	}
	lines := []string{
		"link add c type veth peer name eth0 netns " + w.container.pid(),
		"link add r type veth peer name eth0 netns " + w.remote.pid(),
		"link add out type veth peer name eth0 netns " + w.void.pid(),
	}
	for i, dev := range []string{"c", "r", "out"} {
		lines = append(lines, fmt.Sprintf("addr add 10.88.%d.1/24 dev %s", i+1, dev), fmt.Sprintf("link set %s up", dev))
		if w.ipv6 {
			lines = append(lines, fmt.Sprintf("addr add fd88:%d::1/64 dev %s nodad", i+1, dev))
		}
	}
	if err := w.host.ip(lines...); err != nil {
		return err
	}
	for i, s := range []*space{w.container, w.remote, w.void} {
		lines := []string{fmt.Sprintf("addr add 10.88.%d.2/24 dev eth0", i+1), "link set eth0 up"}
		if w.ipv6 {
			lines = append(lines, fmt.Sprintf("addr add fd88:%d::2/64 dev eth0 nodad", i+1))
		}
		if s != w.void {
			lines = append(lines, fmt.Sprintf("route add default via 10.88.%d.1", i+1))
		}
		if s != w.void && w.ipv6 {
			lines = append(lines, fmt.Sprintf("route add ::/0 via fd88:%d::1", i+1))
		}
		if err := s.ip(lines...); err != nil {
			return err
		}
	}
	// The void is a neighbour that is not there.
	lines = []string{
		"neigh add 10.88.3.9 lladdr 02:00:00:00:00:99 dev out nud permanent",
		"route add default via 10.88.3.9",
	}
	if w.ipv6 {
		lines = append(lines, "neigh add fd88:3::9 lladdr 02:00:00:00:00:99 dev out nud permanent", "route add ::/0 via fd88:3::9")
	}
	if err := w.host.ip(lines...); err != nil {
		return err
	}
	return w.host.set(map[string]string{"ipv4/ip_forward": "1", "ipv6/conf/all/forwarding": "1"})
}

func (w *world) close() {
	for _, s := range []*space{w.void, w.remote, w.container, w.host} {
		if s != nil {
			s.close()
		}
	}
}

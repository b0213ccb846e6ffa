package l4

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/dataplane"
)

func clientChecks() []Check {
	return []Check{
		{
			ID: "client.hairpin", Demand: "An instance on the host reaches itself by its VIP.",
			Remedy: "an instance that is its own client must see its answers come back through the plane: masquerade such connections", local: true, run: hairpin,
		},
		{
			ID: "client.hairpin-container", Demand: "An instance in a container reaches itself by its VIP, TCP and UDP.",
			Remedy: "masquerade connections whose endpoint is the client itself", needs: []Feature{Containers}, run: hairpinContainer,
		},
		{
			ID: "client.foreign", Demand: "A client in another network namespace is led to the foreign address of an endpoint, one on the host to its address. An endpoint that has only a loopback address is not offered elsewhere.",
			Remedy: "choose between address and address_foreign by where the client is", needs: []Feature{Containers}, run: foreignAddress,
		},
		{
			ID: "client.everywhere", Demand: "Endpoints on the host, in a container and on another host are reached from the host and from containers.",
			Remedy: "see to it that the answers come back through the plane", run: everywhere,
		},
		{
			ID: "client.bound", Demand: "A socket that is bound to an address of the host reaches a service as any other.",
			Remedy: "masquerade only where it is needed, and after the choice", local: true, run: boundClient,
		},
		{
			ID: "client.io-uring", Demand: "A socket that is connected by io_uring reaches an instance, and shows the VIP as its peer.",
			Remedy: "capture the connection where io_uring comes by as well", run: uringReaches,
		},
		{
			ID: "client.check", Demand: "A health check of the agent, which dials a VIP from the host and hangs up, reaches an instance each time, and the plane's own health is READY with and without endpoints.",
			Remedy: "treat the agent's own connections as any other; a service without endpoints is no failure of the data path", local: true, run: agentCheck,
		},
		{
			ID: "client.ping", Demand: "A VIP is an address of services, not of a host: ping is not answered.",
			Remedy: "do not give a device the VIP", needs: []Feature{Silent}, run: ping,
		},
		{
			ID: "client.conntrack", Demand: "Connections to a VIP take no entry in the tables of conntrack.",
			Remedy: "exclude it by the profile, if the plane is NAT", needs: []Feature{ConntrackFree}, run: conntrack,
		},
		{
			ID: "client.two-vips", Demand: "An endpoint behind two VIPs is reached by either, from one address, without a mix-up of answers.",
			Remedy: "let the source port change where two connections would look the same to the endpoint", run: twoVIPs,
		},
	}
}

func hairpin(g *rig) error {
	var err error
	for _, v6 := range g.families() {
		in, listen := g.instance(g.world.host, "tcp", "self", v6)
		if listen != nil {
			return listen
		}
		in.at.Addr = in.at.Foreign()
		svc := g.service(g.vip(v6, 80), "tcp", in)
		if err := g.apply(svc); err != nil {
			return err
		}
		err = errors.Join(err, g.expect(g.at(g.world.host).boundTo(in.at.Addr.Addr()), "tcp", svc.Frontends[0].Addr, "self"))
	}
	return err
}

func hairpinContainer(g *rig) error {
	var err error
	for _, v6 := range g.families() {
		for _, network := range []string{"tcp", "udp"} {
			if network == "udp" && !g.has(UDP) {
				continue
			}
			in, listen := g.instance(g.world.container, network, "self", v6)
			if listen != nil {
				return listen
			}
			svc := g.service(g.vip(v6, 80), network, in)
			if err := g.apply(svc); err != nil {
				return err
			}
			err = errors.Join(err, g.expect(g.at(g.world.container), network, svc.Frontends[0].Addr, "self"))
		}
	}
	return err
}

func foreignAddress(g *rig) error {
	home, err := g.instance(g.world.host, "tcp", "home", false)
	if err != nil {
		return err
	}
	outside, err := g.instance(g.world.remote, "tcp", "outside", false)
	if err != nil {
		return err
	}
	home.at.AddrForeign = outside.at.Addr
	svc := g.service(g.vip(false, 80), "tcp", home)
	near, err := g.instance(g.world.host, "tcp", "near", false)
	if err != nil {
		return err
	}
	near.at.AddrForeign = netip.AddrPort{}
	only := g.service(g.vip(false, 80), "tcp", near)
	if err := g.apply(svc, only); err != nil {
		return err
	}
	c := g.at(g.world.container)
	err = errors.Join(g.expect(c, "tcp", svc.Frontends[0].Addr, "outside"), g.refused(c, only.Frontends[0].Addr))
	if g.local() {
		err = errors.Join(err, g.expect(g.at(g.world.host), "tcp", svc.Frontends[0].Addr, "home"))
	}
	return err
}

func everywhere(g *rig) error {
	for _, v6 := range g.families() {
		for _, s := range []*space{g.world.host, g.world.container, g.world.remote} {
			in, err := g.instance(s, "tcp", s.name, v6)
			if err != nil {
				return err
			}
			svc := g.service(g.vip(v6, 80), "tcp", in)
			if err := g.apply(svc); err != nil {
				return err
			}
			for _, c := range g.clients() {
				if err := g.expect(c, "tcp", svc.Frontends[0].Addr, s.name); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func boundClient(g *rig) error {
	var err error
	for _, v6 := range g.families() {
		in, listen := g.instance(g.world.remote, "tcp", "far", v6)
		if listen != nil {
			return listen
		}
		svc := g.service(g.vip(v6, 80), "tcp", in)
		if err := g.apply(svc); err != nil {
			return err
		}
		c := g.at(g.world.host).boundTo(g.world.addr(g.world.host, v6))
		err = errors.Join(err, g.expect(c, "tcp", svc.Frontends[0].Addr, "far"))
	}
	return err
}

func uringReaches(g *rig) error {
	for _, v6 := range g.families() {
		in, err := g.instance(g.world.host, "tcp", "in", v6)
		if err != nil {
			return err
		}
		svc := g.service(g.vip(v6, 80), "tcp", in)
		if err := g.apply(svc); err != nil {
			return err
		}
		to := svc.Frontends[0].Addr
		for _, c := range g.clients() {
			fd, err := c.socket("tcp", v6)
			if err != nil {
				return err
			}
			err = uringConnect(c, fd, to)
			peer, peerErr := unix.Getpeername(fd)
			_ = unix.Close(fd)
			if err := errors.Join(err, peerErr); err != nil {
				return fmt.Errorf("%s from %s: %w", to, c.space.name, err)
			}
			if at := addrPort(peer); g.has(Peer) && at != to {
				return fmt.Errorf("%s from %s: the peer shows as %s", to, c.space.name, at)
			}
		}
	}
	return nil
}

func agentCheck(g *rig) error {
	in, err := g.instance(g.world.host, "tcp", "in", false)
	if err != nil {
		return err
	}
	full, empty := g.service(g.vip(false, 80), "tcp", in), g.service(g.vip(false, 80), "tcp")
	if err := g.apply(full, empty); err != nil {
		return err
	}
	c := g.at(g.world.host)
	for range 20 {
		conn, err := c.dial("tcp", full.Frontends[0].Addr, c.answer)
		if err != nil {
			return fmt.Errorf("a check of a VIP: %w", err)
		}
		_ = conn.Close() // in good order, as a check does
	}
	if err := g.refused(c, empty.Frontends[0].Addr); err != nil {
		return err
	}
	return g.within(g.endTime(), func() error {
		h, err := g.provider.health(g.ctx)
		if err == nil && h.State != dataplane.HealthReady {
			err = fmt.Errorf("health is %v %v, want READY", h.State, h.Reasons)
		}
		return err
	})
}

// ping sends an echo request to a VIP and wants no reply.
func ping(g *rig) error {
	in, err := g.instance(g.world.host, "tcp", "in", false)
	if err != nil {
		return err
	}
	svc := g.service(g.vip(false, 80), "tcp", in)
	if err := g.apply(svc); err != nil {
		return err
	}
	for _, c := range g.clients() {
		self, err := echo(c, g.world.addr(g.world.remote, false), c.answer)
		if err != nil || !self {
			return fmt.Errorf("l4: ping from %s to the other host: %v, %w", c.space.name, self, orNone(err))
		}
		answered, err := echo(c, svc.Frontends[0].Addr.Addr(), silence)
		if err != nil {
			return err
		}
		if answered {
			return fmt.Errorf("%s answers ping from %s", svc.Frontends[0].Addr.Addr(), c.space.name)
		}
	}
	return nil
}

// echo reports whether an address answers to ping.
func echo(c client, to netip.Addr, timeout time.Duration) (bool, error) {
	fd := -1
	err := c.space.do(func() (err error) {
		fd, err = unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMP)
		return err
	})
	if err != nil {
		return false, err
	}
	defer unix.Close(fd)
	request := []byte{8, 0, 0, 0, 0x4f, 0x4c, 0, 1}
	sum := checksum(request)
	request[2], request[3] = byte(sum>>8), byte(sum)
	if err := unix.Sendto(fd, request, 0, &unix.SockaddrInet4{Addr: to.As4()}); err != nil {
		return false, nil // nobody knows a way
	}
	for {
		if err := await(fd, unix.POLLIN, timeout); errors.Is(err, os.ErrDeadlineExceeded) {
			return false, nil
		} else if err != nil {
			return false, err
		}
		b := make([]byte, 256)
		n, _, err := unix.Recvfrom(fd, b, unix.MSG_DONTWAIT)
		if err != nil {
			return false, err
		}
		if n >= 28 && b[20] == 0 && bytes.Equal(b[24:28], request[4:8]) {
			return true, nil
		}
	}
}

// checksum is that of the Internet protocols.
func checksum(b []byte) uint16 {
	var sum uint32
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(b[i])<<8 | uint32(b[i+1])
	}
	for sum>>16 != 0 {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

func conntrack(g *rig) error {
	in, err := g.instance(g.world.remote, "tcp", "far", false)
	if err != nil {
		return err
	}
	svc := g.service(g.vip(false, 80), "tcp", in)
	if err := g.apply(svc); err != nil {
		return err
	}
	before, err := g.tracked()
	if err != nil {
		return err
	}
	for _, c := range g.clients() {
		if _, err := g.count(c, "tcp", svc.Frontends[0].Addr, 20); err != nil {
			return err
		}
	}
	after, err := g.tracked()
	if err == nil && after > before {
		err = fmt.Errorf("conntrack had %d entries before, %d after connects to a VIP", before, after)
	}
	return err
}

// tracked is the number of entries of conntrack on the host.
func (g *rig) tracked() (n int, err error) {
	err = g.world.host.do(func() error {
		b, err := os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_count")
		if errors.Is(err, os.ErrNotExist) {
			return nil // there is no conntrack
		}
		if err == nil {
			n, err = strconv.Atoi(string(bytes.TrimSpace(b)))
		}
		return err
	})
	return n, err
}

func twoVIPs(g *rig) error {
	in, err := g.instance(g.world.remote, "tcp", "far", false)
	if err != nil {
		return err
	}
	a, b := g.service(g.vip(false, 80), "tcp", in), g.service(g.vip(false, 80), "tcp", in)
	if err := g.apply(a, b); err != nil {
		return err
	}
	for _, c := range g.clients() {
		for range g.scaled(1000, 20) {
			// Two connections at a time, from ports that may be the same.
			one, _, err := g.open(c, "tcp", a.Frontends[0].Addr)
			if err != nil {
				return err
			}
			two, _, err := g.open(c, "tcp", b.Frontends[0].Addr)
			if err != nil {
				return err
			}
			if err := errors.Join(g.alive(one), g.alive(two)); err != nil {
				return err
			}
			hangUp(one)
			hangUp(two)
		}
	}
	return nil
}

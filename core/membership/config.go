package membership

import (
	"context"
	crand "crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/core/swim"
)

// ErrConfig is wrapped by every refusal of a Config.
var ErrConfig = errors.New("membership: bad configuration")

// DefaultPort is the gossip port of a join entry that names none.
const DefaultPort = 7400

// Config says who this node is and where it finds the others.
type Config struct {
	// Name is the node's name, 1–63 bytes, unique among live members.
	Name string

	// Bind is the address of the one port that UDP and TCP share. Port 0 takes
	// a port that is free for both; LocalAddr tells which.
	Bind netip.AddrPort

	// Advertise is the address that others are told. Zero means the bound
	// address, port 0 the bound port. It must not be unspecified: if Bind is
	// (0.0.0.0, ::) and Advertise is zero, the host's only global address is
	// taken, and more or fewer than one is an error.
	Advertise netip.AddrPort

	// DataDir holds id, boot counter and peers file. Empty keeps everything in
	// memory: each start is then a new node.
	DataDir string

	// Cluster names the cluster; it is Swim.Cluster if that is empty.
	Cluster string

	// Join lists contacts as host:port, host or address; DefaultPort if none is
	// named. Host names are resolved again while this node is alone. A name
	// that does not resolve is a warning. The own address is ignored.
	Join []string

	// Swim holds the protocol's knobs, usually swim.DefaultLAN().
	Swim swim.Config

	// Transport carries packets and streams; nil means UDP and TCP on Bind.
	// Start takes it over and Close closes it, also when Start fails.
	Transport Transport

	// Log receives one line per transition; nil discards.
	Log *slog.Logger

	// Metrics registers the counters of metrics.go until Close; nil keeps them
	// private.
	Metrics prometheus.Registerer

	// Now is the clock, time.Now if nil. It must carry a monotonic reading.
	Now func() time.Time

	// Rand drives the protocol's choices; nil seeds one from the system.
	Rand *rand.Rand

	// Resolve looks up a host name; nil asks the system's resolver.
	Resolve func(ctx context.Context, host string) ([]netip.Addr, error)
}

// withDefaults returns c with every nil replaced, or the first rule it breaks.
func (c Config) withDefaults() (Config, error) {
	if c.Name == "" {
		return c, fmt.Errorf("%w: Name is empty: every node needs a name, such as its host name", ErrConfig)
	}
	switch {
	case c.Swim.Cluster == "":
		c.Swim.Cluster = c.Cluster
	case c.Cluster == "":
		c.Cluster = c.Swim.Cluster
	case c.Cluster != c.Swim.Cluster:
		return c, fmt.Errorf("%w: Cluster is %q but Swim.Cluster is %q: set one of them", ErrConfig, c.Cluster, c.Swim.Cluster)
	}
	if err := c.Swim.Validate(); err != nil {
		return c, fmt.Errorf("membership: %w", err)
	}
	if c.Transport == nil && !c.Bind.Addr().IsValid() {
		return c, fmt.Errorf("%w: Bind is no address: want ip:port", ErrConfig)
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Resolve == nil {
		c.Resolve = func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		}
	}
	if c.Rand == nil {
		var seed [16]byte
		if _, err := crand.Read(seed[:]); err != nil {
			return c, fmt.Errorf("membership: seed the random source: %w", err)
		}
		c.Rand = rand.New(rand.NewPCG(binary.LittleEndian.Uint64(seed[:8]), binary.LittleEndian.Uint64(seed[8:])))
	}
	return c, nil
}

// advertised decides which address others are told.
func advertised(want, bound netip.AddrPort, interfaceAddrs func() ([]netip.Addr, error)) (netip.AddrPort, error) {
	ip, port := want.Addr().Unmap(), want.Port()
	if !want.Addr().IsValid() {
		ip = bound.Addr().Unmap()
	}
	if port == 0 {
		port = bound.Port()
	}
	if !ip.IsUnspecified() {
		return netip.AddrPortFrom(ip.WithZone(""), port), nil
	}
	addrs, err := interfaceAddrs()
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("membership: list the addresses of this host: %w: set node.advertise", err)
	}
	var found []netip.Addr
	for _, a := range addrs {
		a = a.Unmap()
		if a.IsGlobalUnicast() && (ip.Is6() || a.Is4()) {
			found = append(found, a)
		}
	}
	if len(found) != 1 {
		return netip.AddrPort{}, fmt.Errorf("%w: gossip is bound to %v and this host has %d addresses to choose from %v: set node.advertise to the one that others reach",
			ErrConfig, bound, len(found), found)
	}
	return netip.AddrPortFrom(found[0], port), nil
}

// interfaceAddrs lists the addresses of this host's interfaces.
func interfaceAddrs() ([]netip.Addr, error) {
	nets, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	var out []netip.Addr
	for _, n := range nets {
		if p, err := netip.ParsePrefix(n.String()); err == nil {
			out = append(out, p.Addr().Unmap())
		}
	}
	return out, nil
}

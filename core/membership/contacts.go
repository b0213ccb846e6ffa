package membership

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	resolveInterval = 10 * time.Second // between look-ups while alone
	resolveTimeout  = 5 * time.Second  // for one name
	resolveWarn     = 5 * time.Minute  // between two warnings about one name
)

// contact is one entry of the join list.
type contact struct {
	host string     // a name to resolve; empty if addr is set
	addr netip.Addr // a literal address
	port uint16
}

// parseContact reads "host:port", "host", "1.2.3.4", "[::1]:7400" or "::1".
func parseContact(entry string) (contact, error) {
	bad := func(why string) (contact, error) {
		return contact{}, fmt.Errorf("%w: join entry %q: %s: want host:port, such as 10.9.0.2:%d", ErrConfig, entry, why, DefaultPort)
	}
	if addr, err := netip.ParseAddr(strings.Trim(entry, "[]")); err == nil {
		return contact{addr: addr.Unmap(), port: DefaultPort}, nil
	}
	host, port := entry, uint64(DefaultPort)
	if strings.Contains(entry, ":") {
		h, p, err := net.SplitHostPort(entry)
		if err != nil {
			return bad(err.Error())
		}
		host = h
		if port, err = strconv.ParseUint(p, 10, 16); err != nil || port == 0 {
			return bad("port " + strconv.Quote(p) + " is not in 1 to 65535")
		}
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		return contact{addr: addr.Unmap(), port: uint16(port)}, nil
	}
	if host == "" || strings.ContainsAny(host, " /[]") {
		return bad("no host name")
	}
	return contact{host: host, port: uint16(port)}, nil
}

// contacts knows whom to ask for the cluster: the join list, resolved, and the
// peers file.
type contacts struct {
	list    []contact
	named   int // entries of the list that lead elsewhere, as far as can be said without resolving
	earlier []peer
	own     func(netip.AddrPort) bool
	resolve func(ctx context.Context, host string) ([]netip.Addr, error)
	log     *slog.Logger
	now     func() time.Time
	found   map[string][]netip.Addr // by name; the last good answer stays
	warned  map[string]time.Time
}

func newContacts(cfg Config, earlier []peer, own func(netip.AddrPort) bool) (*contacts, error) {
	c := &contacts{
		earlier: earlier, own: own, resolve: cfg.Resolve, log: cfg.Log, now: cfg.Now,
		found: map[string][]netip.Addr{}, warned: map[string]time.Time{},
	}
	for _, entry := range cfg.Join {
		one, err := parseContact(entry)
		if err != nil {
			return nil, err
		}
		c.list = append(c.list, one)
		if one.host != "" || !own(netip.AddrPortFrom(one.addr, one.port)) {
			c.named++
		}
	}
	return c, nil
}

// hasNames reports whether anything has to be resolved at all.
func (c *contacts) hasNames() bool {
	return slices.ContainsFunc(c.list, func(one contact) bool { return one.host != "" })
}

// addrs lists the contacts known now, without this node and without doubles.
func (c *contacts) addrs() []netip.AddrPort {
	var out []netip.AddrPort
	seen := map[netip.AddrPort]bool{}
	add := func(a netip.AddrPort) {
		if !seen[a] && !c.own(a) {
			out = append(out, a)
		}
		seen[a] = true
	}
	for _, one := range c.list {
		if one.host == "" {
			add(netip.AddrPortFrom(one.addr, one.port))
		}
		for _, addr := range c.found[one.host] {
			add(netip.AddrPortFrom(addr, one.port))
		}
	}
	for _, p := range c.earlier {
		add(p.Addr)
	}
	return out
}

// lookUp resolves every name of the list. It waits for the resolver.
func (c *contacts) lookUp(ctx context.Context) {
	for _, one := range c.list {
		if one.host == "" || ctx.Err() != nil {
			continue
		}
		limited, cancel := context.WithTimeout(ctx, resolveTimeout)
		addrs, err := c.resolve(limited, one.host)
		cancel()
		if err == nil && len(addrs) == 0 {
			err = errors.New("the name has no address")
		}
		if err != nil {
			c.warn(ctx, one.host, err)
			continue
		}
		delete(c.warned, one.host)
		fresh := make([]netip.Addr, len(addrs))
		for i, a := range addrs {
			fresh[i] = a.Unmap()
		}
		c.found[one.host] = fresh
	}
}

func (c *contacts) warn(ctx context.Context, host string, err error) {
	last, ok := c.warned[host]
	if ctx.Err() != nil || ok && c.now().Sub(last) < resolveWarn {
		return
	}
	c.warned[host] = c.now()
	c.log.Warn("join: a host name does not resolve; it is tried again while this node is alone", "host", host, "error", err)
}

// run resolves at once and then again whenever alone says so, and hands the
// contacts to join. After forget, earlier peers that were not heard of are no
// longer contacts.
func (c *contacts) run(ctx context.Context, alone func() bool, join func([]netip.AddrPort), forget time.Duration) {
	expire := time.NewTimer(forget)
	defer expire.Stop()
	if !c.hasNames() {
		select {
		case <-expire.C:
			c.earlier = nil
			join(c.addrs())
		case <-ctx.Done():
		}
		return
	}
	again := time.NewTicker(resolveInterval)
	defer again.Stop()
	for {
		if len(c.found) == 0 || alone() {
			c.lookUp(ctx)
			join(c.addrs())
		}
		select {
		case <-again.C:
		case <-expire.C:
			c.earlier = nil
			join(c.addrs())
		case <-ctx.Done():
			return
		}
	}
}

// ownAddress returns a test for addresses that lead back to this node.
func ownAddress(advertise, local netip.AddrPort, interfaceAddrs func() ([]netip.Addr, error)) func(netip.AddrPort) bool {
	own := []netip.AddrPort{advertise, local}
	if local.Addr().IsUnspecified() {
		addrs, err := interfaceAddrs()
		if err == nil { // else a ping to ourselves is merely wasted
			for _, a := range addrs {
				own = append(own, netip.AddrPortFrom(a, local.Port()))
			}
		}
	}
	return func(a netip.AddrPort) bool { return slices.Contains(own, a) }
}

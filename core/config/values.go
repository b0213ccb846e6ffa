package config

import (
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"strings"
)

// Listen is the address of a listener or off. Its zero value is off.
type Listen struct {
	addr netip.AddrPort
}

// ListenOn returns a listener at addr; port 0 means any free port.
func ListenOn(addr netip.AddrPort) Listen { return Listen{addr: addr} }

// Off says whether the listener is disabled.
func (l Listen) Off() bool { return !l.addr.IsValid() }

// AddrPort is the address to listen on, invalid if the listener is off.
func (l Listen) AddrPort() netip.AddrPort { return l.addr }

// String is off or ip:port.
func (l Listen) String() string {
	if l.Off() {
		return off
	}
	return l.addr.String()
}

// MarshalText is String for encoders.
func (l Listen) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText reads off, the empty text (off) or ip:port.
func (l *Listen) UnmarshalText(text []byte) error {
	if s := string(text); s == off || s == "" {
		*l = Listen{}
		return nil
	}
	addr, err := parseAddrPort(string(text))
	if err != nil {
		return fmt.Errorf("%w, or %s", err, off)
	}
	l.addr = addr
	return nil
}

// off disables a listener, the API socket or the data plane.
const off = "off"

// Advertise is an IP address, optionally with a port. Its zero value, the empty
// text, is unset.
type Advertise struct {
	addr netip.Addr
	port uint16
}

// IsSet says whether an address is written.
func (a Advertise) IsSet() bool { return a.addr.IsValid() }

// Addr is the address without the port; invalid if unset.
func (a Advertise) Addr() netip.Addr { return a.addr }

// String is "", ip or ip:port.
func (a Advertise) String() string {
	switch {
	case !a.IsSet():
		return ""
	case a.port == 0:
		return a.addr.String()
	default:
		return netip.AddrPortFrom(a.addr, a.port).String()
	}
}

// MarshalText is String for encoders.
func (a Advertise) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText reads the empty text, an IP address, or ip:port.
func (a *Advertise) UnmarshalText(text []byte) error {
	s := string(text)
	if s == "" {
		*a = Advertise{}
		return nil
	}
	if addr, err := parseIP(s); err == nil {
		*a = Advertise{addr: addr.Unmap()}
		return nil
	}
	addr, err := netip.ParseAddrPort(s)
	if err != nil {
		return errors.New(expected(reflect.TypeFor[Advertise]()))
	}
	if addr.Port() == 0 {
		return errors.New("port 0 cannot be advertised: leave the port out, it is then the one of gossip.bind")
	}
	*a = Advertise{addr: addr.Addr().Unmap(), port: addr.Port()}
	return nil
}

// Providers is a list of data-plane provider names. In a file it may be
// written as a list or as one comma-separated text; empty or off is none.
type Providers []string

// String is the comma-separated list, off if empty.
func (p Providers) String() string {
	if len(p) == 0 {
		return off
	}
	return strings.Join(p, ",")
}

// MarshalText is String for encoders.
func (p Providers) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText reads a comma-separated list.
func (p *Providers) UnmarshalText(text []byte) error {
	names := splitList(string(text))
	if len(names) == 1 && names[0] == off {
		names = []string{}
	}
	*p = names
	return nil
}

// splitList cuts a comma-separated list, trims blanks and drops empty items, so
// that a trailing comma is harmless. It never returns nil.
func splitList(s string) []string {
	items := []string{}
	for item := range strings.SplitSeq(s, ",") {
		if item = strings.TrimSpace(item); item != "" {
			items = append(items, item)
		}
	}
	return items
}

// parseAddrPort reads ip:port. Host names are refused: a listener whose
// address depends on a resolver is a surprise at the next boot.
func parseAddrPort(s string) (netip.AddrPort, error) {
	addr, err := netip.ParseAddrPort(s)
	if err != nil {
		return netip.AddrPort{}, errors.New(expected(reflect.TypeFor[netip.AddrPort]()))
	}
	return addr, nil
}

// parseIP reads an IP address, IPv6 with or without its brackets.
func parseIP(s string) (netip.Addr, error) {
	if len(s) > 2 && s[0] == '[' && s[len(s)-1] == ']' {
		s = s[1 : len(s)-1]
	}
	return netip.ParseAddr(s)
}

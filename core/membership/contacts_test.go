package membership

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func TestParseContact(t *testing.T) {
	for entry, want := range map[string]contact{
		"10.9.0.2:7400":      {addr: netip.MustParseAddr("10.9.0.2"), port: 7400},
		"10.9.0.2":           {addr: netip.MustParseAddr("10.9.0.2"), port: DefaultPort},
		"::ffff:10.9.0.2":    {addr: netip.MustParseAddr("10.9.0.2"), port: DefaultPort},
		"[fd00::1]:9":        {addr: netip.MustParseAddr("fd00::1"), port: 9},
		"[fd00::1]":          {addr: netip.MustParseAddr("fd00::1"), port: DefaultPort},
		"fd00::1":            {addr: netip.MustParseAddr("fd00::1"), port: DefaultPort},
		"seed.example":       {host: "seed.example", port: DefaultPort},
		"seed.example:65535": {host: "seed.example", port: 65535},
	} {
		if got, err := parseContact(entry); err != nil || got != want {
			t.Errorf("%q: %+v, %v; want %+v", entry, got, err, want)
		}
	}
	for _, entry := range []string{"", ":7400", "host:", "host:0", "host:65536", "host:x", "a b:1", "http://x", "a:1:2", "[x]"} {
		_, err := parseContact(entry)
		if !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), `"`+entry+`"`) {
			t.Errorf("%q: %v, want ErrConfig naming it", entry, err)
		}
	}
}

func TestOwnAddressIsNoContact(t *testing.T) {
	addrs := func() ([]netip.Addr, error) {
		return []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("10.0.0.5")}, nil
	}
	own := ownAddress(netip.MustParseAddrPort("192.0.2.1:7400"), netip.MustParseAddrPort("0.0.0.0:7400"), addrs)
	cfg := Config{Join: []string{"10.0.0.5:7400", "127.0.0.1", "192.0.2.1", "10.0.0.6", "10.0.0.6:7400", "10.0.0.5:7401"}}
	c, err := newContacts(cfg, []peer{{1, "x", netip.MustParseAddrPort("10.0.0.7:1")}, {2, "y", netip.MustParseAddrPort("10.0.0.5:7400")}}, own)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, a := range c.addrs() {
		got = append(got, a.String())
	}
	if want := []string{"10.0.0.6:7400", "10.0.0.5:7401", "10.0.0.7:1"}; !slices.Equal(got, want) {
		t.Errorf("contacts %v, want %v", got, want)
	}
}

func TestAdvertisedAddress(t *testing.T) {
	host := func(addrs ...string) func() ([]netip.Addr, error) {
		return func() (out []netip.Addr, _ error) {
			for _, a := range addrs {
				out = append(out, netip.MustParseAddr(a))
			}
			return out, nil
		}
	}
	for _, c := range []struct {
		want, bound string
		host        func() ([]netip.Addr, error)
		got         string // empty: an error
	}{
		{"", "10.0.0.1:7400", host(), "10.0.0.1:7400"},
		{"192.0.2.1:99", "0.0.0.0:7400", host(), "192.0.2.1:99"},
		{"192.0.2.1:0", "0.0.0.0:7400", host(), "192.0.2.1:7400"},
		{"", "0.0.0.0:7400", host("127.0.0.1", "::1", "fe80::1", "10.0.0.1", "fd00::1"), "10.0.0.1:7400"},
		{"", "0.0.0.0:7400", host("127.0.0.1"), ""},
		{"", "0.0.0.0:7400", host("10.0.0.1", "10.1.0.1"), ""},
	} {
		var want netip.AddrPort
		if c.want != "" {
			want = netip.MustParseAddrPort(c.want)
		}
		got, err := advertised(want, netip.MustParseAddrPort(c.bound), c.host)
		if c.got == "" {
			if !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "node.advertise") {
				t.Errorf("%+v: %v, %v; want ErrConfig with the remedy", c, got, err)
			}
			continue
		}
		if err != nil || got.String() != c.got {
			t.Errorf("advertise %q bound to %s: %v, %v; want %s", c.want, c.bound, got, err, c.got)
		}
	}
}

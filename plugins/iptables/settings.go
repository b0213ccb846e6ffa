package iptables

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/plugins/iptables/internal/rules"
)

// settings are the provider's configuration.
type settings struct {
	Variant       string   `json:"variant,omitempty"`        // auto, legacy, nft
	Mode          string   `json:"mode,omitempty"`           // all, forwarded
	Pools         []string `json:"pools,omitempty"`          // nil: 10.200.0.0/16
	Routes        string   `json:"routes,omitempty"`         // auto, off
	CheckInterval string   `json:"check_interval,omitempty"` // "": 30s

	interval time.Duration
	pools    []netip.Prefix
}

const schema = `{
  "type": "object",
  "additionalProperties": false,
  "properties": {
    "variant": {"type": "string", "enum": ["auto", "legacy", "nft"], "description": "which tables of the kernel to use; auto: those that hold rules already, else what the command iptables uses"},
    "mode": {"type": "string", "enum": ["all", "forwarded"], "description": "all: sockets of this host and packets that it forwards; forwarded: the latter only, beside a data plane for the sockets"},
    "pools": {"type": "array", "items": {"type": "string"}, "description": "prefixes that VIPs are given from, as vip_pools of the agent; 10.200.0.0/16 if absent"},
    "routes": {"type": "string", "enum": ["auto", "off"], "description": "auto: routes to VIPs that this host has none to; off: none"},
    "check_interval": {"type": "string", "description": "how often the tables are compared with what should be there, even if nothing seems to have changed, such as 30s"}
  }
}`

const defaultInterval = 30 * time.Second

// defaultPool is the default of the agent's vip_pools.
func defaultPool() netip.Prefix { return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 200}), 16) }

func parseSettings(b []byte) (settings, error) {
	s := settings{Variant: "auto", Mode: "all", Routes: "auto"}
	if len(b) > 0 {
		d := json.NewDecoder(bytes.NewReader(b))
		d.DisallowUnknownFields()
		if err := d.Decode(&s); err != nil {
			return s, fmt.Errorf("%w: iptables: configuration: %w", dataplane.ErrInvalid, err)
		}
		if _, err := d.Token(); !errors.Is(err, io.EOF) {
			return s, fmt.Errorf("%w: iptables: configuration: more than one value", dataplane.ErrInvalid)
		}
	}
	for _, c := range []struct{ name, value, one, other, third string }{
		{"variant", s.Variant, "auto", "legacy", "nft"},
		{"mode", s.Mode, "all", "forwarded", "all"},
		{"routes", s.Routes, "auto", "off", "auto"},
	} {
		if c.value != c.one && c.value != c.other && c.value != c.third {
			return s, fmt.Errorf("%w: iptables: %s %q: see the schema for what it may be", dataplane.ErrInvalid, c.name, c.value)
		}
	}
	s.interval = defaultInterval
	if s.CheckInterval != "" {
		d, err := time.ParseDuration(s.CheckInterval)
		if err != nil || d < 10*time.Millisecond {
			return s, fmt.Errorf("%w: iptables: check_interval %q: want a duration from 10ms on, such as 30s", dataplane.ErrInvalid, s.CheckInterval)
		}
		s.interval = d
	}
	if s.Pools == nil {
		s.pools = []netip.Prefix{defaultPool()}
	}
	for _, text := range s.Pools {
		p, err := netip.ParsePrefix(text)
		if err != nil || p != p.Masked() {
			return s, fmt.Errorf("%w: iptables: pools: %q is no prefix: want one such as 10.200.0.0/16", dataplane.ErrInvalid, text)
		}
		s.pools = append(s.pools, p)
	}
	return s, nil
}

// mode is whose packets are led.
func (s settings) mode() rules.Mode {
	if s.Mode == "forwarded" {
		return rules.Forwarded
	}
	return rules.All
}

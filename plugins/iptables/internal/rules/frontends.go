package rules

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/dataplane"
)

// Frontends are those that the rules of an instance lead, or of all instances, as
// they stand.
func Frontends(found *Table, instance string, all bool) []dataplane.Binding {
	var list []dataplane.Binding
	tag := Tag(instance)
	for _, c := range found.Chains {
		if chainTag, ours := tagOf(c.Name); !ours || !all && chainTag != tag {
			continue
		}
		for _, r := range c.Rules {
			if b, ok := frontendOf(r.Spec); ok && !slices.Contains(list[max(0, len(list)-1):], b) {
				list = append(list, b)
			}
		}
	}
	return list
}

// HasChains reports whether any chain of an instance stands, or of any instance, also
// one that leads nothing.
func HasChains(found *Table, instance string, all bool) bool {
	return slices.ContainsFunc(found.Chains, func(c *Chain) bool {
		tag, ours := tagOf(c.Name)
		return ours && (all || tag == Tag(instance))
	})
}

// frontendOf reads a rule for one address, protocol and port.
func frontendOf(spec string) (dataplane.Binding, bool) {
	prefix, err := netip.ParsePrefix(after(spec, "-d"))
	if err != nil || !prefix.IsSingleIP() {
		return dataplane.Binding{}, false
	}
	port, err := strconv.ParseUint(after(spec, "--dport"), 10, 16)
	if err != nil || strings.Contains(spec, "--ctorigdst") {
		return dataplane.Binding{}, false
	}
	b := dataplane.Binding{Addr: netip.AddrPortFrom(prefix.Addr(), uint16(port)), Protocol: dataplane.TCP}
	if after(spec, "-p") == dataplane.UDP.String() {
		b.Protocol = dataplane.UDP
	}
	return b, true
}

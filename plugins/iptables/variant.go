package iptables

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/plugins/iptables/internal/host"
	"github.com/fairlead/fairlead/plugins/iptables/internal/rules"
)

// use is what stands in the tables of one variant.
type use struct {
	own    bool // something of this instance
	others int  // rules of others
}

// pick chooses the variant: the one that is asked for; else the one where this
// instance has something already; else the one that others use, so that all rules
// of the host are seen together; else what the plain command uses. The remark is
// what an administrator should know.
func pick(setting string, tools map[host.Variant]host.Tools, uses map[host.Variant]use) (v host.Variant, remark string, err error) {
	if uses[host.Legacy].others > 0 && uses[host.NFT].others > 0 {
		remark = fmt.Sprintf(
			"others have %d rules in the legacy tables and %d in those of nft: a packet meets both, in an order that nobody sees; move them to one of the variants",
			uses[host.Legacy].others, uses[host.NFT].others)
	}
	has := func(v host.Variant) bool { _, ok := tools[v]; return ok }
	switch {
	case setting != "auto":
		if v = host.Variant(setting); !has(v) {
			return "", "", fmt.Errorf("variant %s is asked for, but its binaries are not installed: install iptables, or set variant to auto", setting)
		}
		return v, remark, nil
	case len(tools) == 1:
		for v = range tools {
		}
		if o := uses[v.Other()].others; o > 0 && remark == "" {
			remark = fmt.Sprintf("others have %d rules in the %s tables, for which no binaries are installed", o, v.Other())
		}
		return v, remark, nil
	case uses[host.NFT].own != uses[host.Legacy].own:
		if uses[host.Legacy].own {
			return host.Legacy, remark, nil
		}
		return host.NFT, remark, nil
	case (uses[host.NFT].others > 0) != (uses[host.Legacy].others > 0):
		if uses[host.Legacy].others > 0 {
			return host.Legacy, remark, nil
		}
		return host.NFT, remark, nil
	case tools[host.Legacy].Default:
		return host.Legacy, remark, nil
	}
	return host.NFT, remark, nil
}

// usage looks at what stands in the tables of the variants that have binaries.
func usage(ctx context.Context, tools map[host.Variant]host.Tools, instance string) (map[host.Variant]use, error) {
	uses := make(map[host.Variant]use, len(tools))
	tag := "-" + rules.Tag(instance) + "-"
	for v, t := range tools {
		var u use
		for _, f := range families(t.HasV6()) {
			if v == host.Legacy && !legacyTables(f) {
				continue // asking would make them
			}
			text, err := t.SaveAll(ctx, hostFamily(f))
			if errors.Is(err, host.ErrForbidden) {
				return nil, err
			}
			if err != nil {
				continue // a variant or family that this kernel lacks
			}
			for line := range strings.Lines(text) {
				switch ours := strings.Contains(line, ourChains) || strings.Contains(line, ourComments); {
				case ours:
					u.own = u.own || strings.Contains(line, tag)
				case strings.HasPrefix(line, "-A "):
					u.others++
				}
			}
		}
		uses[v] = u
	}
	return uses, nil
}

// What every line of ours in a table contains, of any instance.
const (
	ourChains   = "FAIRLEAD-"
	ourComments = "fairlead-"
)

// legacyTables reports whether the kernel holds any legacy table of a family in this
// network namespace.
func legacyTables(f rules.Family) bool {
	name := "/proc/thread-self/net/ip_tables_names"
	if f == rules.IPv6 {
		name = "/proc/thread-self/net/ip6_tables_names"
	}
	b, err := os.ReadFile(name)
	return err == nil && len(b) > 0
}

// legacyNAT reports whether it holds the nat table.
func legacyNAT(f rules.Family) bool {
	name := "/proc/thread-self/net/ip_tables_names"
	if f == rules.IPv6 {
		name = "/proc/thread-self/net/ip6_tables_names"
	}
	b, _ := os.ReadFile(name)
	for line := range strings.Lines(string(b)) {
		if strings.TrimSpace(line) == "nat" {
			return true
		}
	}
	return false
}

// families are those that are served, IPv6 first: IPv4 commits a generation.
func families(v6 bool) []rules.Family {
	if v6 {
		return []rules.Family{rules.IPv6, rules.IPv4}
	}
	return []rules.Family{rules.IPv4}
}

func hostFamily(f rules.Family) host.Family { return host.Family(f) }

// chooseTools finds the binaries to work with.
func (p *Provider) chooseTools(ctx context.Context, s settings, instance string) (all map[host.Variant]host.Tools, t host.Tools, remark string, err error) {
	if all, err = p.find(ctx); err != nil {
		return nil, t, "", fmt.Errorf("%w: iptables: %w", dataplane.ErrFailed, err)
	}
	uses, err := usage(ctx, all, instance)
	if err != nil {
		return nil, t, "", fmt.Errorf("%w: iptables: %w: %s", dataplane.ErrFailed, err, rights)
	}
	v, remark, err := pick(s.Variant, all, uses)
	if err != nil {
		return nil, t, "", fmt.Errorf("%w: iptables: %w", dataplane.ErrInvalid, err)
	}
	return all, all[v], remark, nil
}

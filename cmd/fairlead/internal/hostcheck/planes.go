package hostcheck

import (
	"fmt"
	"slices"
	"strings"
)

// planes are those that are installed, by their own probes, and those that are
// asked for and are not.
func planes(f Facts) []Finding {
	var all []Finding
	for _, p := range f.Planes {
		named := f.Config.Written && slices.Contains(f.Config.Planes, p.Name)
		seen := strings.TrimSuffix(p.Verdict+": "+p.Reason, ": ")
		if p.Verdict == "" {
			seen = p.Reason
		}
		fix := p.Remedy
		if fix == "" {
			fix = "see `fairlead plugin probe " + p.Name + "`"
		}
		switch {
		case p.Verdict == "SUPPORTED":
			all = append(all, ok(p.Name, p.Verdict)...)
		case named && p.Verdict != "DEGRADED":
			all = append(all, found(p.Name, Failed, seen, fix)...)
		default:
			all = append(all, found(p.Name, Warning, seen, fix)...)
		}
	}
	for _, name := range f.Config.Planes {
		if name == "auto" || slices.ContainsFunc(f.Planes, func(p Plane) bool { return p.Name == name }) {
			continue
		}
		state := Warning
		if f.Config.Written {
			state = Failed
		}
		all = append(all, found(name, state, "not installed", "put fairlead-dataplane-"+name+" beside fairlead or into FAIRLEAD_PLUGIN_DIRS, or take the name out of dataplane")...)
	}
	if len(all) == 0 && slices.Contains(f.Config.Planes, "auto") {
		return found("installed", Warning, "none", "put one beside fairlead or into FAIRLEAD_PLUGIN_DIRS, or set dataplane to off")
	}
	return all
}

func pins(f Facts) []Finding {
	v := f.Leftovers.Pins
	if v.Why != "" {
		return unknown("pins", v.Why)
	}
	return leftover(f, "pins", len(v.Value), strings.Join(v.Value, ", "))
}

func rules(f Facts) []Finding {
	l := f.Leftovers
	if l.Chains.Why != "" {
		return unknown("rules", l.Chains.Why)
	}
	if l.Tables.Why != "" {
		return unknown("rules", l.Tables.Why)
	}
	n := l.Chains.Value + l.Tables.Value
	return leftover(f, "rules", n, fmt.Sprintf("%d chains of iptables, %d tables of nftables", l.Chains.Value, l.Tables.Value))
}

// leftover is about what a data plane made. It outlives the agent on purpose, but
// without one nobody keeps it up to date.
func leftover(f Facts, check string, n int, what string) []Finding {
	switch {
	case n == 0:
		return ok(check, "none")
	case f.Agent.Answers:
		return ok(check, what+"; an agent runs")
	case f.Agent.Denied:
		return found(check, Skipped, what+"; this user may not ask whether an agent runs", "run it as root")
	}
	return found(check, Warning, what+", and no agent answers", "start the agent, which takes over what is its own, or remove them with `fairlead cleanup`")
}

// Package hostcheck looks at a host with the eyes of an agent: what is missing,
// in the way or left over, and what to do about it.
//
//	Gather   looks, changes nothing that stays, and takes a second or so
//	Facts    what was seen: values
//	Evaluate facts → findings: pure
//
// Each finding has a test with a value that passes and one that does not.
package hostcheck

import (
	"slices"
	"strings"
)

// State is how serious a finding is.
type State string

// The states, the worst last. Skipped is what this user, or this host, does not
// let anybody see; it counts for nothing.
const (
	OK      State = "ok"
	Skipped State = "skipped"
	Warning State = "warning"
	Failed  State = "failed"
)

// Finding is one thing that was looked at.
type Finding struct {
	Group string // kernel, netfilter, network, storage, process, planes, leftovers
	Check string // a stable word, unique in its group but for what it is about
	State State
	Seen  string // the value
	Fix   string // one line; empty if the state is OK, or nobody can do anything
}

// Worst is the worst state among findings, OK if there are none.
func Worst(findings []Finding) State {
	order := []State{OK, Skipped, Warning, Failed}
	worst := OK
	for _, f := range findings {
		if slices.Index(order, f.State) > slices.Index(order, worst) {
			worst = f.State
		}
	}
	return worst
}

// Evaluate turns facts into findings, group by group.
func Evaluate(f Facts) []Finding {
	var all []Finding
	for _, group := range []struct {
		name  string
		looks []func(Facts) []Finding
	}{
		{"kernel", []func(Facts) []Finding{release, btf, cgroup2, ownCgroup, bpffs, unprivilegedBPF, capabilities}},
		{"netfilter", []func(Facts) []Finding{backend, xtablesLock, conntrack}},
		{"network", []func(Facts) []Finding{ports, advertise, pools, mtu, sysctls, clock, peers, doubles}},
		{"storage", []func(Facts) []Finding{dataDir, fsync}},
		{"process", []func(Facts) []Finding{files}},
		{"planes", []func(Facts) []Finding{planes}},
		{"leftovers", []func(Facts) []Finding{pins, rules}},
	} {
		for _, look := range group.looks {
			for _, finding := range look(f) {
				finding.Group = group.name
				all = append(all, finding)
			}
		}
	}
	return all
}

func ok(check, seen string) []Finding { return []Finding{{Check: check, State: OK, Seen: seen}} }

func found(check string, state State, seen, fix string) []Finding {
	return []Finding{{Check: check, State: state, Seen: seen, Fix: fix}}
}

// unknown is the finding about something that could not be seen.
func unknown(check, why string) []Finding {
	fix := ""
	if strings.HasSuffix(why, needsRoot) {
		fix = "run it as root"
	}
	return found(check, Skipped, why, fix)
}

// lacking is the finding about something that a data plane needs: it fails if the
// configuration names the plane, is a warning if auto would take it, and nothing
// if nobody asks for it.
func lacking(f Facts, plane, check, seen, fix string) []Finding {
	switch {
	case slices.Contains(f.Config.Planes, plane):
		return found(check, Failed, seen, fix)
	case slices.Contains(f.Config.Planes, "auto"):
		return found(check, Warning, seen, fix)
	}
	return ok(check, seen+"; the data plane "+plane+" is not asked for")
}

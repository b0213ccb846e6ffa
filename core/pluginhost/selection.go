package pluginhost

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/dataplane"
)

// Auto in the list of providers stands for the best L4 plane of this host.
const Auto = "auto"

// autoOrder lists what Auto tries, best first. The second is tried only where
// it is installed.
func autoOrder() []string { return []string{"ebpf", "nftables", "iptables"} }

// Wish is what the configuration asks for.
type Wish struct {
	Names []string `json:"names"` // auto, and names of providers
	// Written says that somebody wrote the list. One that is a default asks for
	// what may be missing.
	Written bool `json:"written"`
}

// toProbe returns the names that have to be probed to grant the wish.
func (w Wish) toProbe() []string {
	var out []string
	for _, name := range w.Names {
		if name == Auto {
			out = append(out, autoOrder()...)
		} else {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Finding is what is known of a provider before it is chosen.
type Finding struct {
	Name      string
	Installed bool
	Err       error // it is refused, does not start, or cannot be asked
	Info      dataplane.Info
	Config    []byte // its settings, as JSON: what it captures may depend on them
	Report    dataplane.Report
}

// Decision is which providers run, and why no other does.
type Decision struct {
	Chosen   []Choice   `json:"chosen"`
	Rejected []Rejected `json:"rejected"`
	Warnings []string   `json:"warnings"`
	// Considered is what was found of each that came into question, by name.
	Considered []Considered `json:"considered,omitempty"`
}

// Considered is what was found of a provider that came into question.
type Considered struct {
	Name    string        `json:"name"`
	Verdict string        `json:"verdict"` // empty: it could not be asked
	Version string        `json:"version"`
	Scopes  []string      `json:"scopes"` // whose traffic it captures with its settings
	Fault   string        `json:"fault"`  // why it could not be asked
	Checks  []FailedCheck `json:"checks"` // those that did not pass, required ones first
}

// FailedCheck is a check of a probe that did not pass.
type FailedCheck struct {
	ID       string `json:"id"`
	Required bool   `json:"required"`
	Result   string `json:"result"`
	Reason   string `json:"reason"`
	Remedy   string `json:"remedy"`
}

// Choice is a provider that runs.
type Choice struct {
	Name    string `json:"name"`
	Auto    bool   `json:"auto"` // chosen by auto
	Verdict string `json:"verdict"`
	Version string `json:"version"`
	// Fault is why it does not run yet, although it is to: it is installed, and
	// could not be asked. It is started again until it works.
	Fault string `json:"fault,omitempty"`
}

// Rejected is a provider that does not.
type Rejected struct {
	Name string `json:"name"`
	Refusal
}

// Decide grants a wish. It has no effect and asks nothing: found has an entry
// for each name of toProbe.
//
// A name that was written runs or is an error: nothing takes its place. It is an
// error where a plugin is missing or cannot work on this host. One that is there
// and misbehaves is chosen with its Fault: it may be mended while the agent runs.
// Auto takes the first that is SUPPORTED, else the first that is DEGRADED, else
// none, which is a warning. Two providers of L4 with one scope would capture the
// same connections: an error.
func Decide(w Wish, found map[string]Finding) (Decision, error) {
	d := Decision{Chosen: []Choice{}, Rejected: []Rejected{}, Warnings: []string{}, Considered: considered(w, found)}
	var errs []error
	for _, name := range w.Names {
		if name == Auto {
			d.auto(w, found)
			continue
		}
		if d.runs(name) {
			continue
		}
		f := found[name]
		if why := f.against(); why != nil {
			d.Rejected = append(d.Rejected, Rejected{name, *why})
			if w.Written {
				errs = append(errs, fmt.Errorf("pluginhost: dataplane names %s, which cannot run here: %w", name, why))
			} else {
				d.warn("%s does not run: %v", name, why)
			}
			continue
		}
		if f.Err == nil && f.Report.Verdict != dataplane.Supported {
			d.warn("%s runs as %v: %s", name, f.Report.Verdict, reasons(f.Report))
		}
		d.take(f, false)
	}
	return d, errors.Join(append(errs, d.conflicts(found)...)...)
}

// considered lists what was found, by name.
func considered(w Wish, found map[string]Finding) []Considered {
	var out []Considered
	for _, name := range w.toProbe() {
		f := found[name]
		c := Considered{Name: name, Version: f.Info.Version, Scopes: []string{}, Checks: []FailedCheck{}}
		for _, s := range f.Info.ScopesWith(f.Config) {
			c.Scopes = append(c.Scopes, s.String())
		}
		switch {
		case !f.Installed:
			c.Fault = errNotInstalled.Error()
		case f.Err != nil:
			c.Fault = f.Err.Error()
		default:
			c.Verdict = f.Report.Verdict.String()
		}
		for _, check := range failedChecks(f.Report) {
			c.Checks = append(c.Checks, FailedCheck{check.ID, check.Required, check.Result.String(), check.Reason, check.Remedy})
		}
		out = append(out, c)
	}
	return out
}

// uncertain reports whether nobody knows if a provider could work here: it is there,
// and could not be asked or tested.
func (d Decision) uncertain(name string) bool {
	return slices.ContainsFunc(d.Considered, func(c Considered) bool {
		return c.Name == name && (c.Verdict == dataplane.Inconclusive.String() || c.Verdict == "" && c.Fault != errNotInstalled.Error())
	})
}

func (d *Decision) warn(format string, args ...any) {
	d.Warnings = append(d.Warnings, fmt.Sprintf(format, args...))
}

func (d *Decision) runs(name string) bool {
	return slices.ContainsFunc(d.Chosen, func(c Choice) bool { return c.Name == name })
}

func (d *Decision) take(f Finding, auto bool) {
	c := Choice{Name: f.Name, Auto: auto, Version: f.Info.Version}
	if f.Err != nil {
		c.Fault = f.Err.Error()
	} else {
		c.Verdict = f.Report.Verdict.String()
	}
	d.Chosen = append(d.Chosen, c)
}

// auto chooses by verdict, then by order.
func (d *Decision) auto(w Wish, found map[string]Finding) {
	var best *Finding
	for _, name := range autoOrder() {
		f := found[name]
		if slices.Contains(w.Names, name) {
			continue // it is asked for by its name anyway
		}
		better := best == nil || best.Report.Verdict == dataplane.Degraded && f.Report.Verdict == dataplane.Supported
		if why := f.againstAuto(); why != nil {
			d.Rejected = append(d.Rejected, Rejected{name, *why})
			if f.Installed && (f.Err != nil || f.Report.Verdict == dataplane.Inconclusive) {
				d.warn("auto passes over %s, of which nobody knows whether it works here: %v", name, why)
			}
		} else if better {
			if best != nil {
				d.Rejected = append(d.Rejected, Rejected{best.Name, Refusal{"DEGRADED: " + reasons(best.Report), name + " is SUPPORTED"}})
			}
			best = &f
		} else {
			d.Rejected = append(d.Rejected, Rejected{name, Refusal{f.Report.Verdict.String() + ", and " + best.Name + " comes first", "name it in dataplane to have it"}})
		}
	}
	if best == nil {
		d.warn("no L4 provider can run here: VIPs and intercept addresses lead nowhere on this node")
		return
	}
	if best.Report.Verdict == dataplane.Degraded {
		d.warn("%s runs as DEGRADED: %s", best.Name, reasons(best.Report))
	}
	d.take(*best, true)
}

// against says why a provider cannot work here, nil if it can, or if nobody
// knows as it could not be asked.
func (f Finding) against() *Refusal {
	switch v := f.Report.Verdict; {
	case !f.Installed:
		return refuse("it is not installed", "install fairlead-dataplane-"+f.Name+" beside the agent or in FAIRLEAD_PLUGIN_DIRS, or take the name out of dataplane")
	case f.Err == nil && (v == dataplane.Unsupported || v == dataplane.Inconclusive):
		return refuse(v.String()+": "+reasons(f.Report), remedies(f.Report))
	}
	return nil
}

// againstAuto is stricter: what could not be asked is not chosen by itself.
func (f Finding) againstAuto() *Refusal {
	var refusal *Refusal
	why := f.against()
	switch {
	case !f.Installed: // nobody asked for it by its name
		return refuse(why.Reason, "install fairlead-dataplane-"+f.Name+" beside the agent or in FAIRLEAD_PLUGIN_DIRS, and auto considers it")
	case why != nil:
		return why
	case errors.As(f.Err, &refusal):
		return refusal
	case f.Err != nil:
		return refuse(f.Err.Error(), "")
	case !slices.Contains(f.Info.Layers, dataplane.L4):
		return refuse("it is no L4 provider", "")
	}
	return nil
}

// conflicts finds providers that would capture the same connections.
func (d *Decision) conflicts(found map[string]Finding) []error {
	var errs []error
	holder := map[dataplane.Scope]string{}
	for _, c := range d.Chosen {
		f := found[c.Name]
		for _, scope := range f.captured() {
			other, taken := holder[scope]
			if !taken {
				holder[scope] = c.Name
				continue
			}
			errs = append(errs, fmt.Errorf("pluginhost: dataplane has two L4 providers for %v traffic, %s and %s, which would capture the same connections: keep one%s",
				scope, other, c.Name, found[other].without(scope)+f.without(scope)))
		}
	}
	return errs
}

// captured returns the scopes in which no second provider may be.
func (f Finding) captured() []dataplane.Scope {
	if !slices.Contains(f.Info.Layers, dataplane.L4) {
		return nil
	}
	return f.Info.ScopesWith(f.Config)
}

// without says which setting keeps a provider out of a scope, if one does.
func (f Finding) without(scope dataplane.Scope) string {
	for _, r := range f.Info.ScopeRules {
		if !slices.Contains(r.Scopes, scope) {
			return fmt.Sprintf(", or set plugins.%s.%s to %s", f.Name, r.Setting, r.Value)
		}
	}
	return ""
}

// reasons lists the checks that did not pass, required ones first.
func reasons(r dataplane.Report) string {
	said := failed(r, func(c dataplane.Check) string { return c.ID + ": " + c.Reason })
	if len(said) == 0 {
		return "the probe names no reason"
	}
	return strings.Join(said, "; ")
}

func remedies(r dataplane.Report) string {
	return strings.Join(failed(r, func(c dataplane.Check) string { return c.Remedy }), "; ")
}

func failed(r dataplane.Report, say func(dataplane.Check) string) []string {
	var out []string
	for _, c := range failedChecks(r) {
		if text := say(c); text != "" {
			out = append(out, text)
		}
	}
	return out
}

// failedChecks are those that did not pass, required ones first.
func failedChecks(r dataplane.Report) []dataplane.Check {
	var out []dataplane.Check
	for _, required := range []bool{true, false} {
		for _, c := range r.Checks {
			if c.Required == required && c.Result != dataplane.Supported {
				out = append(out, c)
			}
		}
	}
	return out
}

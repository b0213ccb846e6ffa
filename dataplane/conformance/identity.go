package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"reflect"
	"regexp"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/fairlead/fairlead/dataplane/conformance/internal/process"
	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
	"github.com/fairlead/fairlead/dataplane/sdk/handshake"
	"github.com/fairlead/fairlead/dataplane/transfer"
)

func identityChecks() []Check {
	return []Check{
		{
			ID: "identity.info", Demand: "Info says name, version, layers and scopes; the name is as in fairlead-dataplane-NAME: [a-z][a-z0-9-]{0,31}.",
			Remedy: "fill in all of InfoResponse; a configuration schema has to be JSON", run: infoIsValid,
		},
		{
			ID: "identity.pure", Demand: "Info is pure: it answers before Configure, and is always the same for one build.",
			Remedy: "return constants from Info: no counters, times, host names or results of a probe", fresh: true, run: infoIsPure,
		},
		{
			ID: "identity.plugin-info", Demand: "PROVIDER --plugin-info prints what Info says as JSON, needs nothing, and exits with 0.", Exec: true,
			Remedy: "print the JSON of handshake.PluginInfo from the same values as Info", run: pluginInfoAgrees,
		},
	}
}

func infoIsValid(ctx context.Context, k *kit) error {
	m, err := k.client().Info(ctx, &pb.InfoRequest{})
	if err != nil {
		return failf("Info: %w", err)
	}
	info := transfer.DecodeInfo(m)
	if err := handshake.CheckInfo(info); err != nil {
		return err
	}
	for _, l := range m.GetLayers() {
		if _, known := pb.Layer_name[int32(l)]; !known || l == 0 {
			return fmt.Errorf("layer %v is not known", l)
		}
	}
	for _, s := range m.GetScopes() {
		if _, known := pb.Scope_name[int32(s)]; !known || s == 0 {
			return fmt.Errorf("scope %v is not known", s)
		}
	}
	for _, r := range m.GetScopeRules() {
		for _, s := range r.GetScopes() {
			if _, known := pb.Scope_name[int32(s)]; !known || s == 0 {
				return fmt.Errorf("scope %v of the rule for %s %s is not known", s, r.GetSetting(), r.GetValue())
			}
		}
	}
	k.note("%s %s, layers %v, scopes %v, minor %d", info.Name, info.Version, info.Layers, info.Scopes, m.GetProtocolMinor())
	return nil
}

func infoIsPure(ctx context.Context, k *kit) error {
	const times = 10
	var first *pb.InfoResponse
	ask := func(when string) error {
		for range times {
			m, err := k.client().Info(ctx, &pb.InfoRequest{})
			if err != nil {
				return failf("Info %s: %w", when, err)
			}
			if first == nil {
				first = m
			}
			if !proto.Equal(first, m) {
				return failf("Info %s is %v, before it was %v", when, m, first)
			}
		}
		return nil
	}
	if err := ask("before Configure"); err != nil {
		return err
	}
	if err := k.open(ctx, several(1)); err != nil {
		return err
	}
	if !proto.Equal(first, k.info) {
		return failf("Info is %v, of the process before it was %v", first, k.info)
	}
	k.note("%d calls were answered alike", 2*times)
	return ask("after Reconcile")
}

func pluginInfoAgrees(ctx context.Context, k *kit) error {
	ctx, cancel := context.WithTimeout(ctx, max(startTime, k.options.Patience))
	defer cancel()
	cmd := exec.CommandContext(ctx, k.target.Exec, append(slices.Clone(k.target.Args), "--plugin-info")...)
	cmd.Env = append(process.Environment(), k.target.Env...)
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("--plugin-info: %w", err)
	}
	var printed handshake.PluginInfo
	if err := json.Unmarshal(out, &printed); err != nil {
		return fmt.Errorf("--plugin-info printed %.200q: %w", out, err)
	}
	says := handshake.Describe(transfer.DecodeInfo(k.info))
	if printed.Name != says.Name || printed.Version != says.Version || !slices.Equal(printed.Layers, says.Layers) || !slices.Equal(printed.Scopes, says.Scopes) ||
		!reflect.DeepEqual(printed.ScopeRules, says.ScopeRules) {
		return fmt.Errorf("--plugin-info printed %.300s, Info says %+v", out, says)
	}
	k.note("both say %s %s", says.Name, says.Version)
	return nil
}

func probeChecks() []Check {
	return []Check{
		{
			ID: "probe.verdict", Demand: "Probe says SUPPORTED, DEGRADED, UNSUPPORTED or INCONCLUSIVE, with checks that have reason and remedy.",
			Remedy: "name at least one check; give each an id, a result and the reason; give a remedy unless it is SUPPORTED; make the verdict follow from the required ones", run: verdictFollows,
		},
		{
			ID: "probe.repeatable", Demand: "Probe tests features; asked again, it says the same, also after Configure.",
			Remedy: "probe for what the system can do, not for what this process did to it", fresh: true, run: probeRepeats,
		},
		{
			ID: "probe.leaves-nothing", Demand: "Probe leaves nothing behind and alters no traffic.",
			Remedy: "probe with objects of its own, and remove them before the answer", run: probeLeavesNothing,
		},
	}
}

var probeWord = regexp.MustCompile(`^\S+$`)

func (k *kit) probe(ctx context.Context) (*pb.ProbeResponse, error) {
	m, err := k.client().Probe(ctx, &pb.ProbeRequest{})
	if err != nil {
		return nil, failf("Probe: %w", err)
	}
	return m, nil
}

func verdictFollows(ctx context.Context, k *kit) error {
	m, err := k.probe(ctx)
	if err != nil {
		return err
	}
	if !knownVerdict(m.GetVerdict()) {
		return fmt.Errorf("verdict %v is not known", m.GetVerdict())
	}
	if len(m.GetChecks()) == 0 {
		return fmt.Errorf("verdict %v names no check", m.GetVerdict())
	}
	seen := make(map[string]bool)
	for _, c := range m.GetChecks() {
		switch {
		case !probeWord.MatchString(c.GetId()) || seen[c.GetId()]:
			return fmt.Errorf("check id %q: want one word, and none twice", c.GetId())
		case !knownVerdict(c.GetResult()):
			return fmt.Errorf("check %s has result %v", c.GetId(), c.GetResult())
		case c.GetReason() == "":
			return fmt.Errorf("check %s is %v without a reason", c.GetId(), c.GetResult())
		case c.GetResult() != pb.Verdict_VERDICT_SUPPORTED && c.GetRemedy() == "":
			return fmt.Errorf("check %s is %v without a remedy", c.GetId(), c.GetResult())
		case c.GetRequired() && c.GetResult() == pb.Verdict_VERDICT_UNSUPPORTED && m.GetVerdict() != pb.Verdict_VERDICT_UNSUPPORTED:
			return fmt.Errorf("verdict %v, although the required check %s is UNSUPPORTED", m.GetVerdict(), c.GetId())
		case c.GetRequired() && c.GetResult() != pb.Verdict_VERDICT_SUPPORTED && m.GetVerdict() == pb.Verdict_VERDICT_SUPPORTED:
			return fmt.Errorf("verdict SUPPORTED, although the required check %s is %v", c.GetId(), c.GetResult())
		}
		seen[c.GetId()] = true
	}
	k.note("%v by %d checks", m.GetVerdict(), len(seen))
	return nil
}

func knownVerdict(v pb.Verdict) bool {
	_, known := pb.Verdict_name[int32(v)]
	return known && v != pb.Verdict_VERDICT_UNSPECIFIED
}

func probeRepeats(ctx context.Context, k *kit) error {
	first, err := k.probe(ctx)
	if err != nil {
		return err
	}
	for n := range 4 {
		if n == 2 {
			if err := k.open(ctx, several(2)); err != nil {
				return err
			}
		}
		again, err := k.probe(ctx)
		if err != nil {
			return err
		}
		if a, b := results(first), results(again); a != b {
			return failf("Probe says %s, before it said %s", b, a)
		}
	}
	k.note("five times %v", first.GetVerdict())
	return nil
}

func results(m *pb.ProbeResponse) string {
	s := m.GetVerdict().String()
	for _, c := range m.GetChecks() {
		s += fmt.Sprintf(" %s=%v", c.GetId(), c.GetResult())
	}
	return s
}

func probeLeavesNothing(ctx context.Context, k *kit) error {
	if err := k.open(ctx, several(3)); err != nil {
		return err
	}
	before, err := k.leftovers(ctx)
	if err != nil {
		return err
	}
	for range 3 {
		if _, err := k.probe(ctx); err != nil {
			return err
		}
	}
	if err := k.stays(ctx, "Probe"); err != nil {
		return err
	}
	after, err := k.leftovers(ctx)
	if err != nil {
		return err
	}
	if !slices.Equal(before, after) {
		return fmt.Errorf("before Probe Cleanup would remove %q, after it %q", before, after)
	}
	return k.seesIfCan(ctx, "Probe", expect(map[int]int{1: 2, 2: 2, 3: 2}))
}

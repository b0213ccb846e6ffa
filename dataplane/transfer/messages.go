package transfer

import (
	"bytes"
	"log/slog"
	"strings"

	"github.com/fairlead/fairlead/dataplane"
	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
)

// EncodeInfo returns the wire form of an Info; minor is the protocol's.
func EncodeInfo(i dataplane.Info, minor uint32) *pb.InfoResponse {
	out := &pb.InfoResponse{
		Name: i.Name, Version: i.Version, Vendor: i.Vendor, ProtocolMinor: minor, ConfigSchema: i.ConfigSchema,
		Limits: &pb.Limits{
			Services: clamp(i.Limits.Services), Endpoints: clamp(i.Limits.Endpoints), EndpointsPerService: clamp(i.Limits.EndpointsPerService),
		},
	}
	for _, l := range i.Layers {
		out.Layers = append(out.Layers, pb.Layer(l))
	}
	for _, s := range i.Scopes {
		out.Scopes = append(out.Scopes, pb.Scope(s))
	}
	for _, r := range i.ScopeRules {
		rule := &pb.ScopeRule{Setting: r.Setting, Value: r.Value}
		for _, s := range r.Scopes {
			rule.Scopes = append(rule.Scopes, pb.Scope(s))
		}
		out.ScopeRules = append(out.ScopeRules, rule)
	}
	return out
}

// DecodeInfo reads what EncodeInfo wrote.
func DecodeInfo(m *pb.InfoResponse) dataplane.Info {
	l := m.GetLimits()
	out := dataplane.Info{
		Name: m.GetName(), Version: brief(m.GetVersion()), Vendor: brief(m.GetVendor()), ConfigSchema: m.GetConfigSchema(),
		Limits: dataplane.Limits{Services: int(l.GetServices()), Endpoints: int(l.GetEndpoints()), EndpointsPerService: int(l.GetEndpointsPerService())},
	}
	for _, l := range m.GetLayers() {
		out.Layers = append(out.Layers, enum[dataplane.Layer](l))
	}
	for _, s := range m.GetScopes() {
		out.Scopes = append(out.Scopes, enum[dataplane.Scope](s))
	}
	for _, r := range m.GetScopeRules() {
		rule := dataplane.ScopeRule{Setting: r.GetSetting(), Value: r.GetValue()}
		for _, s := range r.GetScopes() {
			rule.Scopes = append(rule.Scopes, enum[dataplane.Scope](s))
		}
		out.ScopeRules = append(out.ScopeRules, rule)
	}
	return out
}

// EncodeReport returns the wire form of the result of a probe.
func EncodeReport(r dataplane.Report) *pb.ProbeResponse {
	out := &pb.ProbeResponse{Verdict: pb.Verdict(r.Verdict)}
	for _, c := range r.Checks {
		out.Checks = append(out.Checks, &pb.Check{Id: c.ID, Required: c.Required, Result: pb.Verdict(c.Result), Reason: text(c.Reason), Remedy: text(c.Remedy)})
	}
	return out
}

// DecodeReport reads what EncodeReport wrote.
func DecodeReport(m *pb.ProbeResponse) dataplane.Report {
	out := dataplane.Report{Verdict: enum[dataplane.Verdict](m.GetVerdict())}
	for _, c := range m.GetChecks() {
		out.Checks = append(out.Checks, dataplane.Check{ID: c.GetId(), Required: c.GetRequired(), Result: enum[dataplane.Verdict](c.GetResult()), Reason: brief(c.GetReason()), Remedy: brief(c.GetRemedy())})
	}
	return out
}

// EncodeConfig returns the wire form of a configuration.
func EncodeConfig(c dataplane.Config) *pb.ConfigureRequest {
	return &pb.ConfigureRequest{Config: c.JSON, RunDir: c.RunDir, StateDir: c.StateDir, InstanceId: c.InstanceID, Node: c.Node}
}

// DecodeConfig reads what EncodeConfig wrote.
func DecodeConfig(m *pb.ConfigureRequest) dataplane.Config {
	return dataplane.Config{JSON: m.GetConfig(), RunDir: m.GetRunDir(), StateDir: m.GetStateDir(), InstanceID: m.GetInstanceId(), Node: m.GetNode()}
}

// EncodeLevel returns the wire form of the least level that is logged.
func EncodeLevel(l slog.Level) pb.LogLevel {
	switch {
	case l < slog.LevelInfo:
		return pb.LogLevel_LOG_LEVEL_DEBUG
	case l < slog.LevelWarn:
		return pb.LogLevel_LOG_LEVEL_INFO
	case l < slog.LevelError:
		return pb.LogLevel_LOG_LEVEL_WARN
	}
	return pb.LogLevel_LOG_LEVEL_ERROR
}

// DecodeLevel reads what EncodeLevel wrote; ok is false if the host has no wish,
// or one that is not known.
func DecodeLevel(l pb.LogLevel) (level slog.Level, ok bool) {
	levels := map[pb.LogLevel]slog.Level{
		pb.LogLevel_LOG_LEVEL_DEBUG: slog.LevelDebug, pb.LogLevel_LOG_LEVEL_INFO: slog.LevelInfo,
		pb.LogLevel_LOG_LEVEL_WARN: slog.LevelWarn, pb.LogLevel_LOG_LEVEL_ERROR: slog.LevelError,
	}
	level, ok = levels[l]
	return level, ok
}

// EncodeDiagnostics returns the wire form of warnings.
func EncodeDiagnostics(ds []dataplane.Diagnostic) *pb.ConfigureResponse {
	out := &pb.ConfigureResponse{}
	for _, d := range ds {
		out.Diagnostics = append(out.Diagnostics, &pb.Diagnostic{Severity: pb.Severity_SEVERITY_WARNING, Path: text(d.Path), Message: text(d.Message)})
	}
	return out
}

// DecodeDiagnostics reads what EncodeDiagnostics wrote.
func DecodeDiagnostics(m *pb.ConfigureResponse) []dataplane.Diagnostic {
	var out []dataplane.Diagnostic
	for _, d := range m.GetDiagnostics() {
		out = append(out, dataplane.Diagnostic{Path: brief(d.GetPath()), Message: brief(d.GetMessage())})
	}
	return out
}

// EncodeState returns the wire form of what is applied.
func EncodeState(s dataplane.State) *pb.StateResponse {
	out := &pb.StateResponse{Generation: s.Generation, Digest: s.Digest, InstanceId: s.InstanceID, Complete: s.Complete}
	if s.Session != (dataplane.Session{}) {
		out.Session = encodeSession(s.Session)
	}
	return out
}

// DecodeState reads what EncodeState wrote.
func DecodeState(m *pb.StateResponse) dataplane.State {
	return dataplane.State{
		Session: decodeSession(m.GetSession()), Generation: m.GetGeneration(), Digest: bytes.Clone(m.GetDigest()),
		InstanceID: m.GetInstanceId(), Complete: m.GetComplete(),
	}
}

// EncodeStatus returns the wire form of how a service fared.
func EncodeStatus(s dataplane.ServiceStatus) *pb.ServiceStatus {
	return &pb.ServiceStatus{Service: EncodeKey(s.Service), Status: pb.Status(s.Status), Reason: text(s.Reason), Message: text(s.Message)}
}

// DecodeStatus reads what EncodeStatus wrote.
func DecodeStatus(m *pb.ServiceStatus) dataplane.ServiceStatus {
	return dataplane.ServiceStatus{Service: DecodeKey(m.GetService()), Status: enum[dataplane.Status](m.GetStatus()), Reason: brief(m.GetReason()), Message: brief(m.GetMessage())}
}

// EncodeResult returns the wire form of what Reconcile did.
func EncodeResult(generation uint64, r dataplane.Result) *pb.ReconcileResponse {
	out := &pb.ReconcileResponse{Generation: generation, Operations: clamp(r.Operations)}
	for _, s := range r.Statuses {
		out.Statuses = append(out.Statuses, EncodeStatus(s))
	}
	return out
}

// DecodeResult reads what EncodeResult wrote.
func DecodeResult(m *pb.ReconcileResponse) (generation uint64, r dataplane.Result) {
	r.Operations = int(m.GetOperations())
	for _, s := range m.GetStatuses() {
		r.Statuses = append(r.Statuses, DecodeStatus(s))
	}
	return m.GetGeneration(), r
}

// EncodeHealth returns the wire form of the state of a data path.
func EncodeHealth(h dataplane.Health) *pb.HealthResponse {
	out := &pb.HealthResponse{State: pb.HealthState(h.State)}
	for _, r := range h.Reasons {
		out.Reasons = append(out.Reasons, text(r))
	}
	return out
}

// DecodeHealth reads what EncodeHealth wrote.
func DecodeHealth(m *pb.HealthResponse) dataplane.Health {
	out := dataplane.Health{State: enum[dataplane.HealthState](m.GetState())}
	for _, r := range m.GetReasons()[:min(len(m.GetReasons()), maxReasons)] {
		out.Reasons = append(out.Reasons, brief(r))
	}
	return out
}

// EncodeCleanup returns the wire form of what Cleanup is asked for.
func EncodeCleanup(o dataplane.CleanupOptions) *pb.CleanupRequest {
	out := &pb.CleanupRequest{Scope: pb.CleanupScope_CLEANUP_SCOPE_OWNED, InstanceId: o.InstanceID, DryRun: o.DryRun, Linger: o.Linger}
	if o.AllKnown {
		out.Scope = pb.CleanupScope_CLEANUP_SCOPE_ALL_KNOWN
	}
	return out
}

// EncodeCleanupItems returns the wire form of what Cleanup found.
func EncodeCleanupItems(items []dataplane.CleanupItem) *pb.CleanupResponse {
	out := &pb.CleanupResponse{}
	for _, i := range items {
		out.Items = append(out.Items, &pb.CleanupItem{Object: text(i.Object), Result: pb.CleanupResult(i.Result), Message: text(i.Message), InstanceId: text(i.InstanceID)})
	}
	return out
}

// DecodeCleanupItems reads what EncodeCleanupItems wrote.
func DecodeCleanupItems(m *pb.CleanupResponse) []dataplane.CleanupItem {
	var out []dataplane.CleanupItem
	for _, i := range m.GetItems() {
		out = append(out, dataplane.CleanupItem{Object: i.GetObject(), Result: enum[dataplane.CleanupResult](i.GetResult()), Message: i.GetMessage(), InstanceID: i.GetInstanceId()})
	}
	return out
}

// EncodeCounter returns the wire form of a counter.
func EncodeCounter(c dataplane.Counter) *pb.Counter {
	return &pb.Counter{Service: EncodeKey(c.Service), Endpoint: c.Endpoint, Name: c.Name, Value: c.Value}
}

// DecodeCounter reads what EncodeCounter wrote.
func DecodeCounter(m *pb.Counter) dataplane.Counter {
	return dataplane.Counter{Service: DecodeKey(m.GetService()), Endpoint: m.GetEndpoint(), Name: m.GetName(), Value: m.GetValue()}
}

// EncodeProgress returns the wire form of how far a drain is.
func EncodeProgress(p dataplane.DrainProgress) *pb.DrainResponse {
	return &pb.DrainResponse{Active: uint64(max(0, p.Active)), Closed: uint64(max(0, p.Closed)), Forced: uint64(max(0, p.Forced))}
}

// DecodeProgress reads what EncodeProgress wrote.
func DecodeProgress(m *pb.DrainResponse) dataplane.DrainProgress {
	return dataplane.DrainProgress{Active: int(m.GetActive()), Closed: int(m.GetClosed()), Forced: int(m.GetForced())}
}

// text makes what a provider says sendable: a message with a byte that is no
// UTF-8 would make the whole answer fail.
func text(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// What is kept of a provider's words. A host shows those of all its providers in
// one answer and logs them, so that one that goes on and on would hide the others.
const (
	maxTextBytes = 1 << 10
	maxReasons   = 32
	cutMark      = "…"
)

// brief is s, or its beginning and a mark if s is longer than maxTextBytes.
func brief(s string) string {
	if len(s) <= maxTextBytes {
		return s
	}
	// Cloned: else the beginning would keep all of it in memory.
	return strings.ToValidUTF8(strings.Clone(s[:maxTextBytes-len(cutMark)]), "") + cutMark
}

func clamp(n int) uint32 {
	return uint32(min(max(0, n), 1<<31-1))
}

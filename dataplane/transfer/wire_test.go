package transfer

import (
	"log/slog"
	"math"
	"net/netip"
	"reflect"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/fairlead/fairlead/dataplane"
	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
)

// overTheWire sends a message through its wire form.
func overTheWire[M proto.Message](t *testing.T, m M) M {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	out := m.ProtoReflect().New().Interface()
	if err := proto.Unmarshal(b, out); err != nil {
		t.Fatal(err)
	}
	return out.(M)
}

func wantSame[T any](t *testing.T, want, got T) {
	t.Helper()
	if !reflect.DeepEqual(want, got) {
		t.Errorf("sent %+v\ngot  %+v", want, got)
	}
}

func TestEveryMessageSurvivesTheWire(t *testing.T) {
	key := dataplane.Key{Namespace: "n", Name: "s"}
	info := dataplane.Info{
		Name: "x", Version: "1", Vendor: "v", Layers: []dataplane.Layer{dataplane.L4, dataplane.L7}, Scopes: []dataplane.Scope{dataplane.ScopeForwarded},
		ScopeRules:   []dataplane.ScopeRule{{Setting: "mode", Value: "all", Scopes: []dataplane.Scope{dataplane.ScopeLocal, dataplane.ScopeForwarded}}},
		ConfigSchema: []byte("{}"), Limits: dataplane.Limits{Services: 1, Endpoints: 2, EndpointsPerService: 3},
	}
	wantSame(t, info, DecodeInfo(overTheWire(t, EncodeInfo(info, 4))))
	report := dataplane.Report{Verdict: dataplane.Degraded, Checks: []dataplane.Check{{ID: "a", Required: true, Result: dataplane.Unsupported, Reason: "r", Remedy: "m"}}}
	wantSame(t, report, DecodeReport(overTheWire(t, EncodeReport(report))))
	config := dataplane.Config{JSON: []byte("{}"), RunDir: "r", StateDir: "s", InstanceID: "i", Node: "n"}
	wantSame(t, config, DecodeConfig(overTheWire(t, EncodeConfig(config))))
	for _, level := range []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError} {
		for _, said := range []slog.Level{level, level + 1} { // between two, the less severe is meant
			if got, ok := DecodeLevel(EncodeLevel(said)); !ok || got != level {
				t.Errorf("%v comes as %v, %v", said, got, ok)
			}
		}
	}
	for _, none := range []pb.LogLevel{pb.LogLevel_LOG_LEVEL_UNSPECIFIED, 99} {
		if got, ok := DecodeLevel(none); ok {
			t.Errorf("%v is read as %v", none, got)
		}
	}
	diagnostics := []dataplane.Diagnostic{{Path: "a", Message: "b"}}
	wantSame(t, diagnostics, DecodeDiagnostics(overTheWire(t, EncodeDiagnostics(diagnostics))))
	state := dataplane.State{Session: dataplane.Session{AgentID: "a", BootEpoch: 2}, Generation: 3, Digest: []byte("d"), InstanceID: "i", Complete: true}
	wantSame(t, state, DecodeState(overTheWire(t, EncodeState(state))))
	wantSame(t, dataplane.State{}, DecodeState(overTheWire(t, EncodeState(dataplane.State{}))))
	if EncodeState(dataplane.State{}).Session != nil {
		t.Error("no session is sent as one")
	}
	result := dataplane.Result{Statuses: []dataplane.ServiceStatus{{Service: key, Status: dataplane.StatusPartial, Reason: "r", Message: "m"}}, Operations: 7}
	generation, got := DecodeResult(overTheWire(t, EncodeResult(9, result)))
	wantSame(t, result, got)
	wantSame(t, 9, generation)
	health := dataplane.Health{State: dataplane.HealthDegraded, Reasons: []string{"r"}}
	wantSame(t, health, DecodeHealth(overTheWire(t, EncodeHealth(health))))
	items := []dataplane.CleanupItem{{Object: "o", Result: dataplane.Kept, Message: "m", InstanceID: "i"}, {Object: "p", Result: dataplane.Pending, Message: "n"}}
	wantSame(t, items, DecodeCleanupItems(overTheWire(t, EncodeCleanupItems(items))))
	counter := dataplane.Counter{Service: key, Endpoint: 1, Name: "c", Value: 2}
	wantSame(t, counter, DecodeCounter(overTheWire(t, EncodeCounter(counter))))
	progress := dataplane.DrainProgress{Active: 1, Closed: 2, Forced: 3}
	wantSame(t, progress, DecodeProgress(overTheWire(t, EncodeProgress(progress))))

	for _, all := range []bool{false, true} {
		m := overTheWire(t, EncodeCleanup(dataplane.CleanupOptions{AllKnown: all, InstanceID: "i", DryRun: true, Linger: all}))
		if (m.Scope == pb.CleanupScope_CLEANUP_SCOPE_ALL_KNOWN) != all || m.InstanceId != "i" || !m.DryRun || m.Linger != all {
			t.Errorf("got %v", m)
		}
	}
	if m := EncodeProgress(dataplane.DrainProgress{Active: -1}); m.Active != 0 {
		t.Errorf("got %v", m)
	}
	if n := EncodeResult(1, dataplane.Result{Operations: math.MaxInt}).Operations; n != math.MaxInt32 {
		t.Errorf("got %d", n)
	}
}

func TestEveryEventSurvivesTheWire(t *testing.T) {
	binding := func(s string) dataplane.Binding {
		return dataplane.Binding{Addr: netip.MustParseAddrPort(s), Protocol: dataplane.UDP}
	}
	for _, e := range []dataplane.Event{
		{Health: &dataplane.Health{State: dataplane.HealthReady}},
		{Status: &dataplane.ServiceStatus{Service: dataplane.Key{Namespace: "n", Name: "s"}, Status: dataplane.StatusRejected, Reason: "r"}},
		{Drift: &dataplane.Drift{What: "w", Repaired: true}},
		{ResyncWanted: "why"},
		{Flow: &dataplane.Flow{
			At: time.Unix(1, 2).UTC(), Service: dataplane.Key{Namespace: "n", Name: "s"}, Endpoint: 3,
			Source: binding("10.0.0.1:1"), Frontend: binding("[fd00::1]:2"), Destination: binding("127.0.0.1:3"), Verdict: "refused",
			Reason: "empty", Process: dataplane.Process{PID: 4, Name: "curl", Cgroup: "/a/b", CgroupID: 5},
		}},
	} {
		wantSame(t, e, DecodeEvent(overTheWire(t, EncodeEvent(e))))
	}
	if EncodeEvent(dataplane.Event{}) != nil {
		t.Error("an event of nothing")
	}
	wantSame(t, dataplane.Event{}, DecodeEvent(&pb.WatchResponse{}))
}

func TestFlowOptionsAndTheirDefaults(t *testing.T) {
	for want, sent := range map[dataplane.FlowOptions]dataplane.FlowOptions{
		{SampleOneIn: 1, MaxPerSecond: DefaultFlowsPerSecond}: {},
		{SampleOneIn: 7, MaxPerSecond: 8}:                     {SampleOneIn: 7, MaxPerSecond: 8},
	} {
		wantSame(t, &want, DecodeFlowOptions(overTheWire(t, EncodeFlowOptions(&sent))))
	}
	if EncodeFlowOptions(nil) != nil || DecodeFlowOptions(nil) != nil {
		t.Error("flows that nobody asked for")
	}
}

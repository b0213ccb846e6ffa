package sdk

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/dataplane"
	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
	"github.com/fairlead/fairlead/dataplane/fake"
	"github.com/fairlead/fairlead/dataplane/sdk/handshake"
	"github.com/fairlead/fairlead/dataplane/transfer"
)

func mustAddr(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }

func TestInfoIsChecked(t *testing.T) {
	for name, change := range map[string]func(*dataplane.Info){
		"no name":      func(i *dataplane.Info) { i.Name = "" },
		"capital":      func(i *dataplane.Info) { i.Name = "Fake" },
		"digit first":  func(i *dataplane.Info) { i.Name = "4ake" },
		"too long":     func(i *dataplane.Info) { i.Name = strings.Repeat("a", 33) },
		"no version":   func(i *dataplane.Info) { i.Version = "" },
		"no layer":     func(i *dataplane.Info) { i.Layers = nil },
		"schema no js": func(i *dataplane.Info) { i.ConfigSchema = []byte("{") },
	} {
		info := fake.New().Info()
		change(&info)
		_, err := NewService(&spy{Provider: fake.New(), info: &info}, slog.New(slog.DiscardHandler))
		if !errors.Is(err, dataplane.ErrInvalid) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestInfoAndPluginInfoAgree(t *testing.T) {
	h := serve(t, fake.New())
	r := must(h.Info(t.Context(), &pb.InfoRequest{}))(t)
	info := transfer.DecodeInfo(r)
	printed := handshake.Describe(info)
	if printed.Name != "fake" || printed.Version != fake.Version || printed.Layers[0] != "l4" || printed.Scopes[0] != "local" || printed.Limits != nil || !json.Valid(printed.ConfigSchema) {
		t.Fatalf("got %+v", printed)
	}
}

func TestProbe(t *testing.T) {
	p := &spy{Provider: fake.New()}
	h := serve(t, p)
	if r := must(h.Probe(t.Context(), &pb.ProbeRequest{}))(t); r.Verdict != pb.Verdict_VERDICT_SUPPORTED || len(r.Checks) != 1 {
		t.Fatalf("got %v", r)
	}
	// "An error means that the probe itself failed, which a host takes as Inconclusive."
	p.probe = func(context.Context) (dataplane.Report, error) {
		return dataplane.Report{}, errors.New("out of memory")
	}
	if r := must(h.Probe(t.Context(), &pb.ProbeRequest{}))(t); r.Verdict != pb.Verdict_VERDICT_INCONCLUSIVE || r.Checks[0].Reason != "out of memory" {
		t.Fatalf("got %v", r)
	}
	p.probe = func(ctx context.Context) (dataplane.Report, error) {
		<-ctx.Done()
		return dataplane.Report{}, ctx.Err()
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := h.Probe(ctx, &pb.ProbeRequest{})
	wantErr(t, transfer.FromWire(err), context.Canceled)
}

func TestConfigure(t *testing.T) {
	p := fake.New()
	h := serve(t, p)
	for name, r := range map[string]*pb.ConfigureRequest{
		"no instance": {},
		"no JSON":     {InstanceId: "i", Config: []byte("{")},
		"refused":     {InstanceId: "i", Config: []byte(`{"delay": "soon"}`)},
	} {
		if _, err := h.Configure(t.Context(), r); !errors.Is(transfer.FromWire(err), dataplane.ErrInvalid) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	r := must(h.Configure(t.Context(), &pb.ConfigureRequest{InstanceId: "i", Config: []byte(`{"refuse": ["default/a", "default/a"]}`)}))(t)
	if len(r.Diagnostics) != 1 || r.Diagnostics[0].Path != "refuse[1]" || r.Diagnostics[0].Severity != pb.Severity_SEVERITY_WARNING {
		t.Fatalf("got %v", r)
	}
	// "a rejected one leaves the old one in force"
	if _, err := h.Configure(t.Context(), &pb.ConfigureRequest{InstanceId: "i", Config: []byte(`[]`)}); err == nil {
		t.Fatal("was accepted")
	}
	if got := describeStatuses(must(h.snapshot(gen(1, svc("a", 1)), false))(t)); got != "default/a UNSUPPORTED unsupported" {
		t.Fatalf("got %s", got)
	}
}

func TestConfigurationWithoutSchema(t *testing.T) {
	info := fake.New().Info()
	info.ConfigSchema = nil
	h := serve(t, &spy{Provider: fake.New(), info: &info})
	for _, ok := range []string{"", "{}", "null", " {} "} {
		h.configure("i", ok)
	}
	_, err := h.Configure(t.Context(), &pb.ConfigureRequest{InstanceId: "i", Config: []byte(`{"a": 1}`)})
	wantErr(t, transfer.FromWire(err), dataplane.ErrInvalid)
}

// A tick does not reach the provider, so what a new configuration allows has to
// be programmed by the next one.
func TestAChangedConfigurationIsApplied(t *testing.T) {
	p := fake.New()
	h := serve(t, p)
	h.configure("i", `{"refuse": ["default/a"]}`)
	s := gen(1, svc("a", 1, 9001))
	must(h.snapshot(s, false))(t)
	h.configure("i", `{"refuse": ["default/a"]}`) // the same
	if r := must(h.tick(s))(t); len(r.Statuses) != 1 {
		t.Fatalf("got %v", r)
	}
	h.configure("i", `{}`)
	r := must(h.tick(s))(t)
	if got := describeStatuses(r); got != "default/a PROGRAMMED " || r.Operations != 1 {
		t.Fatalf("got %s, %d operations\n%s", got, r.Operations, p)
	}
	if r := must(h.tick(s))(t); len(r.Statuses) != 0 || r.Operations != 0 {
		t.Fatalf("got %v", r)
	}
}

func TestStateOfAFormerProcess(t *testing.T) {
	dir := t.TempDir()
	one := gen(1, svc("web", 1, 9001))
	h := configured(t, fake.NewIn(dir))
	must(h.snapshot(one, false))(t)

	calls := 0
	p := &spy{Provider: fake.NewIn(dir)}
	p.reconcile = func(ctx context.Context, s *dataplane.Snapshot, d dataplane.Delta) (dataplane.Result, error) {
		calls++
		return p.Provider.Reconcile(ctx, s, d)
	}
	h = configured(t, p)
	if st := must(h.State(t.Context(), &pb.StateRequest{}))(t); st.Generation != 1 || string(st.Digest) != "digest1" || st.InstanceId != "i1" {
		t.Fatalf("got %v", st)
	}
	if r := must(h.tick(one))(t); r.Generation != 1 || calls != 0 {
		t.Fatalf("unchanged: got %v, %d calls", r, calls)
	}
	two := gen(2, svc("web", 1, 9001, 9002))
	_, err := h.delta(one, two)
	wantErr(t, err, dataplane.ErrBaseMismatch) // only the old process had the base
	_, err = h.snapshot(gen(2), false)
	wantErr(t, err, dataplane.ErrInvalid) // nothing at all has to be meant here, too
	older := gen(9, svc("web", 1)).Edit().Done()
	older.Session.BootEpoch = 0
	older.Session.AgentID = "a"
	if r := must(h.snapshot(two, false))(t); r.Operations != 1 || calls != 1 {
		t.Fatalf("got %v, %d calls", r, calls)
	}
	// the next one may be a delta again
	must(h.delta(two, gen(3, svc("web", 1, 9002))))(t)
}

func TestStateThatIsNoneIsNotTaken(t *testing.T) {
	for name, state := range map[string]func(context.Context) (dataplane.State, error){
		"error":          func(context.Context) (dataplane.State, error) { return dataplane.State{}, errors.New("unreadable") },
		"nothing":        func(context.Context) (dataplane.State, error) { return dataplane.State{}, nil },
		"no session":     func(context.Context) (dataplane.State, error) { return dataplane.State{Generation: 1}, nil },
		"other instance": func(context.Context) (dataplane.State, error) { return found("other"), nil },
	} {
		h := configured(t, &spy{Provider: fake.New(), state: state})
		if st := must(h.State(t.Context(), &pb.StateRequest{}))(t); st.Generation != 0 {
			t.Errorf("%s: got %v", name, st)
		}
	}
	h := configured(t, &spy{Provider: fake.New(), state: func(context.Context) (dataplane.State, error) { return found("i1"), nil }})
	if st := must(h.State(t.Context(), &pb.StateRequest{}))(t); st.Generation != 7 {
		t.Errorf("got %v", st)
	}
	_, err := h.tick(gen(7))
	wantErr(t, err, dataplane.ErrBaseMismatch) // another digest
	h.configure("i1", `{"delay": "1ms"}`)      // and what is there is not known
	same := gen(7).Edit().Done()
	same.Digest = nil
	_, err = h.tick(same)
	wantErr(t, err, dataplane.ErrBaseMismatch)
}

func found(instance string) dataplane.State {
	return dataplane.State{Session: dataplane.Session{AgentID: "a", BootEpoch: 1}, Generation: 7, InstanceID: instance, Complete: true}
}

func TestAnotherInstanceStartsFromNothing(t *testing.T) {
	h := configured(t, fake.New())
	s := gen(1, svc("web", 1))
	must(h.snapshot(s, false))(t)
	h.configure("i2", "")
	if st := must(h.State(t.Context(), &pb.StateRequest{}))(t); st.Generation != 0 || st.InstanceId != "i2" {
		t.Fatalf("got %v", st)
	}
	_, err := h.delta(s, gen(2, svc("web", 1)))
	wantErr(t, err, dataplane.ErrBaseMismatch)
}

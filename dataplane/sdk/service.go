package sdk

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/fairlead/fairlead/dataplane"
	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
	"github.com/fairlead/fairlead/dataplane/sdk/handshake"
	"github.com/fairlead/fairlead/dataplane/transfer"
)

// Service is the contract's gRPC service in front of a provider. It keeps what
// package dataplane promises to providers, and answers what can be answered
// without them. Run makes one; tests may serve it in their own process:
//
//	service, err := sdk.NewService(provider, slog.New(slog.DiscardHandler))
//	dataplanepb.RegisterDataPlaneProviderServer(server, service)
type Service struct {
	pb.UnimplementedDataPlaneProviderServer

	provider dataplane.Provider
	info     dataplane.Info
	log      *slog.Logger
	hub      hub
	vital    vital

	ctx    context.Context // of all calls; ends with the service
	cancel context.CancelFunc
	done   chan struct{} // closed by end
	once   sync.Once
	fault  atomic.Pointer[handshake.Panic]

	level      *slog.LevelVar // of log; written before the first call; nil: the host has no say in it
	afterLarge func()         // written before the first call; nil: nothing

	turn turn
	// Guarded by turn.
	assembler *transfer.Assembler
	last      statuses
	dirty     bool // the configuration changed after the last Reconcile
	shut      bool

	config atomic.Pointer[dataplane.Config] // nil: not configured; written by the holder of turn
	state  atomic.Pointer[dataplane.State]  // of assembler, for those without turn
}

var _ pb.DataPlaneProviderServer = (*Service)(nil)

// NewService returns the service of a provider. The error says what is wrong
// with its Info. Close ends it.
func NewService(p dataplane.Provider, log *slog.Logger) (*Service, error) {
	s := &Service{provider: p, log: log, done: make(chan struct{}), turn: newTurn()}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.state.Store(&dataplane.State{})
	err := s.call("Info", func() error {
		s.info = p.Info()
		return handshake.CheckInfo(s.info)
	})
	if err != nil {
		s.cancel()
		return nil, err
	}
	s.assembler = transfer.NewAssembler(s.info.Limits)
	return s, nil
}

// Done is closed when the service has nothing more to do: after Shutdown, after
// a panic of the provider, and by Close.
func (s *Service) Done() <-chan struct{} { return s.done }

// Panicked returns what the provider panicked with, or nil.
func (s *Service) Panicked() *handshake.Panic { return s.fault.Load() }

// Close ends streams and cancels calls. It does not call the provider.
func (s *Service) Close() {
	s.end()
	s.cancel()
}

func (s *Service) end() { s.once.Do(func() { close(s.done) }) }

// Info answers from what NewService asked.
func (s *Service) Info(context.Context, *pb.InfoRequest) (*pb.InfoResponse, error) {
	return transfer.EncodeInfo(s.info, handshake.ProtocolMinor), nil
}

// Probe asks the provider. An error of the probe is a result: INCONCLUSIVE.
func (s *Service) Probe(ctx context.Context, _ *pb.ProbeRequest) (*pb.ProbeResponse, error) {
	release, err := s.take("Probe")
	if err != nil {
		return nil, transfer.ToWire(err)
	}
	defer release()
	ctx, cancel := s.join(ctx)
	defer cancel()
	var report dataplane.Report
	if err := s.call("Probe", func() (err error) { report, err = s.provider.Probe(ctx); return err }); err != nil {
		if ctx.Err() != nil || s.Panicked() != nil {
			return nil, transfer.ToWire(err)
		}
		report = dataplane.Report{Verdict: dataplane.Inconclusive, Checks: []dataplane.Check{{
			ID: "probe", Required: true, Result: dataplane.Inconclusive, Reason: err.Error(), Remedy: "try again; if it stays, this is a fault of the provider",
		}}}
	}
	return transfer.EncodeReport(report), nil
}

// Configure hands the configuration to the provider. The first one also asks a
// Stateful provider what a former process left.
func (s *Service) Configure(ctx context.Context, r *pb.ConfigureRequest) (*pb.ConfigureResponse, error) {
	if level, said := transfer.DecodeLevel(r.GetLogLevel()); said && s.level != nil {
		s.level.Set(level) // also if the rest is refused
	}
	diagnostics, err := s.configure(ctx, transfer.DecodeConfig(r))
	if err != nil {
		return nil, transfer.ToWire(err)
	}
	return transfer.EncodeDiagnostics(diagnostics), nil
}

func (s *Service) configure(ctx context.Context, c dataplane.Config) ([]dataplane.Diagnostic, error) {
	release, err := s.take("Configure")
	if err != nil {
		return nil, err
	}
	defer release()
	if err := s.checkConfig(c); err != nil {
		return nil, err
	}
	ctx, cancel := s.join(ctx)
	defer cancel()
	var diagnostics []dataplane.Diagnostic
	if err := s.call("Configure", func() (err error) { diagnostics, err = s.provider.Configure(ctx, c); return err }); err != nil {
		return nil, err
	}
	old := s.config.Swap(&c)
	switch {
	case old == nil:
		s.resume(ctx, c)
	case old.InstanceID != c.InstanceID:
		s.forget()
		s.resume(ctx, c)
	default:
		s.dirty = s.dirty || !sameConfig(*old, c)
	}
	s.publish()
	return diagnostics, nil
}

func (s *Service) checkConfig(c dataplane.Config) error {
	switch {
	case c.InstanceID == "":
		return fmt.Errorf("%w: Configure without instance_id: it tags what the provider makes", dataplane.ErrInvalid)
	case len(c.JSON) > 0 && !json.Valid(c.JSON):
		return fmt.Errorf("%w: the configuration of %s is no JSON", dataplane.ErrInvalid, s.info.Name)
	case len(s.info.ConfigSchema) == 0 && !emptyJSON(c.JSON):
		return fmt.Errorf("%w: %s takes no configuration: remove it", dataplane.ErrInvalid, s.info.Name)
	}
	return nil
}

func emptyJSON(b []byte) bool {
	if len(b) == 0 {
		return true
	}
	var v map[string]json.RawMessage
	return json.Unmarshal(b, &v) == nil && len(v) == 0 // also null
}

func sameConfig(a, b dataplane.Config) bool {
	return string(a.JSON) == string(b.JSON) && a.RunDir == b.RunDir && a.StateDir == b.StateDir && a.Node == b.Node
}

// resume asks the provider what is applied already.
func (s *Service) resume(ctx context.Context, c dataplane.Config) {
	p, ok := s.provider.(dataplane.Stateful)
	if !ok || s.assembler.Applied().Generation != 0 {
		return
	}
	var found dataplane.State
	if err := s.call("State", func() (err error) { found, err = p.State(ctx); return err }); err != nil {
		s.log.Warn("what a former process left is not known; waiting for a snapshot", "error", err)
		return
	}
	if found.Generation == 0 || found.Session.AgentID == "" || found.Session.BootEpoch == 0 || found.InstanceID != "" && found.InstanceID != c.InstanceID {
		return
	}
	s.assembler.Resume(transfer.Applied{Session: found.Session, Generation: found.Generation, Digest: found.Digest, Complete: found.Complete})
	s.log.Info("found the work of a former process", "generation", found.Generation, "agent", found.Session.AgentID, "boot_epoch", found.Session.BootEpoch)
}

// State says what is applied. It waits for nobody.
func (s *Service) State(context.Context, *pb.StateRequest) (*pb.StateResponse, error) {
	return transfer.EncodeState(*s.state.Load()), nil
}

// publish shows the state of the assembler to those without the turn.
func (s *Service) publish() {
	a := s.assembler.Applied()
	st := dataplane.State{Session: a.Session, Generation: a.Generation, Digest: a.Digest, Complete: a.Complete, InstanceID: s.instance()}
	s.state.Store(&st)
}

// forget is called when what was applied is gone.
func (s *Service) forget() {
	s.assembler.Forget()
	s.last, s.dirty = statuses{}, false
}

func (s *Service) instance() string {
	if c := s.config.Load(); c != nil {
		return c.InstanceID
	}
	return ""
}

// join returns a context that ends with ctx and with the service.
func (s *Service) join(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(s.ctx, cancel)
	return ctx, func() { stop(); cancel() }
}

package l7

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/sdk"
	"github.com/fairlead/fairlead/plugins/l7/internal/conf"
)

// standalone is a proxy that runs by itself. Its goroutine, run, does all but
// serve requests.
type standalone struct {
	process  Process
	log      *slog.Logger
	level    *slog.LevelVar
	provider *Provider
	notify   *notifier

	cfg  *conf.Config
	last *dataplane.Snapshot // of static services
}

// Serve runs a proxy by itself until a signal or ctx ends it, and returns the
// exit code.
func Serve(ctx context.Context, p Process) int {
	cfg, code := p.load()
	if cfg == nil {
		return code
	}
	s := &standalone{process: p, level: new(slog.LevelVar), cfg: cfg, last: &dataplane.Snapshot{}}
	s.level.Set(cfg.LogLevel)
	s.log = slog.New(slog.NewTextHandler(p.Stderr, &slog.HandlerOptions{Level: s.level}))
	s.notify = newNotifier(p.Environ, s.log)
	s.provider = New(p.Version)
	s.provider.UseLogger(s.log)
	if err := s.run(ctx); err != nil {
		fmt.Fprintf(p.Stderr, "%v\n", err)
		return exitFailed
	}
	return exitOK
}

func (s *standalone) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := s.provider.configure(s.cfg.Settings, instance); err != nil {
		return err
	}
	lost := make(chan int, 1) // the exit code of the link to the agent
	if s.cfg.Follow != "" || s.cfg.Socket != "" {
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			lost <- s.link(ctx)
		}()
		defer func() {
			cancel()
			<-ended
		}()
	} else if err := s.apply(ctx, s.cfg.Services); err != nil {
		return errors.Join(err, s.stop(ctx))
	}
	s.notify.ready()
	s.log.Info("serving", "version", s.process.Version, "listen", strings.Join(s.provider.front.Addresses(), ","), "admin", s.provider.admin.Address(), "config", s.cfg.File)
	for {
		select {
		case <-ctx.Done():
			return s.stop(ctx)
		case code := <-lost:
			if ctx.Err() != nil { // which ended it
				return s.stop(ctx)
			}
			return errors.Join(fmt.Errorf("l7: the link to the agent ended with code %d; the log says why", code), s.stop(ctx))
		case sig := <-s.process.Signals:
			if sig == syscall.SIGHUP {
				s.reload(ctx)
				continue
			}
			s.log.Info("stopping", "signal", sig.String(), "grace", s.cfg.Settings.Grace.String())
			return s.stop(ctx)
		}
	}
}

// instance is the instance id of a proxy that nobody gave one. An agent that
// has no settings for it sees by it that it is configured, and leaves it alone.
const instance = "l7"

// link joins the provider to an agent, in the one way or in the other.
func (s *standalone) link(ctx context.Context) int {
	args := []string{"--instance-id", instance}
	if s.cfg.Follow != "" {
		args = append(args, "--follow", s.cfg.Follow)
	} else {
		args = append(args, "--listen", "unix:"+s.cfg.Socket)
	}
	return sdk.Run(ctx, guest{s.provider}, sdk.Env{
		Args: args, Getenv: func(string) string { return "" }, Stdout: s.process.Stdout, Stderr: s.process.Stderr, Parent: os.Getppid,
	}, sdk.LogLevel(s.level.Level()), sdk.OwnConfig(func(func(string) string) ([]byte, error) { return nil, nil }))
}

// apply puts static services into force.
func (s *standalone) apply(ctx context.Context, services []*dataplane.Service) error {
	next := &dataplane.Snapshot{
		Session: dataplane.Session{AgentID: instance, BootEpoch: 1}, Generation: s.last.Generation + 1, Completeness: dataplane.Alone,
	}
	edit := next.Edit()
	for _, svc := range services {
		edit.Set(svc)
	}
	next = edit.Done()
	result, err := s.provider.Reconcile(ctx, next, dataplane.Diff(s.last, next, nil))
	if err != nil {
		return err
	}
	for _, st := range result.Statuses { // what can be foreseen was refused already
		s.log.Warn("a service is not as it was written", "service", st.Service.String(), "at", s.cfg.Place(st.Service), "status", st.Status.String(), "reason", st.Message)
	}
	s.last = next
	return nil
}

// reload reads the configuration again. If it is wrong in any part, or cannot
// be put into force, all stays as it is.
func (s *standalone) reload(ctx context.Context) {
	s.notify.reloading()
	defer s.notify.ready()
	if err := s.renew(ctx); err != nil {
		s.provider.reloads.WithLabelValues(reloadFailed).Inc()
		s.log.Error("the new configuration is not in force, the old one stays", "error", strings.ReplaceAll(err.Error(), "\n", "; "))
		return
	}
	s.provider.reloads.WithLabelValues(reloadApplied).Inc()
	s.log.Info("the configuration was reloaded", "config", s.cfg.File, "listen", strings.Join(s.provider.front.Addresses(), ","))
}

func (s *standalone) renew(ctx context.Context) error {
	cfg, err := conf.Load(conf.Input{Args: s.process.Args, Environ: s.process.Environ, ReadFile: os.ReadFile})
	if err != nil {
		return err
	}
	if cfg.Follow != s.cfg.Follow || cfg.Socket != s.cfg.Socket {
		return errors.New("l7: where backends come from (services, follow, provider_socket) changed: that needs a restart")
	}
	if err := s.provider.configure(cfg.Settings, instance); err != nil {
		return err
	}
	s.cfg = cfg
	s.level.Set(cfg.LogLevel)
	if cfg.Follow != "" || cfg.Socket != "" {
		return nil
	}
	return s.apply(ctx, cfg.Services)
}

// stop drains and ends. Another signal cuts it short.
func (s *standalone) stop(ctx context.Context) error {
	s.notify.stopping()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.Settings.Announce+s.cfg.Settings.Grace+cutTime)
	defer cancel()
	done := make(chan struct{})
	go func() {
		for {
			select {
			case <-done:
				return
			case sig := <-s.process.Signals:
				if sig != syscall.SIGHUP {
					cancel()
					return
				}
			}
		}
	}()
	defer close(done)
	return s.provider.Shutdown(ctx, dataplane.ShutdownKeep)
}

// guest is the provider as an agent sees it that did not start it: its settings
// are its own.
type guest struct{ *Provider }

// Configure refuses settings: there would be two who set them.
func (g guest) Configure(_ context.Context, c dataplane.Config) ([]dataplane.Diagnostic, error) {
	if c.InstanceID == instance && slices.Contains([]string{"", "{}", "null"}, strings.TrimSpace(string(c.JSON))) {
		return nil, nil
	}
	return nil, fmt.Errorf("%w: l7: this proxy runs by itself and has its settings from its own file, flags and variables: take all but socket out of plugins.l7 of the agent", dataplane.ErrInvalid)
}

// UseLogger leaves the logger: the process has its own.
func (guest) UseLogger(*slog.Logger) {}

// Shutdown does nothing: the process decides on its end.
func (guest) Shutdown(context.Context, dataplane.ShutdownPolicy) error { return nil }

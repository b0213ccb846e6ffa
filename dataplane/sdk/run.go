package sdk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/sdk/handshake"
)

const (
	// hostLossTime is what the end may take when the host is gone.
	hostLossTime = 700 * time.Millisecond
	// controlTime is what it may take when go-plugin's host asks, which kills
	// after 2 s.
	controlTime = 1500 * time.Millisecond
	// lastWordsTime is how long the end waits for logs to be read.
	lastWordsTime = 300 * time.Millisecond
)

// Env is what Run sees of its process.
type Env struct {
	Args    []string // without the program
	Getenv  func(string) string
	Stdout  io.Writer        // for the answer to the host and for what was asked for
	Stderr  io.Writer        // for logs and last words
	Signals <-chan os.Signal // nil: none
	Parent  func() int       // the id of the parent process
}

// Run runs a provider until it is told to end, by ctx or otherwise, and returns
// the exit code. It is Serve without its hold on the process.
//
//	no arguments,      --listen, --follow,       --plugin-info
//	cookie set         --debug                   --help
//	    │                   │                        │
//	  child             by itself                  print
//	    └──── serving ──────┘                        │
//	             │ SIGTERM, ctx, host gone (exit):   │
//	             │   Shutdown(keep)                  │
//	             │ call Shutdown: done already       │
//	             │ panic: at once                    │
//	            exit ◄───────────────────────────────┘
func Run(ctx context.Context, p dataplane.Provider, env Env, opts ...Option) int {
	r := &run{env: env, set: newSettings(opts)}
	args, err := parseArguments(env.Args)
	if err != nil {
		fmt.Fprintf(env.Stderr, "%v; see --help\n", err)
		return handshake.ExitUsage
	}
	r.args = args
	r.child = !args.byItself() && env.Getenv(handshake.CookieKey) == handshake.CookieValue
	level := new(slog.LevelVar)
	level.Set(r.set.level)
	if args.debug {
		level.Set(slog.LevelDebug)
	}
	logs := newLogWriter(env.Stderr)
	defer logs.Close(lastWordsTime)
	r.log = newLogger(logs, r.child, level)
	if l, ok := p.(Logging); ok {
		l.UseLogger(r.log)
	}
	r.service, err = NewService(p, r.log)
	if err != nil {
		fmt.Fprintf(env.Stderr, "%v\n", err)
		return handshake.ExitFailed
	}
	defer r.service.Close()
	if !args.debug {
		r.service.level = level
	}
	if r.set.afterLarge != nil {
		r.service.afterLarge = r.set.afterLarge
		defer r.set.largeOver()
	}
	code := r.mode(ctx)
	if p := r.service.Panicked(); p != nil {
		return r.lastWords(logs, p)
	}
	return code
}

type run struct {
	env     Env
	set     *settings
	args    *arguments
	child   bool
	log     *slog.Logger
	service *Service
}

func (r *run) mode(ctx context.Context) int {
	switch {
	case r.args.help:
		fmt.Fprint(r.env.Stdout, usage(r.service.info))
		return handshake.ExitOK
	case r.args.info:
		return r.printInfo()
	case !r.child && !r.args.byItself():
		fmt.Fprint(r.env.Stderr, explanation(r.service.info))
		return handshake.ExitUsage
	}
	if err := r.serve(ctx); err != nil {
		r.log.Error("the provider cannot go on", "provider", r.service.info.Name, "error", err)
		return handshake.ExitFailed
	}
	return handshake.ExitOK
}

func (r *run) printInfo() int {
	b, err := json.MarshalIndent(handshake.Describe(r.service.info), "", "  ")
	if err == nil {
		_, err = fmt.Fprintf(r.env.Stdout, "%s\n", b)
	}
	if err != nil {
		fmt.Fprintf(r.env.Stderr, "--plugin-info: %v\n", err)
		return handshake.ExitFailed
	}
	return handshake.ExitOK
}

// serve starts what the mode needs and waits for the reason to end.
func (r *run) serve(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if r.set.newPrivileges != "" {
		r.log.Warn("programs that this provider starts may gain privileges", "reason", r.set.newPrivileges)
	}
	if !r.child {
		if err := r.configure(ctx); err != nil {
			return err
		}
	}
	w, err := r.start(ctx)
	if err != nil {
		return err
	}
	e := r.wait(ctx, w)
	err = errors.Join(e.err, r.service.Stop(e.budget))
	w.stop(e.streams)
	return err
}

// configure gives a provider that runs by itself its configuration, if somebody
// other than the agent has one.
func (r *run) configure(ctx context.Context) error {
	var own func() ([]byte, error)
	if r.set.ownConfig != nil {
		own = func() ([]byte, error) { return r.set.ownConfig(r.env.Getenv) }
	}
	c, given, err := r.args.readConfig(r.service.info, own)
	if err != nil || !given {
		return err
	}
	remarks, err := r.service.configure(ctx, c)
	for _, d := range remarks {
		r.log.Warn("remark on the configuration", "path", d.Path, "message", d.Message)
	}
	return err
}

// ending is why the provider has to end, and what that may take.
type ending struct {
	err     error
	budget  time.Duration // for the provider
	streams time.Duration // for answers to leave
}

func (r *run) wait(ctx context.Context, w *workers) ending {
	orderly := ending{budget: r.set.stopTime, streams: streamsTime}
	for {
		select {
		case sig := <-r.env.Signals:
			if r.child && sig != syscall.SIGTERM {
				continue // of the terminal, to all its processes: the host decides
			}
			r.log.Info("stopping", "signal", sig.String())
			go r.secondSignal(ctx)
			return orderly
		case <-ctx.Done():
			return orderly
		case <-r.service.Done():
			return orderly
		case <-w.ask:
			orderly.budget = min(controlTime, r.set.stopTime)
			return orderly
		case orderly.err = <-w.failed:
			return orderly
		case <-w.hostLost:
			w.hostLost = nil
			if w.serveOn {
				r.log.Warn("the host is gone; serving on until the next one comes", "socket", r.env.Getenv(handshake.EnvSocket))
				continue
			}
			r.log.Warn("the host is gone; ending, what is programmed stays")
			return ending{budget: min(hostLossTime, r.set.stopTime)}
		}
	}
}

// secondSignal cancels all calls when SIGTERM comes again.
func (r *run) secondSignal(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case sig := <-r.env.Signals:
			if sig == syscall.SIGTERM || !r.child {
				r.service.cancel()
				return
			}
		}
	}
}

// lastWords tells of a panic, after what was logged before it. They pass by the
// queue, which may be full.
func (r *run) lastWords(logs *logWriter, p *handshake.Panic) int {
	logs.Flush(lastWordsTime)
	said := make(chan struct{})
	go func() {
		defer close(said)
		if b, err := json.Marshal(p); err == nil {
			_, _ = r.env.Stderr.Write(append(b, '\n'))
		}
	}()
	select {
	case <-said:
	case <-time.After(lastWordsTime):
	}
	return handshake.ExitPanic
}

package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/core/api"
	"github.com/fairlead/fairlead/core/api/client"
	"github.com/fairlead/fairlead/core/config"
	"github.com/fairlead/fairlead/test/await"
	"github.com/fairlead/fairlead/test/runnable"
)

// fakeDeparture is a membership that only ends. Nil functions do nothing.
type fakeDeparture struct {
	leave   func(context.Context) error
	hold    func(context.Context, time.Duration) error
	refusal error
}

func (f *fakeDeparture) Leave(ctx context.Context) error { return f.leave(ctx) }

func (f *fakeDeparture) Hold(ctx context.Context, d time.Duration) error { return f.hold(ctx, d) }

func (f *fakeDeparture) CanHold(time.Duration) error { return f.refusal }

// stopping returns an agent whose Leave does what leave says.
func stopping(t *testing.T, leave func(context.Context) error) *Agent {
	t.Helper()
	cfg := config.Defaults()
	cfg.ShutdownTimeout = 10 * time.Second
	a, err := New(Options{Loaded: Loaded{Config: cfg}, Metrics: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	a.leaver = newLeaver(&fakeDeparture{leave: leave}, cfg.ShutdownTimeout)
	return a
}

func TestSecondSignalStopsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		a := stopping(t, func(context.Context) error { <-release; return nil })
		signals := make(chan os.Signal, 2)
		begin := time.Now()
		time.AfterFunc(sameRequest, func() {
			signals <- syscall.SIGHUP // is no second request to stop
			signals <- syscall.SIGTERM
		})
		if err := a.stop(&cleanups{}, signals); !errors.Is(err, ErrCutShort) {
			t.Errorf("got %v, want ErrCutShort", err)
		}
		if d := time.Since(begin); d != sameRequest {
			t.Errorf("it took %v", d)
		}
		close(release)
	})
}

// timeout(1) signals the process, and then the group that it is in.
func TestSignalThatComesTwiceIsOneRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := stopping(t, func(context.Context) error { time.Sleep(time.Second); return nil })
		signals := make(chan os.Signal, 1)
		signals <- syscall.SIGTERM
		if err := a.stop(&cleanups{}, signals); err != nil {
			t.Errorf("got %v", err)
		}
	})
}

// Leaving may take a part of the time only: closing has the rest.
func TestLeaveThatHangsIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := stopping(t, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		var closed bool
		var opened cleanups
		opened.add(func(ctx context.Context) { closed = ctx.Err() == nil })
		begin := time.Now()
		if err := a.stop(&opened, nil); err != nil {
			t.Errorf("stop: %v", err)
		}
		if d := time.Since(begin); d != 8*time.Second {
			t.Errorf("left after %v, want 8s of 10s", d)
		}
		if !closed {
			t.Error("closing had no time left")
		}
	})
}

func TestPartThatNeverEndsIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := stopping(t, func(context.Context) error { return nil })
		release := make(chan struct{})
		var opened cleanups
		opened.add(func(context.Context) { <-release })
		begin := time.Now()
		if err := a.stop(&opened, nil); !errors.Is(err, ErrStopTimeout) {
			t.Errorf("got %v, want ErrStopTimeout", err)
		}
		if d := time.Since(begin); d != 11*time.Second {
			t.Errorf("given up after %v, want 11s", d)
		}
		close(release)
	})
}

func TestLeaveOnceForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		calls := 0
		l := newLeaver(&fakeDeparture{leave: func(context.Context) error { calls++; <-release; return errors.New("unheard") }}, time.Minute)
		if l.leaving() {
			t.Error("leaving before anybody asked")
		}
		gone, cancel := context.WithCancel(t.Context())
		first := make(chan error, 1)
		go func() { first <- l.Leave(gone) }()
		synctest.Wait()
		cancel()
		if err := <-first; !errors.Is(err, context.Canceled) {
			t.Errorf("the caller that went away got %v", err)
		}
		if !l.leaving() {
			t.Error("not leaving although asked")
		}
		second := make(chan error, 1)
		go func() { second <- l.Leave(t.Context()) }()
		close(release)
		if err := <-second; err == nil || err.Error() != "unheard" {
			t.Errorf("the second caller got %v", err)
		}
		<-l.asked()
		if calls != 1 {
			t.Errorf("left %d times", calls)
		}
	})
}

// A restart that cannot be announced changes nothing; one that is announced is
// the only end, and no good-bye follows.
func TestRestartInPlaceOfLeave(t *testing.T) {
	var held time.Duration
	d := &fakeDeparture{
		leave:   func(context.Context) error { t.Error("said good-bye"); return nil },
		hold:    func(_ context.Context, d time.Duration) error { held = d; return nil },
		refusal: errors.New("nothing to come back with"),
	}
	l := newLeaver(d, time.Minute)
	if err := l.Restart(t.Context(), time.Second); !errors.Is(err, api.ErrNoRestart) || !errors.Is(err, d.refusal) || l.leaving() {
		t.Errorf("refused with %v, leaving: %v", err, l.leaving())
	}
	d.refusal = nil
	if err := l.Restart(t.Context(), 7*time.Second); err != nil || held != 7*time.Second || l.what() != "restarts" {
		t.Errorf("%v, held for %v, it %s", err, held, l.what())
	}
	<-l.asked()
	if err := l.Leave(t.Context()); err != nil {
		t.Error(err)
	}
	d.refusal = errors.New("once is enough")
	if err := l.Restart(t.Context(), time.Second); err != nil {
		t.Errorf("the end that is under way: %v", err)
	}
}

func TestCleanupsRunNewestFirst(t *testing.T) {
	var order []int
	var c cleanups
	for i := range 3 {
		c.add(func(context.Context) { order = append(order, i) })
	}
	c.run(t.Context())
	c.run(t.Context())
	if len(order) != 3 || order[0] != 2 || order[2] != 0 {
		t.Errorf("order %v, want 2 1 0, once", order)
	}
}

// A plugin that never answers has its time to do so. Who wants to stop meanwhile
// does not wait for it.
func TestSignalWhileAPluginStarts(t *testing.T) {
	dir := t.TempDir()
	began := filepath.Join(dir, "began")
	script := "#!/bin/sh\n: > " + began + "\nexec sleep 300\n"
	if err := runnable.Write(filepath.Join(dir, "fairlead-dataplane-l7"), []byte(script)); err != nil {
		t.Fatal(err)
	}
	t.Setenv("FAIRLEAD_PLUGIN_DIRS", dir)
	cfg := testConfig(t, "n1")
	cfg.Dataplane = config.Providers{"l7"}
	cfg.Plugins = config.Plugins{"l7": {"start_timeout": "2m"}} // longer than the test waits
	r := prepare(t, Options{Loaded: loaded(cfg)})
	go func() { r.result <- r.Run(context.Background(), r.signals) }()
	await.For(t, "the plugin to start", func() bool { _, err := os.Stat(began); return err == nil })
	c, err := client.Dial(t.Context(), cfg.API.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if list, err := c.Plugins(t.Context()); err != nil || len(list.Problems) != 1 || !strings.Contains(list.Problems[0], "still chooses") {
		t.Errorf("listed meanwhile: %+v, %v", list, err)
	}
	if _, err := c.RestartPlugin(t.Context(), "l7"); err == nil || !strings.Contains(err.Error(), "still chooses") {
		t.Errorf("restarted meanwhile: %v", err)
	}
	r.signals <- syscall.SIGTERM
	if err := r.wait(t); err != nil {
		t.Errorf("Run: %v", err)
	}
	if log := r.log.String(); !strings.Contains(log, "stopped") || strings.Contains(log, "data plane chosen") {
		t.Errorf("log:\n%s", log)
	}
}

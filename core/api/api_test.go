package api_test

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"net/netip"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/core/api"
	"github.com/fairlead/fairlead/core/api/client"
	"github.com/fairlead/fairlead/core/model"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	since = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	n1    = api.Member{
		ID: 0xa1, Name: "n1", Addr: netip.MustParseAddrPort("127.0.0.1:7400"), Since: since, Self: true, Role: "member",
		Value: model.Value{Epoch: 3, Incarnation: 1, State: model.StateAlive}, HeldUntil: since.Add(20 * time.Second),
	}
	n2 = api.Member{
		ID: 0xa2, Name: "n2", Addr: netip.MustParseAddrPort("[::1]:7400"), Since: since, Role: "member",
		Value: model.Value{Epoch: 1, Incarnation: 4, State: model.StateDead},
	}
)

// fake is an agent whose answers are fixed; the functions may be replaced.
type fake struct {
	leave   func(context.Context) error
	restart func(context.Context, time.Duration) error
	events  func(ctx context.Context, after uint64, follow bool) iter.Seq2[api.Event, error]
}

func (f *fake) Status() api.Status {
	return api.Status{
		ID: n1.ID, Name: "n1", Cluster: "prod", Addr: n1.Addr, Version: "v1", Started: since,
		NotReady: "leaving", Listeners: []api.Listener{{Name: "api.socket", Address: "/s"}},
	}
}

func (f *fake) Members() (uint64, []api.Member)                       { return 7, []api.Member{n1, n2} }
func (f *fake) Leave(ctx context.Context) error                       { return f.leave(ctx) }
func (f *fake) Restart(ctx context.Context, hold time.Duration) error { return f.restart(ctx, hold) }

func (f *fake) Settings() []api.Setting {
	return []api.Setting{{Key: "node.name", Value: "n1", Origin: "flag --node.name"}}
}

func (f *fake) Events(ctx context.Context, after uint64, follow bool) iter.Seq2[api.Event, error] {
	return f.events(ctx, after, follow)
}

// twoEvents yields a note of missed events and one event, then waits if asked.
func twoEvents(ctx context.Context, after uint64, follow bool) iter.Seq2[api.Event, error] {
	return func(yield func(api.Event, error) bool) {
		list := []api.Event{
			{Seq: after + 1, Resync: true, Members: []api.Member{n1}},
			{
				Seq: after + 2, At: since, Kind: "died", Member: n2, From: n1.Addr, Detail: "d",
				Was: model.Value{Epoch: 1, Incarnation: 4, State: model.StateSuspect},
			},
		}
		for _, e := range list {
			if !yield(e, nil) {
				return
			}
		}
		if follow {
			<-ctx.Done()
			yield(api.Event{}, ctx.Err())
		}
	}
}

// serve starts a server on a socket and a client of it, and ends both.
func serve(t *testing.T, f *fake, access api.Access) *client.Client {
	t.Helper()
	if f.events == nil {
		f.events = twoEvents
	}
	server := api.NewServer(api.Backend{Identity: f, Members: f, Events: f, Leaver: f, Settings: f}, slog.New(slog.DiscardHandler))
	target := listenOn(t, server, access)
	t.Cleanup(func() { stopNow(server) })
	c, err := client.Dial(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func listenOn(t *testing.T, server *api.Server, access api.Access) (target string) {
	t.Helper()
	if access == api.AccessRead {
		l, err := api.ListenTCP("api.listen", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		server.Serve(l, access)
		return l.Addr().String()
	}
	path := filepath.Join(t.TempDir(), "a.sock")
	l, err := api.ListenUnix(path)
	if err != nil {
		t.Fatal(err)
	}
	server.Serve(l, access)
	return path
}

func stopNow(server *api.Server) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	server.Stop(ctx)
}

// What goes in on one side comes out on the other, for every field.
func TestAnswersArriveWhole(t *testing.T) {
	c := serve(t, &fake{}, api.AccessAll)
	ctx := t.Context()

	members, err := c.Members(ctx)
	want := []client.Member{
		{ID: 0xa1, Name: "n1", Addr: "127.0.0.1:7400", State: model.StateAlive, Epoch: 3, Incarnation: 1, Since: since, Self: true, Role: "member", HeldUntil: since.Add(20 * time.Second)},
		{ID: 0xa2, Name: "n2", Addr: "[::1]:7400", State: model.StateDead, Epoch: 1, Incarnation: 4, Since: since, Role: "member"},
	}
	if err != nil || !reflect.DeepEqual(members, want) {
		t.Errorf("Members: %v\ngot  %+v\nwant %+v", err, members, want)
	}

	status, err := c.Status(ctx)
	if err != nil || status.ID != 0xa1 || status.Name != "n1" || status.Cluster != "prod" || status.Addr != "127.0.0.1:7400" ||
		status.Version != "v1" || !status.Started.Equal(since) || status.Ready || status.NotReady != "leaving" ||
		status.Listeners["api.socket"] != "/s" || status.PID == 0 || status.GoVersion == "" {
		t.Errorf("Status: %v: %+v", err, status)
	}

	settings, err := c.Config(ctx)
	if err != nil || !reflect.DeepEqual(settings, []client.Setting{{Key: "node.name", Value: "n1", Origin: "flag --node.name"}}) {
		t.Errorf("Config: %v: %+v", err, settings)
	}

	var events []client.Event
	for e, err := range c.Events(ctx, 40, false) {
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, e)
	}
	wantEvents := []client.Event{
		{Seq: 41, Resync: true, Members: want[:1]},
		{
			Seq: 42, At: since, Kind: "died", Member: want[1], From: "127.0.0.1:7400", Detail: "d",
			Was: model.Value{Epoch: 1, Incarnation: 4, State: model.StateSuspect},
		},
	}
	if !reflect.DeepEqual(events, wantEvents) {
		t.Errorf("Events:\ngot  %+v\nwant %+v", events, wantEvents)
	}
}

func TestTCPMayOnlyRead(t *testing.T) {
	f := &fake{leave: func(context.Context) error { t.Error("Leave reached the agent"); return nil }}
	c := serve(t, f, api.AccessRead)
	ctx := t.Context()

	if _, err := c.Members(ctx); err != nil {
		t.Errorf("Members: %v", err)
	}
	if _, err := c.Status(ctx); err != nil {
		t.Errorf("Status: %v", err)
	}
	for _, err := range c.Events(ctx, 0, false) {
		if err != nil {
			t.Errorf("Events: %v", err)
		}
	}
	if _, err := c.Leave(ctx); !errors.Is(err, client.ErrDenied) {
		t.Errorf("Leave: %v, want ErrDenied", err)
	}
	if _, _, err := c.RaftTransfer(ctx, "n2"); !errors.Is(err, client.ErrDenied) {
		t.Errorf("RaftTransfer: %v, want ErrDenied", err)
	}
	for _, err := range c.RaftRemove(ctx, "n2", false, false) {
		if !errors.Is(err, client.ErrDenied) {
			t.Errorf("RaftRemove: %v, want ErrDenied", err)
		}
	}
	if _, err := c.RaftRecover(ctx, ""); !errors.Is(err, client.ErrDenied) {
		t.Errorf("RaftRecover: %v, want ErrDenied", err)
	}
	if _, err := c.RaftFollow(ctx, "0000000000000bad"); !errors.Is(err, client.ErrDenied) {
		t.Errorf("RaftFollow: %v, want ErrDenied", err)
	}
	if _, err := c.Config(ctx); !errors.Is(err, client.ErrDenied) || !strings.Contains(err.Error(), "Unix socket only") {
		t.Errorf("Config: %v, want ErrDenied and the way out", err)
	}
}

func TestLeaveTellsItsEnd(t *testing.T) {
	c := serve(t, &fake{leave: func(context.Context) error { return nil }}, api.AccessAll)
	if name, err := c.Leave(t.Context()); err != nil || name != "n1" {
		t.Errorf("Leave = %q, %v", name, err)
	}

	c = serve(t, &fake{leave: func(context.Context) error { return errors.New("nobody heard it") }}, api.AccessAll)
	if _, err := c.Leave(t.Context()); err == nil || err.Error() != "leave: nobody heard it" {
		t.Errorf("Leave: %v", err)
	}

	waits := &fake{leave: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := serve(t, waits, api.AccessAll).Leave(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Leave past its deadline: %v", err)
	}
}

// A caller that stops reading ends its stream on the agent, too.
func TestAbandonedStreamEnds(t *testing.T) {
	ended := make(chan struct{})
	f := &fake{events: func(ctx context.Context, after uint64, follow bool) iter.Seq2[api.Event, error] {
		return func(yield func(api.Event, error) bool) {
			defer close(ended)
			for range twoEvents(ctx, after, follow) {
				if !yield(api.Event{Kind: "joined", Member: n1}, nil) {
					return
				}
			}
		}
	}}
	c := serve(t, f, api.AccessAll)
	for _, err := range c.Events(t.Context(), 0, true) {
		if err != nil {
			t.Fatal(err)
		}
		break
	}
	<-ended
}

func TestFailedSourceIsReported(t *testing.T) {
	f := &fake{events: func(context.Context, uint64, bool) iter.Seq2[api.Event, error] {
		return func(yield func(api.Event, error) bool) { yield(api.Event{}, errors.New("broken")) }
	}}
	for _, err := range serve(t, f, api.AccessAll).Events(t.Context(), 0, false) {
		if err == nil || err.Error() != "events: broken" {
			t.Errorf("got %v", err)
		}
	}
}

// Stop ends followers at once and lets a call under way finish.
func TestStopIsGraceful(t *testing.T) {
	inLeave, release := make(chan struct{}), make(chan struct{})
	f := &fake{events: twoEvents, leave: func(context.Context) error { close(inLeave); <-release; return nil }}
	server := api.NewServer(api.Backend{Identity: f, Members: f, Events: f, Leaver: f, Settings: f}, slog.New(slog.DiscardHandler))
	c, err := client.Dial(t.Context(), listenOn(t, server, api.AccessAll))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()

	followed := make(chan error, 1)
	seen := make(chan struct{}, 2)
	go func() {
		var last error
		for _, err := range c.Events(t.Context(), 0, true) {
			if last = err; err == nil {
				seen <- struct{}{}
			}
		}
		followed <- last
	}()
	<-seen
	<-seen
	left := make(chan error, 1)
	go func() {
		_, err := c.Leave(t.Context())
		left <- err
	}()
	<-inLeave

	stopped := make(chan struct{})
	go func() {
		server.Stop(t.Context())
		close(stopped)
	}()
	if err := <-followed; !errors.Is(err, client.ErrStopped) {
		t.Errorf("the follower got %v, want ErrStopped", err)
	}
	close(release)
	if err := <-left; err != nil {
		t.Errorf("the call under way got %v", err)
	}
	<-stopped
}

// Stop with an ended context cuts off what does not finish.
func TestStopIsBounded(t *testing.T) {
	inLeave := make(chan struct{})
	f := &fake{events: twoEvents, leave: func(ctx context.Context) error { close(inLeave); <-ctx.Done(); return ctx.Err() }}
	server := api.NewServer(api.Backend{Identity: f, Members: f, Events: f, Leaver: f, Settings: f}, slog.New(slog.DiscardHandler))
	c, err := client.Dial(t.Context(), listenOn(t, server, api.AccessAll))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	left := make(chan error, 1)
	go func() {
		_, err := c.Leave(t.Context())
		left <- err
	}()
	<-inLeave
	stopNow(server)
	if err := <-left; err == nil {
		t.Error("a call that was cut off reported success")
	}
	// A listener that comes too late is closed, not leaked.
	l, err := api.ListenTCP("api.listen", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server.Serve(l, api.AccessRead)
	if _, err := l.Accept(); err == nil {
		t.Error("a stopped server left a listener open")
	}
}

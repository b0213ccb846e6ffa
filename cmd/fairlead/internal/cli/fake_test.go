package cli

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/api"
	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/test/short"
)

// fakeAgent serves a fixed table and fixed events.
type fakeAgent struct {
	members  []api.Member
	notReady string
}

func (f fakeAgent) Status() api.Status {
	return api.Status{ID: 0xa1, Name: "n1", NotReady: f.notReady}
}
func (f fakeAgent) Members() (uint64, []api.Member) { return 1, f.members }
func (fakeAgent) Leave(context.Context) error       { return nil }

func (fakeAgent) Restart(_ context.Context, hold time.Duration) error {
	if hold > 30*time.Second {
		return fmt.Errorf("%w: %v is too long", api.ErrNoRestart, hold)
	}
	return nil
}

func (fakeAgent) Settings() []api.Setting {
	return []api.Setting{{Key: "node.name", Value: "n1", Origin: "default"}, {Key: "gossip.bind", Value: "127.0.0.1:7400", Origin: "f.yaml:2"}}
}

func (f fakeAgent) Events(ctx context.Context, _ uint64, follow bool) iter.Seq2[api.Event, error] {
	return func(yield func(api.Event, error) bool) {
		for _, e := range fakeEvents(f.members) {
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

func fakeMembers() []api.Member {
	at := func(minute int) time.Time { return time.Date(2026, 5, 1, 11, minute, 0, 0, time.UTC) }
	member := func(id model.NodeID, name, addr, role string, minute int, v model.Value) api.Member {
		return api.Member{ID: id, Name: name, Addr: netip.MustParseAddrPort(addr), Since: at(minute), Value: v, Role: role, Self: id == 0xa1}
	}
	return []api.Member{
		member(0xa1, "n1", "10.9.0.1:7400", "leader", 0, model.Value{Epoch: 12, State: model.StateAlive}),
		member(0xa2, "node-with-a-long-name", "10.9.0.2:7400", "suspect", 1, model.Value{Epoch: 1, Incarnation: 3, State: model.StateSuspect}),
		member(0xa3, "n3", "[fd00::3]:7400", "failed", 2, model.Value{Epoch: 2, State: model.StateDead}),
		member(0xa4, "n4\x1b[2J", "10.9.0.4:7400", "left", 3, model.Value{Epoch: 1, Incarnation: 1, State: model.StateLeft}),
	}
}

func fakeEvents(members []api.Member) []api.Event {
	n1, n2, n3 := members[0], members[1], members[2]
	return []api.Event{
		{Seq: 7, Resync: true, Members: members[:1]},
		{Seq: 8, At: now().Add(-10 * time.Minute), Kind: "joined", Member: n1},
		{
			Seq: 9, At: now().Add(-time.Minute), Kind: "suspected", Member: n2, From: n1.Addr,
			Was: model.Value{Epoch: 1, Incarnation: 3, State: model.StateAlive},
		},
		{
			Seq: 10, At: now(), Kind: "address-conflict", Member: n3, Was: n3.Value,
			From: netip.MustParseAddrPort("10.9.9.9:1"), Detail: "two at one address",
		},
	}
}

// serveFake answers for a fake agent on a socket until the test ends.
func serveFake(t *testing.T) (socket string) {
	t.Helper()
	return serveFakeAt(t, filepath.Join(short.Dir(t), "api.sock"))
}

func serveFakeAt(t *testing.T, socket string) string {
	t.Helper()
	return serve(t, fakeAgent{members: fakeMembers()}, socket)
}

func serve(t *testing.T, f fakeAgent, socket string) string {
	t.Helper()
	l, err := api.ListenUnix(socket)
	if err != nil {
		t.Fatal(err)
	}
	server := api.NewServer(api.Backend{Identity: f, Members: f, Events: f, Leaver: f, Settings: f}, slog.New(slog.DiscardHandler))
	server.Serve(l, api.AccessAll)
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		server.Stop(ctx)
	})
	return socket
}

// golden compares with a file in testdata; UPDATE=1 writes it.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs; if that is meant, run with UPDATE=1\ngot:\n%s\nwant:\n%s", path, got, want)
	}
}

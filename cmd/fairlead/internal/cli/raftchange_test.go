package cli

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/core/api"
	"github.com/fairlead/fairlead/test/short"
)

// fakeServers grants what is asked of n2, and refuses the rest.
type fakeServers struct{ force chan bool }

func (f fakeServers) refuse(name string) error {
	if name == "n2" {
		return nil
	}
	return &api.Refusal{Kind: api.ErrNotFound, Err: errors.New("no server of the store is called " + name + ": there are n1, n2")}
}

func (f fakeServers) Transfer(_ context.Context, name string) (api.RaftMember, error) {
	return api.RaftMember{ID: 2, Name: "n2"}, f.refuse(name)
}

func (f fakeServers) Remove(_ context.Context, r api.RaftRemove, tell func(api.RaftRemoved) error) error {
	if err := f.refuse(r.Server); err != nil {
		return err
	}
	steps := []api.RaftRemoved{{State: api.RemovalAsked}, {State: api.RemovalAsked, Why: "n4 is catching up"}, {State: api.RemovalLeft}, {State: api.RemovalGone}}
	if r.Cancel {
		steps = []api.RaftRemoved{{State: api.RemovalCancelled}}
	}
	for _, s := range steps {
		s.ID, s.Name = 2, "n2"
		if err := tell(s); err != nil {
			return err
		}
	}
	f.force <- r.Force
	return nil
}

func (f fakeServers) Recover(_ context.Context, cluster string) (string, error) {
	if cluster != "" {
		return cluster, nil
	}
	return "", &api.Refusal{Kind: api.ErrRefused, Err: errors.New("this node waits for no cluster")}
}

func (f fakeServers) Follow(_ context.Context, cluster string) (api.RaftFollowed, error) {
	if cluster != "51d98a7ffd61ba87" {
		return api.RaftFollowed{}, &api.Refusal{Kind: api.ErrRefused, Err: errors.New("no server of that cluster is refused")}
	}
	return api.RaftFollowed{Revision: 7, Keys: 2, WasCluster: "0000000000000bad", WasRevision: 9, KeptAs: "/var/lib/fairlead/system.copy.before"}, nil
}

func (f fakeServers) Depart(_ context.Context, force bool) (string, error) {
	f.force <- force
	return "", &api.Refusal{Kind: api.ErrRefused, Err: errors.New("the node stays: it is the last voter")}
}

func serveServers(t *testing.T) (string, fakeServers) {
	t.Helper()
	socket := filepath.Join(short.Dir(t), "api.sock")
	l, err := api.ListenUnix(socket)
	if err != nil {
		t.Fatal(err)
	}
	a, f := fakeAgent{}, fakeServers{make(chan bool, 1)}
	server := api.NewServer(api.Backend{Identity: a, Members: a, Events: a, Settings: a, Leaver: a, Servers: f}, slog.New(slog.DiscardHandler))
	server.Serve(l, api.AccessAll)
	t.Cleanup(func() { server.Stop(t.Context()) })
	return socket, f
}

func TestRaftChanges(t *testing.T) {
	socket, f := serveServers(t)
	for _, c := range []struct {
		args, out, err string
		code           int
		forced         bool
	}{
		{args: "raft transfer n2", out: "n2 leads the store\n"},
		{args: "raft transfer n2 -o json", out: `{"leader":"n2","leader_id":"0000000000000002"}` + "\n"},
		{args: "raft transfer n7", code: ExitFailed, err: "raft transfer: no server of the store is called n7: there are n1, n2"},
		{args: "raft remove n2", out: "n2 was removed, and is not needed any more\n"},
		{args: "raft remove n2 --force -o json", out: `{"name":"n2","id":"0000000000000002","state":"gone"}` + "\n", forced: true},
		{args: "raft remove n2 --cancel", out: "n2 stays\n"},
		{args: "raft remove n7", code: ExitFailed, err: "raft remove: no server of the store is called n7"},
		{args: "raft recover 00000000000000aa", out: "gave cluster 00000000000000aa up: `fairlead raft status` says what the node waits for now\n"},
		{args: "raft recover 00000000000000aa -o json", out: `{"cluster_id":"00000000000000aa"}` + "\n"},
		{
			args: "raft follow 51d98a7ffd61ba87",
			out: "follows cluster 51d98a7ffd61ba87 at revision 7, with 2 keys\n" +
				"the copy before was of cluster 0000000000000bad at revision 9: kept as /var/lib/fairlead/system.copy.before\n",
		},
		{
			args: "raft follow 51d98a7ffd61ba87 -o json",
			out:  `{"cluster_id":"51d98a7ffd61ba87","revision":7,"keys":2,"old_cluster_id":"0000000000000bad","old_revision":9,"old_copy":"/var/lib/fairlead/system.copy.before"}` + "\n",
		},
		{args: "raft follow 1", code: ExitFailed, err: "raft follow: no server of that cluster is refused"},
		{args: "raft recover", code: ExitFailed, err: "raft recover: this node waits for no cluster"},
		{args: "leave", code: ExitFailed, err: "leave: the node stays: it is the last voter"},
		{args: "leave --force", code: ExitFailed, err: "leave: the node stays", forced: true},
		{args: "leave --force --restart", code: ExitUsage, err: "--force does not go with --restart"},
		{args: "raft remove n2 --force --cancel", code: ExitUsage, err: "--cancel takes a wish back"},
		{args: "raft transfer", code: ExitUsage, err: "wants NAME|ID"},
		{args: "raft recover a --yes-data-may-be-lost", code: ExitUsage, err: "CLUSTER is asked of a running agent"},
	} {
		cmd := newCommand(t)
		code := cmd.run(append(strings.Fields(c.args), "--api", socket)...)
		if code != c.code || cmd.out.String() != c.out || !strings.Contains(cmd.err.String(), c.err) {
			t.Errorf("%s: exit code %d, %q, %q: want %d, %q, %q", c.args, code, cmd.out.String(), cmd.err.String(), c.code, c.out, c.err)
		}
		select {
		case forced := <-f.force:
			if forced != c.forced {
				t.Errorf("%s: by force: %t", c.args, forced)
			}
		default:
			if c.forced {
				t.Errorf("%s: nothing was asked", c.args)
			}
		}
	}
}

// A stopped agent's server becomes a group of its own, if somebody says so.
func TestRaftRecoverStopped(t *testing.T) {
	dir := short.Dir(t)
	cmd := newCommand(t)
	args := []string{"raft", "recover", "--node.data_dir", filepath.Join(dir, "data"), "--node.name", "n1", "--api.socket", filepath.Join(dir, "api.sock")}
	if code := cmd.run(args...); code != ExitFailed || !strings.Contains(cmd.err.String(), "never was a member") {
		t.Errorf("exit code %d: %s", code, cmd.err.String())
	}
}

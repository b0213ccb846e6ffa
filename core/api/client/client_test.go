package client

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/fairlead/fairlead/core/api/fairleadv1"
	"github.com/fairlead/fairlead/core/model"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// scripted answers each call with what the test says.
type scripted struct {
	fairleadv1.UnimplementedAgentServer
	err     error
	members []*fairleadv1.Member
	events  []*fairleadv1.EventsResponse
}

func (s *scripted) Members(context.Context, *fairleadv1.MembersRequest) (*fairleadv1.MembersResponse, error) {
	return &fairleadv1.MembersResponse{Members: s.members}, s.err
}

func (s *scripted) Status(context.Context, *fairleadv1.StatusRequest) (*fairleadv1.StatusResponse, error) {
	return &fairleadv1.StatusResponse{
		Id: 5, Name: "n", Pid: 12, Ready: true, Started: timestamppb.New(time.Unix(7, 0)),
		Listeners: []*fairleadv1.Listener{{Name: "http.listen", Address: "127.0.0.1:7403"}},
	}, s.err
}

func (s *scripted) Config(context.Context, *fairleadv1.ConfigRequest) (*fairleadv1.ConfigResponse, error) {
	return &fairleadv1.ConfigResponse{Entries: []*fairleadv1.ConfigEntry{{Key: "k", Value: "v", Origin: "o"}}}, s.err
}

func (s *scripted) Events(_ *fairleadv1.EventsRequest, stream fairleadv1.Agent_EventsServer) error {
	for _, e := range s.events {
		if err := stream.Send(e); err != nil {
			return err
		}
	}
	return s.err
}

// dial serves s and returns a client of it.
func dial(t *testing.T, s *scripted) *Client {
	t.Helper()
	return dialServer(t, func(server *grpc.Server) { fairleadv1.RegisterAgentServer(server, s) })
}

// dialServer serves what register registers, and returns a client of it.
func dialServer(t *testing.T, register func(*grpc.Server)) *Client {
	t.Helper()
	c, err := Dial(t.Context(), serve(t, grpc.NewServer(), register))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() }) // before the server stops
	return c
}

// serve serves what register registers, until the test ends.
func serve(t *testing.T, server *grpc.Server, register func(*grpc.Server)) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	register(server)
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	t.Cleanup(func() { server.Stop(); <-done })
	return l.Addr().String()
}

func TestAnswers(t *testing.T) {
	v := &fairleadv1.Value{Epoch: 2, Incarnation: 3, State: fairleadv1.State_STATE_SUSPECT}
	m := &fairleadv1.Member{Id: 9, Name: "m", Addr: "1.2.3.4:5", Value: v, Since: timestamppb.New(time.Unix(1, 0)), Role: "member"}
	c := dial(t, &scripted{
		members: []*fairleadv1.Member{m},
		events: []*fairleadv1.EventsResponse{
			{Item: &fairleadv1.EventsResponse_Resync{Resync: &fairleadv1.Resync{Seq: 4, Members: []*fairleadv1.Member{m}}}},
			{Item: &fairleadv1.EventsResponse_Event{Event: &fairleadv1.Event{Seq: 5, Kind: "suspected", Member: m, Was: v, From: "f", Detail: "d", At: timestamppb.New(time.Unix(2, 0))}}},
		},
	})
	want := Member{ID: 9, Name: "m", Addr: "1.2.3.4:5", State: model.StateSuspect, Epoch: 2, Incarnation: 3, Since: time.Unix(1, 0).UTC(), Role: "member"}
	if got, err := c.Members(t.Context()); err != nil || !reflect.DeepEqual(got, []Member{want}) {
		t.Errorf("Members: %v: %+v", err, got)
	}
	if got, err := c.Config(t.Context()); err != nil || !reflect.DeepEqual(got, []Setting{{"k", "v", "o"}}) {
		t.Errorf("Config: %v: %+v", err, got)
	}
	st, err := c.Status(t.Context())
	if err != nil || st.ID != 5 || st.PID != 12 || !st.Ready || st.Started.Unix() != 7 || st.Listeners["http.listen"] != "127.0.0.1:7403" {
		t.Errorf("Status: %v: %+v", err, st)
	}
	var got []Event
	for e, err := range c.Events(t.Context(), 0, false) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, e)
	}
	wantEvents := []Event{
		{Seq: 4, Resync: true, Members: []Member{want}},
		{
			Seq: 5, At: time.Unix(2, 0).UTC(), Kind: "suspected", Member: want, From: "f", Detail: "d",
			Was: model.Value{Epoch: 2, Incarnation: 3, State: model.StateSuspect},
		},
	}
	if !reflect.DeepEqual(got, wantEvents) {
		t.Errorf("Events:\ngot  %+v\nwant %+v", got, wantEvents)
	}
}

// A field that an agent did not send must not read as "alive".
func TestMissingStateIsNotAlive(t *testing.T) {
	c := dial(t, &scripted{members: []*fairleadv1.Member{{Name: "m"}}})
	members, err := c.Members(t.Context())
	if err != nil || len(members) != 1 || members[0].State.Live() {
		t.Errorf("%v: %+v", err, members)
	}
}

func TestCallErrors(t *testing.T) {
	for name, c := range map[string]struct {
		code codes.Code
		is   error
		says string
	}{
		"stopped":  {codes.Unavailable, ErrStopped, "the agent stopped"},
		"denied":   {codes.PermissionDenied, ErrDenied, "because"},
		"late":     {codes.DeadlineExceeded, context.DeadlineExceeded, "no answer in time"},
		"canceled": {codes.Canceled, context.Canceled, "canceled"},
		"other":    {codes.Internal, nil, "members: because"},
	} {
		t.Run(name, func(t *testing.T) {
			client := dial(t, &scripted{err: status.Error(c.code, "because")})
			_, err := client.Members(t.Context())
			if err == nil || c.is != nil && !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v", err)
			}
			if strings.Contains(err.Error(), "rpc error") {
				t.Errorf("gRPC's own words: %v", err)
			}
			if _, err := client.Status(t.Context()); err == nil {
				t.Error("Status: no error")
			}
			if _, err := client.Config(t.Context()); err == nil {
				t.Error("Config: no error")
			}
			for _, err := range client.Events(t.Context(), 0, true) {
				if err == nil {
					t.Error("Events: no error")
				}
			}
		})
	}
	client := dial(t, &scripted{})
	if _, err := client.Leave(t.Context()); err == nil || !strings.Contains(err.Error(), "another version") {
		t.Errorf("a call that the agent does not know: %v", err)
	}
	if _, port, _ := net.SplitHostPort(client.Target()); port == "" {
		t.Errorf("target %q", client.Target())
	}
}

// An agent that dies during a stream is told apart from the stream's end.
func TestBrokenStreamIsAnError(t *testing.T) {
	e := &fairleadv1.EventsResponse{Item: &fairleadv1.EventsResponse_Event{Event: &fairleadv1.Event{Seq: 1}}}
	c := dial(t, &scripted{events: []*fairleadv1.EventsResponse{e}, err: status.Error(codes.Unavailable, "x")})
	var seen int
	var last error
	for _, err := range c.Events(t.Context(), 0, true) {
		if last = err; err == nil {
			seen++
		}
	}
	if seen != 1 || !errors.Is(last, ErrStopped) {
		t.Errorf("%d events, then %v", seen, last)
	}
}

func TestDialErrors(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, target := range []string{file, file + "-missing", "127.0.0.1:1", "127.0.0.1:port"} {
		if _, err := Dial(t.Context(), target); !errors.Is(err, ErrNoAgent) || !strings.Contains(err.Error(), target) {
			t.Errorf("%s: %v", target, err)
		}
	}
	err := dialError("/s", &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", os.ErrPermission)})
	if !errors.Is(err, ErrDenied) || !strings.Contains(err.Error(), "sudo") {
		t.Errorf("without the right: %v", err)
	}
}

// A port of the agent that is not its API, the gossip port say, is no agent
// that stopped.
func TestWhatSpeaksSomethingElseIsNoAgent(t *testing.T) {
	for name, answer := range map[string]string{"closes": "", "HTTP/1": "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			done := make(chan struct{})
			go func() {
				defer close(done)
				for {
					conn, err := l.Accept()
					if err != nil {
						return
					}
					_, _ = conn.Write([]byte(answer))
					_ = conn.Close()
				}
			}()
			defer func() { _ = l.Close(); <-done }()
			c, err := Dial(t.Context(), l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			_, err = c.Members(t.Context())
			if !errors.Is(err, ErrNoAgent) || !strings.Contains(err.Error(), "does not speak the client API") || !strings.Contains(err.Error(), l.Addr().String()) {
				t.Errorf("got %v", err)
			}
		})
	}
}

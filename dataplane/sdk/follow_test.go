package sdk

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"

	"github.com/fairlead/fairlead/dataplane"
	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
	"github.com/fairlead/fairlead/dataplane/fake"
	"github.com/fairlead/fairlead/dataplane/transfer"
)

// source plays an agent's SnapshotSource.
type source struct {
	pb.UnimplementedSnapshotSourceServer
	requests chan *pb.FollowRequest
	reports  chan *pb.ReportRequest
	send     chan *pb.FollowResponse // nil: end the stream
}

func newSource() *source {
	return &source{requests: make(chan *pb.FollowRequest, 10), reports: make(chan *pb.ReportRequest, 10), send: make(chan *pb.FollowResponse, 100)}
}

func (s *source) Follow(r *pb.FollowRequest, stream grpc.ServerStreamingServer[pb.FollowResponse]) error {
	s.requests <- r
	for {
		select {
		case m := <-s.send:
			if m == nil {
				return transfer.ToWire(dataplane.ErrBusy)
			}
			if err := stream.Send(m); err != nil {
				return err
			}
		case <-stream.Context().Done():
			return nil
		}
	}
}

func (s *source) Report(_ context.Context, r *pb.ReportRequest) (*pb.ReportResponse, error) {
	s.reports <- r
	return &pb.ReportResponse{}, nil
}

func (s *source) generation(b *pb.Begin, cs ...*pb.Change) {
	s.send <- &pb.FollowResponse{Step: &pb.FollowResponse_Begin{Begin: b}, Stream: "s1"}
	for _, c := range cs {
		s.send <- &pb.FollowResponse{Step: &pb.FollowResponse_Change{Change: c}}
	}
	s.send <- &pb.FollowResponse{Step: &pb.FollowResponse_Commit{Commit: &pb.Commit{}}}
}

func (s *source) serve(t *testing.T, path string) (stop func()) {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	pb.RegisterSnapshotSourceServer(server, s)
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(l) }()
	return func() { server.Stop(); <-done }
}

func snapshotChanges(s *dataplane.Snapshot) (cs []*pb.Change) {
	for c := range transfer.NewEncoder().Snapshot(s) {
		cs = append(cs, c)
	}
	return cs
}

func TestFollow(t *testing.T) {
	path := filepath.Join(shortDir(t), "agent.sock")
	agent := newSource()
	stop := agent.serve(t, path)
	p := fake.New()
	// Proxies are none of a unix socket's business.
	t.Setenv("HTTPS_PROXY", "http://127.0.0.1:1")
	r := background(t, p, "--follow", "unix:"+path, "--instance-id", "lone")

	req := receive(t, "Follow", agent.requests)
	if req.Info.GetName() != "fake" || req.State.GetInstanceId() != "lone" || req.State.GetGeneration() != 0 {
		t.Fatalf("got %v", req)
	}
	one := gen(1, svc("web", 1, 9001))
	agent.generation(transfer.Begin(one, 0, false), snapshotChanges(one)...)
	rep := receive(t, "Report", agent.reports)
	if rep.Provider != "fake" || rep.Stream != "s1" || rep.Result.GetGeneration() != 1 || rep.Result.GetOperations() != 1 || rep.Health.GetState() != pb.HealthState_HEALTH_STATE_READY {
		t.Fatalf("got %v", rep)
	}
	agent.generation(transfer.Begin(one, 1, false)) // unchanged
	if rep = receive(t, "Report", agent.reports); rep.Result.GetGeneration() != 1 || rep.Result.GetOperations() != 0 {
		t.Fatalf("got %v", rep)
	}

	// The stream breaks: it goes on where it was.
	agent.send <- nil
	if req = receive(t, "Follow again", agent.requests); req.State.GetGeneration() != 1 || string(req.State.GetDigest()) != "digest1" {
		t.Fatalf("got %v", req)
	}
	// Changes to what is not there: it asks for a snapshot.
	agent.generation(transfer.Begin(gen(9), 8, false))
	if req = receive(t, "Follow anew", agent.requests); req.State.GetGeneration() != 0 || req.State.GetInstanceId() != "lone" {
		t.Fatalf("got %v", req)
	}
	nine := gen(9, svc("web", 1, 9009))
	agent.generation(transfer.Begin(nine, 0, false), snapshotChanges(nine)...)
	receive(t, "Report", agent.reports)
	if !strings.Contains(p.String(), "127.0.0.1:9009") {
		t.Fatalf("got\n%s", p)
	}

	// The agent is away, then back.
	stop()
	agent = newSource()
	stop = agent.serve(t, path)
	defer stop()
	if req = receive(t, "Follow after a restart", agent.requests); req.State.GetGeneration() != 9 {
		t.Fatalf("got %v", req)
	}
	// Nonsense: it tries again, and says so.
	agent.send <- &pb.FollowResponse{Step: &pb.FollowResponse_Commit{Commit: &pb.Commit{}}}
	receive(t, "Follow after nonsense", agent.requests)
	agent.send <- &pb.FollowResponse{Step: &pb.FollowResponse_Begin{Begin: transfer.Begin(gen(10), 0, true)}}
	agent.send <- &pb.FollowResponse{}
	receive(t, "Follow after nonsense within", agent.requests)
	eventually(t, "a log line", r.stderr.has("following the agent was interrupted"))
	if code := r.stop(); code != 0 {
		t.Fatalf("exit %d\n%s", code, r.stderr)
	}
}

func TestFollowAddresses(t *testing.T) {
	for address, ok := range map[string]bool{
		"unix:/run/x": true, "127.0.0.1:7402": true, "[::1]:7402": true, "localhost:7402": true,
		"10.0.0.1:7402": false, "example.org:7402": false, "7402": false, "127.0.0.1:": false,
	} {
		if _, err := newFollower(nil, address); (err == nil) != ok {
			t.Errorf("%s: got %v", address, err)
		}
	}
}

func TestFollowerOfATCPAgentThatIsNotThere(t *testing.T) {
	h := configured(t, fake.New())
	f, err := newFollower(h.service, "127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan struct{})
	go func() { defer close(ended); f.run(ctx) }()
	eventually(t, "a backoff", h.log.has("again_in=200ms"))
	cancel()
	receive(t, "the end", ended)
	if _, err := f.follow(ctx); err == nil || errors.Is(err, dataplane.ErrBaseMismatch) {
		t.Fatalf("got %v", err)
	}
}

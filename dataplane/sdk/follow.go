package sdk

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/fairlead/fairlead/dataplane"
	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
	"github.com/fairlead/fairlead/dataplane/sdk/handshake"
	"github.com/fairlead/fairlead/dataplane/transfer"
)

const (
	// The pause before the next try begins here, doubles, and ends there.
	firstPause = 100 * time.Millisecond
	lastPause  = 10 * time.Second
	// applyTime bounds Reconcile where no host sets a deadline.
	applyTime = 30 * time.Second
)

// follower pulls generations from an agent's SnapshotSource and applies them as
// Reconcile would.
type follower struct {
	service *Service
	address string
	dial    func(ctx context.Context) (net.Conn, error)
	fresh   bool // ask for a snapshot, whatever is applied
}

// newFollower checks the address. Without TLS only sockets of this host will do.
func newFollower(s *Service, address string) (*follower, error) {
	network, target := "tcp", address
	if path, ok := unixPath(address); ok {
		network, target = "unix", path
	} else if err := checkLoopback(address); err != nil {
		return nil, err
	}
	return &follower{service: s, address: address, dial: func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, target)
	}}, nil
}

func checkLoopback(address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil || port == "" {
		return fmt.Errorf("--follow %s: want unix:PATH or HOST:PORT", address)
	}
	if ip, err := netip.ParseAddr(host); host != "localhost" && (err != nil || !ip.IsLoopback()) {
		return fmt.Errorf("--follow %s: the agent has to be on this host, at unix:PATH or a loopback address", address)
	}
	return nil
}

// run follows until ctx ends. It is never the end of the provider that an agent
// is away.
func (f *follower) run(ctx context.Context) {
	pause := firstPause
	for ctx.Err() == nil {
		applied, err := f.follow(ctx)
		if applied {
			pause = firstPause
		}
		if ctx.Err() != nil {
			return
		}
		f.service.log.Warn("following the agent was interrupted", "agent", f.address, "error", err, "again_in", pause)
		select {
		case <-time.After(pause/2 + rand.N(pause/2)):
		case <-ctx.Done():
		}
		pause = min(2*pause, lastPause)
	}
}

// follow is one stream, and whether a generation of it was applied.
func (f *follower) follow(ctx context.Context) (applied bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// The resolver is told nothing: proxies of the environment are none of the
	// agent's.
	conn, err := grpc.NewClient("passthrough:///agent",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return f.dial(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy(), grpc.WithIdleTimeout(0),
		grpc.WithInitialWindowSize(windowBytes), grpc.WithInitialConnWindowSize(windowBytes),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(handshake.MaxReceiveBytes), grpc.ForceCodecV2(transfer.Codec())))
	if err != nil {
		return false, err
	}
	defer func() { _ = conn.Close() }()
	source := pb.NewSnapshotSourceClient(conn)
	request := &pb.FollowRequest{Info: transfer.EncodeInfo(f.service.info, handshake.ProtocolMinor), State: &pb.StateResponse{InstanceId: f.service.instance()}}
	if !f.fresh {
		request.State = transfer.EncodeState(*f.service.state.Load())
	}
	stream, err := source.Follow(ctx, request)
	if err != nil {
		return false, err
	}
	f.service.log.Info("following", "agent", f.address)
	for {
		name, result, err := f.generation(ctx, stream)
		// Only a snapshot helps where the agent and the provider do not agree on
		// what is there.
		f.fresh = errors.Is(err, dataplane.ErrBaseMismatch) || errors.Is(err, dataplane.ErrInvalid)
		if err != nil {
			return applied, err
		}
		applied = true
		health, err := f.service.Health(ctx, &pb.HealthRequest{})
		if err != nil {
			return applied, err
		}
		if _, err := source.Report(ctx, &pb.ReportRequest{Provider: f.service.info.Name, Stream: name, Result: result, Health: health}); err != nil {
			return applied, transfer.FromWire(err)
		}
	}
}

// generation reads one generation and applies it. It returns the name of the
// stream, which belongs to the report.
func (f *follower) generation(ctx context.Context, stream grpc.ServerStreamingClient[pb.FollowResponse]) (name string, result *pb.ReconcileResponse, err error) {
	first, err := stream.Recv()
	if err != nil {
		return "", nil, transfer.FromWire(err)
	}
	result, err = f.apply(ctx, first, stream)
	return first.GetStream(), result, err
}

func (f *follower) apply(ctx context.Context, first *pb.FollowResponse, stream grpc.ServerStreamingClient[pb.FollowResponse]) (*pb.ReconcileResponse, error) {
	s := f.service
	release, err := s.turn.wait(ctx, "Follow")
	if err != nil {
		return nil, err
	}
	defer release()
	if s.shut {
		return nil, fmt.Errorf("%w: this process ends", dataplane.ErrBusy)
	}
	g, err := s.begin(first.GetBegin())
	if err != nil {
		return nil, err
	}
	for {
		m, err := stream.Recv()
		if err != nil {
			return nil, transfer.FromWire(err)
		}
		if m.GetCommit() != nil {
			break
		}
		if err := change(g, m.GetChange()); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, applyTime)
	defer cancel()
	ctx, leave := s.join(ctx)
	defer leave()
	return s.commit(ctx, g)
}

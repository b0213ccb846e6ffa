package conformance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/types/known/emptypb"

	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
	"github.com/fairlead/fairlead/dataplane/sdk/handshake"
)

// hostLossTime is the second that a provider has, and as much for the machine.
const hostLossTime = 2 * time.Second

func handshakeFirst(ctx context.Context, k *kit) error {
	p, err := k.launch(ctx, way{child: true})
	if err != nil {
		return fmt.Errorf("as a child: %w", err)
	}
	defer p.close()
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	info, err := p.client.Info(ctx, &pb.InfoRequest{})
	if err != nil {
		return fmt.Errorf("as a child, Info: %w", err)
	}
	if info.GetName() != k.info.GetName() {
		return fmt.Errorf("as a child its name is %q, else %q", info.GetName(), k.info.GetName())
	}
	h, err := healthpb.NewHealthClient(p.conn).Check(ctx, &healthpb.HealthCheckRequest{Service: handshake.HealthService})
	if err != nil || h.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		return fmt.Errorf("grpc.health.v1.Health says %v for %q (%w), want SERVING", h.GetStatus(), handshake.HealthService, err)
	}
	err = p.conn.Invoke(ctx, "/plugin.GRPCController/Shutdown", &emptypb.Empty{}, &emptypb.Empty{})
	if codeOf(err) == codes.Unimplemented {
		k.note("without plugin.GRPCController: hosts end it by SIGTERM")
		return nil
	}
	if !p.proc.endsIn(stopTime) {
		return fmt.Errorf("%v after plugin.GRPCController/Shutdown (%w) it still runs", stopTime, err)
	}
	return nil
}

// endsIn waits for the end of the process.
func (p *child) endsIn(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-p.Exited:
		return true
	case <-timer.C:
		return false
	}
}

func byHand(_ context.Context, k *kit) error {
	p, err := k.start(way{bare: true}, "")
	if err != nil {
		return err
	}
	defer p.kill()
	switch {
	case !p.endsIn(startTime):
		return fmt.Errorf("it runs %v after it was started by hand", startTime)
	case p.Cmd.ProcessState.ExitCode() != handshake.ExitUsage:
		return fmt.Errorf("it ended with %v, want exit status %d", p.Cmd.ProcessState, handshake.ExitUsage)
	}
	return nil
}

func longPath(_ context.Context, k *kit) error {
	socket := k.socket()
	socket += strings.Repeat("x", handshake.MaxSocketPathBytes+1-len(socket))
	p, err := k.start(way{}, socket)
	if err != nil {
		return err
	}
	defer p.kill()
	switch {
	case !p.endsIn(startTime):
		return fmt.Errorf("with a socket path of %d bytes it runs after %v", len(socket), startTime)
	case p.Cmd.ProcessState.ExitCode() == 0:
		return fmt.Errorf("with a socket path of %d bytes it ended without an error", len(socket))
	}
	return nil
}

// hosted starts a child that watches for the end of its host, and returns what
// ends the host.
func (k *kit) hosted(ctx context.Context, env ...string) (*peer, io.Closer, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	p, err := k.launch(ctx, way{child: true, env: append(env, handshake.EnvHostFD+"=3"), files: []*os.File{r}})
	if err = errors.Join(err, r.Close()); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("as a child: %w", err), w.Close())
	}
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	if _, err := p.client.Info(ctx, &pb.InfoRequest{}); err != nil {
		p.close()
		return nil, nil, errors.Join(fmt.Errorf("as a child, Info: %w", err), w.Close())
	}
	return p, w, nil
}

func endsWithHost(ctx context.Context, k *kit) error {
	p, host, err := k.hosted(ctx)
	if err != nil {
		return err
	}
	defer p.close()
	start := time.Now()
	p.proc.deafen()
	if err := host.Close(); err != nil {
		return err
	}
	if !p.proc.endsIn(hostLossTime) {
		return fmt.Errorf("it runs %v after its host was gone", hostLossTime)
	}
	k.note("ended in %v", time.Since(start).Round(time.Millisecond))
	return nil
}

func servesWithoutHost(ctx context.Context, k *kit) error {
	socket := k.socket()
	p, host, err := k.hosted(ctx, handshake.EnvOnHostLoss+"="+handshake.HostLossServe, handshake.EnvSocket+"="+socket)
	if err != nil {
		return err
	}
	defer p.close()
	p.proc.deafen()
	if err := host.Close(); err != nil {
		return err
	}
	if p.proc.endsIn(600 * time.Millisecond) {
		return fmt.Errorf("it ended (%v) when its host was gone", p.proc.Cmd.ProcessState)
	}
	next, err := dial(socket)
	if err != nil {
		return err
	}
	defer next.close()
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	if _, err := next.client.Info(ctx, &pb.InfoRequest{}); err != nil {
		return fmt.Errorf("the next host, at %s: %w", socket, err)
	}
	return nil
}

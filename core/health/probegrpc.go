package health

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// runGRPC passes if the server says SERVING. The connection is new each time,
// as for the other kinds: what is checked is what a new client would meet.
func runGRPC(ctx context.Context, what probe, deadline time.Time) outcome {
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	var refused atomic.Bool // it is the dialer that knows, in a goroutine of its own
	dialer := net.Dialer{KeepAlive: -1}
	cc, err := grpc.NewClient("passthrough:///"+what.target.String(),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithNoProxy(), grpc.WithDisableServiceConfig(), grpc.WithDisableRetry(),
		grpc.WithUserAgent("fairlead-health"),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(MaxOutputBytes)),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, "tcp", addr)
			refused.Store(errors.Is(err, syscall.ECONNREFUSED))
			return conn, err
		}))
	if err != nil {
		return failure(err)
	}
	defer func() { _ = cc.Close() }()
	answer, err := grpc_health_v1.NewHealthClient(cc).Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: what.service})
	if err != nil && refused.Load() {
		return failure(syscall.ECONNREFUSED)
	}
	if err != nil {
		return grpcFailure(what, err)
	}
	if s := answer.GetStatus(); s != grpc_health_v1.HealthCheckResponse_SERVING {
		return outcome{result: resultStatus, output: s.String()}
	}
	return outcome{output: "SERVING"}
}

func grpcFailure(what probe, err error) outcome {
	s := status.Convert(err)
	switch s.Code() {
	case codes.DeadlineExceeded:
		return failure(os.ErrDeadlineExceeded)
	case codes.NotFound:
		return outcome{result: resultStatus, output: fmt.Sprintf("the server does not know the service %q", what.service)}
	case codes.Unimplemented:
		return outcome{result: resultStatus, output: "the server has no grpc.health.v1.Health"}
	}
	return outcome{result: resultError, output: clip(s.Code().String() + ": " + s.Message())}
}

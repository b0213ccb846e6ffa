package sdk

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/fairlead/fairlead/dataplane/sdk/handshake"
)

// childSocket listens where the host wants it. A host that does not say gets a
// directory of its own below the temporary one.
func childSocket(getenv func(string) string) (*socket, error) {
	if path := getenv(handshake.EnvSocket); path != "" {
		return listenUnix(path)
	}
	dir, own := getenv(handshake.EnvSocketDir), ""
	if dir == "" {
		var err error
		if dir, err = handshake.TempDir("fairlead-dataplane-"); err != nil {
			return nil, fmt.Errorf("%w: set %s", err, handshake.EnvSocketDir)
		}
		own = dir
	}
	s, err := listenUnix(filepath.Join(dir, "plugin"+strconv.Itoa(os.Getpid())))
	if err != nil {
		if own != "" {
			_ = os.Remove(own)
		}
		return nil, err
	}
	s.dir = own
	return s, nil
}

// greet tells the host where to connect.
func greet(stdout io.Writer, s *socket) error {
	if _, err := fmt.Fprintln(stdout, handshake.Line(s.Addr())); err != nil {
		return fmt.Errorf("cannot tell the host where to connect: %w", err)
	}
	return nil
}

// controller is go-plugin's service by which a host ends its child. Its message
// is empty, as emptypb's.
type controller interface {
	Shutdown(context.Context, *emptypb.Empty) (*emptypb.Empty, error)
}

type controllerFunc func()

func (f controllerFunc) Shutdown(context.Context, *emptypb.Empty) (*emptypb.Empty, error) {
	f()
	return &emptypb.Empty{}, nil
}

func registerController(r grpc.ServiceRegistrar, c controller) {
	r.RegisterService(&grpc.ServiceDesc{
		ServiceName: "plugin.GRPCController",
		HandlerType: (*controller)(nil),
		Methods: []grpc.MethodDesc{{
			MethodName: "Shutdown",
			Handler: func(srv any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
				in := &emptypb.Empty{}
				if err := decode(in); err != nil {
					return nil, err
				}
				return srv.(controller).Shutdown(ctx, in)
			},
		}},
		Metadata: "grpc_controller.proto",
	}, c)
}

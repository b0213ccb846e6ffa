package transport

import (
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/keepalive"

	"github.com/fairlead/fairlead/core/identity"
)

// Dial returns a connection to the port of another agent, for services that are
// not the transport's. It is made when it is used, and again when it breaks.
func Dial(k *identity.Keeper, address, node string, options ...grpc.DialOption) (*grpc.ClientConn, error) {
	conn, err := grpc.NewClient("passthrough:///"+address, append([]grpc.DialOption{
		grpc.WithTransportCredentials(clientCredentials{keeper: k, node: node}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: firstRetry, Multiplier: 1.6, Jitter: 0.3, MaxDelay: lastRetry},
			MinConnectTimeout: ioTimeout,
		}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 2 * ioTimeout, Timeout: ioTimeout, PermitWithoutStream: true}),
		grpc.WithMaxHeaderListSize(headerBytes), grpc.WithDisableServiceConfig(), grpc.WithNoProxy(),
	}, options...)...)
	if err != nil {
		return nil, fmt.Errorf("transport: the address %q of node %s: %w", address, node, err)
	}
	return conn, nil
}

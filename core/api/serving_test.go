package api_test

import (
	"context"
	"net"
	"testing"

	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/fairlead/fairlead/core/api"
	"github.com/fairlead/fairlead/core/api/etcd"
)

// What balancers and clients of gRPC ask is answered on every listener, as of etcd.
func TestServingIsAnswered(t *testing.T) {
	for _, access := range []api.Access{api.AccessAll, api.AccessRead} {
		server := storeServer(t, etcd.NewFront(""))
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		server.Serve(l, access)
		c := healthpb.NewHealthClient(dial(t, l.Addr().String()))
		if r, err := c.Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil || r.Status != healthpb.HealthCheckResponse_SERVING {
			t.Errorf("%v, %v", r, err)
		}
		if _, err := c.Check(t.Context(), &healthpb.HealthCheckRequest{Service: "none"}); status.Code(err) != codes.NotFound {
			t.Errorf("of a service that is not there: %v", err)
		}
		w, err := c.Watch(t.Context(), &healthpb.HealthCheckRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if r, err := w.Recv(); err != nil || r.Status != healthpb.HealthCheckResponse_SERVING {
			t.Errorf("%v, %v", r, err)
		}
		server.Stop(context.Background()) // it does not wait for who watches
		if _, err := w.Recv(); status.Code(err) != codes.Unavailable {
			t.Errorf("of an agent that stops: %v", err)
		}
	}
}

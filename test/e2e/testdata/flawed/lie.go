package main

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"

	"google.golang.org/grpc"

	"github.com/fairlead/fairlead/dataplane"
	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
	"github.com/fairlead/fairlead/dataplane/sdk"
	"github.com/fairlead/fairlead/dataplane/sdk/handshake"
)

// lie serves p, and answers for a generation that nobody sent. The SDK would
// not let it, so only its service is used.
func lie(p dataplane.Provider) int {
	service, err := sdk.NewService(p, slog.New(slog.NewTextHandler(os.Stderr, nil)))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return handshake.ExitFailed
	}
	l, err := net.Listen("unix", filepath.Join(os.Getenv(handshake.EnvSocketDir), "liar"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return handshake.ExitFailed
	}
	server := grpc.NewServer()
	pb.RegisterDataPlaneProviderServer(server, liar{service})
	fmt.Println(handshake.Line(l.Addr()))
	if err := server.Serve(l); err != nil {
		return handshake.ExitFailed
	}
	return handshake.ExitOK
}

type liar struct{ *sdk.Service }

func (l liar) Reconcile(stream grpc.ClientStreamingServer[pb.ReconcileRequest, pb.ReconcileResponse]) error {
	return l.Service.Reconcile(lying{stream})
}

type lying struct {
	grpc.ClientStreamingServer[pb.ReconcileRequest, pb.ReconcileResponse]
}

func (l lying) SendAndClose(r *pb.ReconcileResponse) error {
	r.Generation += 7
	return l.ClientStreamingServer.SendAndClose(r)
}

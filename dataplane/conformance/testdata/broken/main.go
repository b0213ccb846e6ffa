// Command broken is the fake provider with one flaw, named by its first
// argument: broken FLAW --listen unix:PATH, or as a child broken FLAW. It is
// what the conformance suite has to reject, and shows that a provider can do
// without sdk.Serve. The flaws are the table in flaws.go.
package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/fairlead/fairlead/dataplane"
	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
	"github.com/fairlead/fairlead/dataplane/fake"
	"github.com/fairlead/fairlead/dataplane/sdk"
	"github.com/fairlead/fairlead/dataplane/sdk/handshake"
)

func main() {
	err := run(os.Args[1:])
	switch {
	case errors.Is(err, errUsage):
		fmt.Fprintln(os.Stderr, err)
		os.Exit(handshake.ExitUsage)
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(handshake.ExitFailed)
	}
}

var errUsage = errors.New("want FLAW --listen unix:PATH")

func run(args []string) error {
	if len(args) == 0 {
		for _, f := range flaws() {
			fmt.Printf("%s\t%s\n", f.name, f.check)
		}
		return nil
	}
	f, err := find(args[0])
	if err != nil {
		return err
	}
	if f.first != nil {
		f.first()
	}
	if len(args) == 2 && args[1] == "--plugin-info" {
		info := fake.New().Info()
		if f.outdated {
			info.Version += "-rc1"
		}
		return json.NewEncoder(os.Stdout).Encode(handshake.Describe(info))
	}
	l, err := f.listen(args[1:])
	if err != nil {
		return err
	}
	defer l.Close()
	return serve(f, l)
}

// listen takes the socket from --listen, or makes one and tells the host.
func (f flaw) listen(args []string) (net.Listener, error) {
	switch {
	case len(args) == 2 && args[0] == "--listen":
		path := strings.TrimPrefix(args[1], "unix:")
		if f.cuts && len(path) > handshake.MaxSocketPathBytes {
			path = path[:handshake.MaxSocketPathBytes]
		}
		if len(path) > handshake.MaxSocketPathBytes {
			return nil, fmt.Errorf("the path %s has %d bytes, %d at most", path, len(path), handshake.MaxSocketPathBytes)
		}
		return net.Listen("unix", path)
	case len(args) == 0 && (f.anyone || os.Getenv(handshake.CookieKey) == handshake.CookieValue):
		path := cmp.Or(os.Getenv(handshake.EnvSocket), filepath.Join(cmp.Or(os.Getenv(handshake.EnvSocketDir), os.TempDir()), fmt.Sprint("broken", os.Getpid())))
		l, err := net.Listen("unix", path)
		if err == nil {
			fmt.Println(handshake.Line(l.Addr()))
		}
		return l, err
	}
	return nil, fmt.Errorf("arguments %q: %w", args, errUsage)
}

func serve(f flaw, l net.Listener) error {
	inner := fake.New()
	var provider dataplane.Provider = inner
	if f.provider != nil {
		provider = f.provider(inner)
	}
	service, err := sdk.NewService(provider, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	var server pb.DataPlaneProviderServer = service
	if f.service != nil {
		server = f.service(service)
	}
	g := grpc.NewServer(grpc.MaxRecvMsgSize(handshake.MaxReceiveBytes))
	pb.RegisterDataPlaneProviderServer(g, server)
	h := health.NewServer()
	h.SetServingStatus(handshake.HealthService, healthpb.HealthCheckResponse_SERVING)
	healthpb.RegisterHealthServer(g, h)

	signals := make(chan os.Signal, 1)
	if f.stays {
		signal.Ignore(syscall.SIGTERM)
	} else {
		signal.Notify(signals, syscall.SIGTERM)
	}
	failed := make(chan error, 1)
	go func() { failed <- g.Serve(l) }()
	select {
	case <-signals:
	case <-service.Done(): // the answer to Shutdown is on its way
	case <-f.hostLoss():
	case err := <-failed:
		return err
	}
	service.Close()
	timer := time.AfterFunc(time.Second, g.Stop)
	defer timer.Stop()
	g.GracefulStop()
	return nil
}

// hostLoss is closed when the host is gone and that matters.
func (f flaw) hostLoss() <-chan struct{} {
	gone := make(chan struct{})
	fd, err := strconv.Atoi(os.Getenv(handshake.EnvHostFD))
	if err != nil || f.outlives || os.Getenv(handshake.EnvOnHostLoss) == handshake.HostLossServe && !f.clings {
		return gone
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.NewFile(uintptr(fd), "host"))
		close(gone)
	}()
	return gone
}

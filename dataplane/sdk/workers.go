package sdk

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"

	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
	"github.com/fairlead/fairlead/dataplane/sdk/handshake"
	"github.com/fairlead/fairlead/dataplane/transfer"
)

const (
	// A host that is frozen does not hold a call for ever: it has to answer a
	// ping after this silence, in this time.
	hostSilence  = 10 * time.Second
	hostPatience = 5 * time.Second
	// streamsTime is how long answers may take to leave at the end.
	streamsTime = 500 * time.Millisecond
	// windowBytes is how much of a generation may be on its way: some chunks,
	// so that either side works while the other does. What gRPC begins with,
	// 64 KiB, makes it wait for the other some 70 times in a large snapshot.
	windowBytes = 4 << 20
)

// workers are what runs beside the provider: its server, its follower, and the
// watch over its host.
type workers struct {
	server   *grpc.Server
	socket   *socket
	ask      chan struct{} // closed when go-plugin's controller asks to end
	failed   chan error
	hostLost <-chan struct{}
	serveOn  bool
	done     sync.WaitGroup
	cancel   context.CancelFunc
}

// start starts them. What was started before an error is stopped.
func (r *run) start(ctx context.Context) (w *workers, err error) {
	ctx, cancel := context.WithCancel(ctx)
	w = &workers{ask: make(chan struct{}), failed: make(chan error, 2), cancel: cancel}
	defer func() {
		if err != nil {
			w.stop(0)
		}
	}()
	if r.child {
		err = r.startChild(ctx, w)
	} else {
		err = r.startByItself(ctx, w)
	}
	return w, err
}

func (r *run) startChild(ctx context.Context, w *workers) (err error) {
	if w.serveOn, err = onHostLoss(r.env.Getenv); err != nil {
		return err
	}
	if w.hostLost, err = watchHost(ctx, r.env.Getenv, r.env.Parent); err != nil {
		return err
	}
	if w.socket, err = childSocket(r.env.Getenv); err != nil {
		return err
	}
	r.startServer(w)
	return greet(r.env.Stdout, w.socket)
}

func (r *run) startByItself(ctx context.Context, w *workers) (err error) {
	address := r.args.listen
	if address == "" && r.args.follow == "" { // --debug alone
		address = "unix:" + filepath.Join(os.TempDir(), fmt.Sprintf("fairlead-%s-%d", r.service.info.Name, os.Getuid()), r.service.info.Name+".sock")
	}
	if address != "" {
		path, ok := unixPath(address)
		if !ok {
			return fmt.Errorf("--listen %s: want unix:PATH", address)
		}
		if w.socket, err = listenUnix(path); err != nil {
			return err
		}
		r.startServer(w)
		r.log.Info("serving", "provider", r.service.info.Name, "socket", path)
		if r.args.debug {
			fmt.Fprint(r.env.Stderr, attachment(r.service.info.Name, path))
		}
	}
	if r.args.follow != "" {
		f, err := newFollower(r.service, r.args.follow)
		if err != nil {
			return err
		}
		w.done.Go(func() { f.run(ctx) })
	}
	return nil
}

func (r *run) startServer(w *workers) {
	w.socket.refused = func(err error) { r.log.Warn("a connection was refused", "error", err) }
	w.server = grpc.NewServer(
		grpc.MaxRecvMsgSize(handshake.MaxReceiveBytes), grpc.ForceServerCodecV2(transfer.Codec()),
		grpc.InitialWindowSize(windowBytes), grpc.InitialConnWindowSize(windowBytes),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: hostSilence, Timeout: hostPatience}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
	)
	pb.RegisterDataPlaneProviderServer(w.server, r.service)
	alive := health.NewServer()
	alive.SetServingStatus(handshake.HealthService, grpc_health_v1.HealthCheckResponse_SERVING)
	grpc_health_v1.RegisterHealthServer(w.server, alive)
	var once sync.Once
	if r.child {
		registerController(w.server, controllerFunc(func() { once.Do(func() { close(w.ask) }) }))
	}
	w.done.Go(func() {
		if err := w.server.Serve(w.socket); err != nil {
			w.failed <- fmt.Errorf("serving on %s: %w", w.socket.path, err)
		}
	})
}

// stop lets answers leave, at most for patience, and ends everything. A call
// from which the provider does not return is left behind.
func (w *workers) stop(patience time.Duration) {
	w.cancel()
	if w.server != nil {
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			w.server.GracefulStop() // waits for calls, so for ever if one hangs
		}()
		select {
		case <-stopped:
		case <-time.After(patience):
			w.server.Stop()
		}
	}
	if w.socket != nil {
		_ = w.socket.Close()
	}
	w.done.Wait()
}

// attachment tells how to use a provider that was started with --debug.
func attachment(name, path string) string {
	variable := "FAIRLEAD_PLUGIN_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_")) + "_SOCKET"
	return fmt.Sprintf(`
Process %[1]d serves on %[2]s. To attach an agent to it:

  FAIRLEAD_DATAPLANE=%[3]s %[4]s=%[2]s fairlead agent

To test it: fairlead plugin conform --endpoint unix:%[2]s
To debug it: dlv attach %[1]d

`, os.Getpid(), path, name, variable)
}

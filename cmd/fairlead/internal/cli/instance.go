package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
)

const (
	instanceCommandName = "__instance"
	// instanceHeader names, in each answer, the instance that gave it.
	instanceHeader = "Instance"
	healthPath     = "/healthz"
	countPath      = "/count"
)

// instanceSpec is what an instance of dev and demo is called.
type instanceSpec struct {
	Service string `json:"service"`
	ID      string `json:"id"`
	Node    string `json:"node"`
}

// instanceReady is the one line that an instance prints: it listens now.
type instanceReady struct {
	Addr string `json:"addr"`
}

// instanceCount is what it answers at /count.
type instanceCount struct {
	Requests uint64 `json:"requests"` // answered so far, those of /healthz and /count apart
}

// instanceCommand is a process that dev and demo start: a tiny HTTP server that
// says who it is.
func (a *app) instanceCommand() *cobra.Command {
	var spec instanceSpec
	var listen string
	cmd := &cobra.Command{
		Use:    instanceCommandName,
		Short:  "An instance of `fairlead dev`",
		Hidden: true,
		Args:   noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := a.signalled(cmd.Context())
			defer cancel()
			return a.runInstance(ctx, spec, listen)
		},
	}
	cmd.Flags().StringVar(&spec.Service, "service", "", "name of the service")
	cmd.Flags().StringVar(&spec.ID, "id", "", "id of the instance")
	cmd.Flags().StringVar(&spec.Node, "node", "", "name of the node")
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:0", "address to listen at")
	return cmd
}

func (a *app) runInstance(ctx context.Context, spec instanceSpec, listen string) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", listen)
	if err != nil {
		return fmt.Errorf("instance %s: %w", spec.ID, err)
	}
	server := &http.Server{Handler: spec.handler(os.Getpid()), ReadHeaderTimeout: 10 * time.Second}
	defer server.Close()
	if err := printJSON(a.env.Stdout, instanceReady{Addr: l.Addr().String()}); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("instance %s: %w", spec.ID, err)
	}
	return nil
}

// handler answers everything with who it is.
func (s instanceSpec) handler(pid int) http.Handler {
	var requests atomic.Uint64
	mux := http.NewServeMux()
	mux.HandleFunc(healthPath, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc(countPath, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(instanceCount{Requests: requests.Load()}) // who went away needs no answer
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		n := requests.Add(1)
		w.Header().Set(instanceHeader, s.ID)
		fmt.Fprintf(w, "%s on %s (service %s, pid %d), request %d\n", s.ID, s.Node, s.Service, pid, n)
	})
	return mux
}

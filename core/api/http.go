package api

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/net/netutil"
)

// Health says how the agent is. Both functions are called for each request and
// must not block.
type Health struct {
	// Live returns why the process should be restarted, or nil.
	Live func() error
	// Ready returns why the agent should not be relied on now, or nil.
	Ready func() error
}

// HTTP serves /metrics, /livez and /readyz.
type HTTP struct {
	server  *http.Server
	serving sync.WaitGroup
}

// ServeHTTP answers on l in the background until Stop, which also closes l.
func ServeHTTP(l net.Listener, metrics prometheus.Gatherer, health Health, log *slog.Logger) *HTTP {
	errorLog := slog.NewLogLogger(log.Handler(), slog.LevelWarn)
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{ErrorLog: errorLog, MaxRequestsInFlight: 4}))
	mux.Handle("GET /livez", probe(health.Live))
	mux.Handle("GET /readyz", probe(health.Ready))

	h := &HTTP{server: &http.Server{
		Handler:           mux,
		ErrorLog:          errorLog,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
	}}
	h.serving.Go(func() {
		if err := h.server.Serve(netutil.LimitListener(l, maxConnections)); !errors.Is(err, http.ErrServerClosed) {
			log.Error("HTTP stopped answering", "address", l.Addr().String(), "error", err)
		}
	})
	return h
}

// Stop lets requests under way finish until ctx ends, then cuts them off.
func (h *HTTP) Stop(ctx context.Context) {
	if h.server.Shutdown(ctx) != nil {
		_ = h.server.Close()
	}
	h.serving.Wait()
}

// probe answers 200 ok, or 503 with the reason.
func probe(check func() error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store")
		if err := check(); err != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, err.Error()+"\n")
			return
		}
		_, _ = io.WriteString(w, "ok\n")
	})
}

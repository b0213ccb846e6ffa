// Package admin is the listener for operators: /livez, /readyz, /metrics.
package admin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/net/netutil"

	"github.com/fairlead/fairlead/plugins/l7/internal/settings"
)

const (
	headerTime = 5 * time.Second
	answerTime = 30 * time.Second
	closeTime  = time.Second
	// mostConnections and mostScrapes are far above what monitoring needs, and
	// bound what anybody else can hold.
	mostConnections = 64
	mostScrapes     = 4
)

// Server answers at one address, or at none. Its methods may be called from any
// goroutine.
type Server struct {
	handler http.Handler
	log     *slog.Logger

	mu     sync.Mutex
	wanted string
	http   *http.Server
	addr   net.Addr
	served chan struct{}
}

// New returns a server that listens nowhere. ready says why /readyz has to say
// no, "" if it need not.
func New(metrics prometheus.Gatherer, ready func() string, log *slog.Logger) *Server {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if why := ready(); why != "" {
			http.Error(w, why, http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn), MaxRequestsInFlight: mostScrapes}))
	return &Server{handler: mux, log: log, wanted: settings.Off}
}

// Configure listens at an address, settings.Off for none, in place of the one
// before, which stays if it fails.
func (s *Server) Configure(address string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if address == s.wanted {
		return nil
	}
	if address == settings.Off {
		s.close()
		return nil
	}
	l, err := net.Listen("tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("admin %s: the port is in use: end what listens there, or choose another address with admin, or %s", address, settings.Off)
	}
	if err != nil {
		return fmt.Errorf("admin %s: %w: choose another address with admin, or %s", address, err, settings.Off)
	}
	s.close()
	server := &http.Server{Handler: s.handler, ReadHeaderTimeout: headerTime, ReadTimeout: headerTime, WriteTimeout: answerTime, ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug)}
	served := make(chan struct{})
	go func() {
		defer close(served)
		if err := server.Serve(netutil.LimitListener(l, mostConnections)); !errors.Is(err, http.ErrServerClosed) {
			s.log.Error("the admin listener is gone", "error", err)
		}
	}()
	s.wanted, s.http, s.addr, s.served = address, server, l.Addr(), served
	s.log.Info("serving /livez, /readyz and /metrics", "admin", l.Addr().String())
	return nil
}

// Address is where it listens, with the real port; "" if nowhere.
func (s *Server) Address() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.addr == nil {
		return ""
	}
	return s.addr.String()
}

// Close ends it. Configure opens it again.
func (s *Server) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.close()
}

func (s *Server) close() {
	if s.http != nil {
		ctx, cancel := context.WithTimeout(context.Background(), closeTime)
		defer cancel()
		if err := s.http.Shutdown(ctx); err != nil {
			_ = s.http.Close()
		}
		<-s.served
	}
	s.wanted, s.http, s.addr, s.served = settings.Off, nil, nil, nil
}

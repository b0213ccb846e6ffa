package exits

import (
	"log"
	"log/slog"
	"net/http"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

func bad() {
	panic("x")                       // want `panic outside of a command: return an error`
	os.Exit(1)                       // want `Exit outside of a command: return an error`
	log.Fatalf("x")                  // want `Fatalf outside of a command: return an error`
	log.Println("x")                 // want `Println outside of a command: log to the \*slog.Logger`
	slog.Info("x")                   // want `Info outside of a command: log to the`
	slog.WarnContext(nil, "")        // want `WarnContext outside of a command: log to the`
	_ = slog.Default()               // want `Default outside of a command: log to the`
	http.HandleFunc("/", nil)        // want `HandleFunc outside of a command: serve from a mux of your own`
	prometheus.MustRegister()        // want `MustRegister outside of a command: register with`
	_ = prometheus.DefaultRegisterer // want `DefaultRegisterer outside of a command: register with`
	promauto.NewCounter()            // want `NewCounter outside of a command: register with`
}

func good(logger *slog.Logger, mux *http.ServeMux, registry prometheus.Registerer) {
	logger.Info("x")
	_ = logger.With("a", 1)
	mux.HandleFunc("/", nil)
	registry.MustRegister()
	_ = slog.New(slog.NewTextHandler(os.Stderr, nil))
	var panic = func(string) {}
	panic("a local of that name")
}

package pluginhost

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics is every metric of this package; docs/metrics.md explains them.
type metrics struct {
	state       *prometheus.GaugeVec   // plugin, state
	starts      *prometheus.CounterVec // plugin, result
	losses      *prometheus.CounterVec // plugin
	unanswered  *prometheus.CounterVec // plugin
	linesLost   *prometheus.CounterVec // plugin
	registry    prometheus.Registerer
	collections []prometheus.Collector
}

const (
	startOK      = "ok"
	startAdopted = "adopted"
	startFailed  = "failed"
)

func newMetrics(registry prometheus.Registerer) (*metrics, error) {
	m := &metrics{registry: registry}
	m.state = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "fairlead_plugin_state", Help: "1 for the state that a plugin is in, 0 for all others.",
	}, []string{"plugin", "state"})
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
		m.collections = append(m.collections, c)
		return c
	}
	m.starts = counter("fairlead_plugin_starts_total", "Starts of a plugin by result.", "plugin", "result")
	m.losses = counter("fairlead_plugin_losses_total", "Times that a plugin which was ready ended, hung or broke its connection.", "plugin")
	m.unanswered = counter("fairlead_plugin_health_unanswered_total", "Questions whether the process answers that got no answer in time.", "plugin")
	m.linesLost = counter("fairlead_plugin_log_lines_dropped_total", "Lines of a plugin that were more than the log takes.", "plugin")
	m.collections = append(m.collections, m.state)
	for i, c := range m.collections {
		if err := registry.Register(c); err != nil {
			for _, done := range m.collections[:i] {
				registry.Unregister(done)
			}
			return nil, fmt.Errorf("pluginhost: register metrics: %w", err)
		}
	}
	return m, nil
}

func (m *metrics) unregister() {
	for _, c := range m.collections {
		m.registry.Unregister(c)
	}
}

// prepare makes the series of a plugin, so that rates exist before the first
// event.
func (m *metrics) prepare(plugin string) {
	for _, result := range []string{startOK, startAdopted, startFailed} {
		m.starts.WithLabelValues(plugin, result)
	}
	m.losses.WithLabelValues(plugin)
	m.unanswered.WithLabelValues(plugin)
	m.linesLost.WithLabelValues(plugin)
}

func (m *metrics) set(plugin string, state State) {
	for _, s := range states() {
		v := 0.0
		if s == state {
			v = 1
		}
		m.state.WithLabelValues(plugin, string(s)).Set(v)
	}
}

// errNoRegistry: a Host was given nothing to register its metrics with.
var errNoRegistry = errors.New("pluginhost: Config.Metrics is nil")

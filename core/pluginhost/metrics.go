package pluginhost

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/core/metric"
)

// metrics is every metric of this package; docs/metrics.md explains them.
type metrics struct {
	state       *prometheus.GaugeVec   // plugin, state
	starts      *prometheus.CounterVec // plugin, result
	losses      *prometheus.CounterVec // plugin
	unanswered  *prometheus.CounterVec // plugin
	linesLost   *prometheus.CounterVec // plugin
	chosen      *prometheus.GaugeVec   // provider, how
	rejected    *prometheus.GaugeVec   // provider, verdict
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
	m.chosen = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "fairlead_dataplane_chosen", Help: "1 for each provider that the choice has, by how it came to that: named or auto.",
	}, []string{"provider", "how"})
	m.rejected = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "fairlead_dataplane_rejected", Help: "1 for each provider that came into question and was not chosen, with the verdict of its probe.",
	}, []string{"provider", "verdict"})
	m.collections = append(m.collections, m.state, m.chosen, m.rejected)
	if err := metric.Register(registry, m.collections...); err != nil {
		return nil, fmt.Errorf("pluginhost: register metrics: %w", err)
	}
	return m, nil
}

func (m *metrics) unregister() {
	metric.Unregister(m.registry, m.collections...)
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

// How a provider came to be chosen, and what stands in place of a verdict.
const (
	howNamed   = "named"
	howAuto    = "auto"
	verdictNot = "none" // it is not installed, is refused, or could not be asked
)

// decided shows a decision in place of the one before.
func (m *metrics) decided(d Decision) {
	m.chosen.Reset()
	m.rejected.Reset()
	for _, c := range d.Chosen {
		how := howNamed
		if c.Auto {
			how = howAuto
		}
		m.chosen.WithLabelValues(c.Name, how).Set(1)
	}
	for _, r := range d.Rejected {
		verdict := verdictNot
		for _, c := range d.Considered {
			if c.Name == r.Name && c.Verdict != "" {
				verdict = c.Verdict
			}
		}
		m.rejected.WithLabelValues(r.Name, verdict).Set(1)
	}
}

// forget ends the series of the state of a plugin that is not hosted any more.
func (m *metrics) forget(plugin string) {
	m.state.DeletePartialMatch(prometheus.Labels{"plugin": plugin})
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

package proxy

import (
	"fmt"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics is every metric of this package; docs/metrics.md explains them. No
// label holds what a client wrote: services are those of the snapshot.
type metrics struct {
	requests  *prometheus.CounterVec   // service, code
	seconds   *prometheus.HistogramVec // service
	retries   *prometheus.CounterVec   // service, reason
	refused   *prometheus.CounterVec   // service
	failures  *prometheus.CounterVec   // service, reason
	ejections *prometheus.CounterVec   // service
	connects  *prometheus.CounterVec   // result
	guarded   *prometheus.CounterVec   // status
	inFlight  prometheus.Gauge
	aborts    prometheus.Counter
	dropped   prometheus.Counter

	connected, connectFailed prometheus.Counter
	nowhere                  *series // requests that belong to no service
}

// noService is the label of requests that belong to no service.
const noService = "none"

func newMetrics(registry prometheus.Registerer, p *Proxy) (*metrics, error) {
	m := &metrics{}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m.requests = counter("fairlead_l7_requests_total", "Requests that ended, by service and class of status.", "service", "code")
	m.seconds = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "fairlead_l7_request_seconds", Help: "Time from the head of a request to the last byte of its answer; without tunnels.",
		Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10, 60},
	}, []string{"service"})
	m.retries = counter("fairlead_l7_retries_total", "Further tries, by what became of the one before.", "service", "reason")
	m.refused = counter("fairlead_l7_retries_refused_total", "Further tries that the budget of retries did not allow.", "service")
	m.failures = counter("fairlead_l7_failures_total", "Requests that no backend answered, or not to the end, by reason.", "service", "reason")
	m.ejections = counter("fairlead_l7_failed_tries_total", "Tries for which the endpoint was left out for a while.", "service")
	m.connects = counter("fairlead_l7_connects_total", "Connects to backends by result.", "result")
	m.guarded = counter("fairlead_l7_bad_requests_total", "Requests refused because two parsers might read them in two ways, by status.", "status")
	m.inFlight = prometheus.NewGauge(prometheus.GaugeOpts{Name: "fairlead_l7_requests_in_flight", Help: "Requests under way, tunnels included."})
	m.aborts = prometheus.NewCounter(prometheus.CounterOpts{Name: "fairlead_l7_client_aborts_total", Help: "Requests whose client went away before the end of the answer."})
	m.dropped = prometheus.NewCounter(prometheus.CounterOpts{Name: "fairlead_l7_access_log_dropped_total", Help: "Lines of the access log that were lost because nobody took them in time."})
	tunnels := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "fairlead_l7_tunnels_open", Help: "WebSockets open now."},
		func() float64 { return float64(p.Tunnels()) })
	busy := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "fairlead_l7_backend_connections_busy", Help: "Connections to backends that carry a request or a tunnel."},
		func() float64 { busy, _ := p.connections(); return float64(busy) })
	idle := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "fairlead_l7_backend_connections_idle", Help: "Connections to backends that wait for use."},
		func() float64 { _, idle := p.connections(); return float64(idle) })

	all := []prometheus.Collector{
		m.requests, m.seconds, m.retries, m.refused, m.failures, m.ejections, m.connects, m.guarded,
		m.inFlight, m.aborts, m.dropped, tunnels, busy, idle,
	}
	for i, c := range all {
		if err := registry.Register(c); err != nil {
			for _, done := range all[:i] {
				registry.Unregister(done)
			}
			return nil, fmt.Errorf("l7: register metrics: %w", err)
		}
	}
	m.connected, m.connectFailed = m.connects.WithLabelValues("ok"), m.connects.WithLabelValues("failed")
	m.nowhere = m.service(noService)
	return m, nil
}

// series are the metrics of one service, looked up once.
type series struct {
	name      string
	codes     [6]prometheus.Counter // by class; 0 is 499
	seconds   prometheus.Observer
	refused   prometheus.Counter
	ejections prometheus.Counter
	retries   byReason
	failures  byReason
}

// classes are the values of the label code, as series.codes has them.
func classes() [6]string { return [...]string{"499", "1xx", "2xx", "3xx", "4xx", "5xx"} }

func (m *metrics) service(name string) *series {
	s := &series{
		name: name, seconds: m.seconds.WithLabelValues(name),
		refused: m.refused.WithLabelValues(name), ejections: m.ejections.WithLabelValues(name),
		retries: byReason{of: m.retries, service: name}, failures: byReason{of: m.failures, service: name},
	}
	for class, code := range classes() {
		s.codes[class] = m.requests.WithLabelValues(name, code)
	}
	return s
}

// forget removes the series of a service that is gone. It names each of them: a
// search would look at those of all services.
func (m *metrics) forget(s *series) {
	for _, code := range classes() {
		m.requests.DeleteLabelValues(s.name, code)
	}
	m.seconds.DeleteLabelValues(s.name)
	m.refused.DeleteLabelValues(s.name)
	m.ejections.DeleteLabelValues(s.name)
	s.retries.forget()
	s.failures.forget()
}

// byReason is a counter of one service for each reason that there was.
type byReason struct {
	of      *prometheus.CounterVec // service, reason
	service string

	mu   sync.Mutex
	seen map[Reason]prometheus.Counter
	gone bool // what is counted from now on shows nowhere
}

func (b *byReason) inc(reason Reason) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gone {
		return
	}
	c := b.seen[reason]
	if c == nil {
		if b.seen == nil {
			b.seen = map[Reason]prometheus.Counter{}
		}
		c = b.of.WithLabelValues(b.service, string(reason))
		b.seen[reason] = c
	}
	c.Inc()
}

func (b *byReason) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.gone = true
	for reason := range b.seen {
		b.of.DeleteLabelValues(b.service, string(reason))
	}
}

func (s *series) code(status int) prometheus.Counter {
	if status == statusClientClosed {
		return s.codes[0]
	}
	return s.codes[min(max(status/100, 1), 5)]
}

// connections sums up the pools.
func (p *Proxy) connections() (busy, idle int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	add := func(e *endpoint) {
		b, i := e.pool.Open()
		busy, idle = busy+b, idle+i
	}
	for _, t := range p.targets {
		for _, e := range t.backend {
			add(e)
		}
	}
	for _, e := range p.gone {
		add(e)
	}
	return busy, idle
}

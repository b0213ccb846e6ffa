// Package metric adds metrics to a registry all at once: a part of the agent
// that fails to start leaves none behind, so that it can be started again.
package metric

import "github.com/prometheus/client_golang/prometheus"

// Register adds all collectors to r, or none: one that is refused (r holds
// another of its name) takes those before it out again. A nil r takes nothing.
func Register(r prometheus.Registerer, collectors ...prometheus.Collector) error {
	if r == nil {
		return nil
	}
	for i, c := range collectors {
		if err := r.Register(c); err != nil {
			Unregister(r, collectors[:i]...)
			return err
		}
	}
	return nil
}

// Unregister takes collectors out of r. A nil r holds none.
func Unregister(r prometheus.Registerer, collectors ...prometheus.Collector) {
	if r == nil {
		return
	}
	for _, c := range collectors {
		r.Unregister(c)
	}
}

// Package prometheus has as much of the real one as the tests of arch refer to.
package prometheus

type Registerer interface{ MustRegister() }

var DefaultRegisterer Registerer

func MustRegister() {}

type Opts struct{ Namespace, Subsystem, Name, Help string }

type CounterOpts Opts

type Desc struct{}

type Counter interface{ Inc() }

func NewCounter(CounterOpts) Counter { return nil }

func NewDesc(name, help string, labels []string, constant map[string]string) *Desc { return nil }

func MustNewConstMetric(d *Desc, kind int, v float64) {}

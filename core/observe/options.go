package observe

import (
	"github.com/fairlead/fairlead/dataplane"
)

const (
	// DefaultRate is how many flows in a second an observer is given if it does
	// not say.
	DefaultRate = 100
	// MaxRate is the most that one may ask for.
	MaxRate = 10_000
	// MaxSample is the coarsest sample.
	MaxSample = 1 << 20
)

// Options say what an observer wants.
type Options struct {
	Service dataplane.Key // the zero key: of all services
	Verdict string        // such as refused; empty: any
	OneIn   int           // sample: one in so many; 0 and 1: each
	Rate    int           // at most so many in a second; 0: DefaultRate
}

// normal fills in defaults and clips what is out of bounds.
func (o Options) normal() Options {
	o.OneIn = min(max(1, o.OneIn), MaxSample)
	if o.Rate <= 0 {
		o.Rate = DefaultRate
	}
	o.Rate = min(o.Rate, MaxRate)
	return o
}

// narrow reports whether the observer leaves out flows by what they are.
func (o Options) narrow() bool { return o.Service != (dataplane.Key{}) || o.Verdict != "" }

func (o Options) match(f *dataplane.Flow) bool {
	return (o.Service == (dataplane.Key{}) || o.Service == f.Service) && (o.Verdict == "" || o.Verdict == f.Verdict)
}

// ask is what providers are asked for on behalf of one observer. They do not
// know what it leaves out, so one that looks for something takes all there is.
// They are asked for a little more than its rate, so that it can be told that
// there was more.
func (o Options) ask() dataplane.FlowOptions {
	rate := o.Rate + o.Rate/10 + 1
	if o.narrow() {
		rate = MaxRate + MaxRate/10 + 1
	}
	return dataplane.FlowOptions{SampleOneIn: o.OneIn, MaxPerSecond: rate}
}

// union is the finest sample and the highest rate of all; nil for nobody.
func union(all []Options) *dataplane.FlowOptions {
	var out *dataplane.FlowOptions
	for _, o := range all {
		a := o.ask()
		if out == nil {
			out = &a
			continue
		}
		out.SampleOneIn = min(out.SampleOneIn, a.SampleOneIn)
		out.MaxPerSecond = max(out.MaxPerSecond, a.MaxPerSecond)
	}
	return out
}

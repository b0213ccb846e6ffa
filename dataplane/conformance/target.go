package conformance

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/fairlead/fairlead/dataplane"
)

// Target is the provider to test. Exactly one of Exec and Endpoint is set.
type Target struct {
	// Exec is the path of an executable, which is started, killed and started
	// again as the checks want.
	Exec string
	// Args come before the arguments of the suite.
	Args []string
	// Env is added to PATH, HOME, LANG and TMPDIR, as NAME=value.
	Env []string
	// Child starts Exec as an agent does, with the cookie and the handshake of
	// package handshake, instead of with --listen unix:PATH.
	Child bool

	// Endpoint is where a provider serves already: "unix:PATH". Checks that
	// need a process of their own are skipped.
	Endpoint string
}

// Options say how much to test. The zero Options are the defaults.
type Options struct {
	// Config is a configuration that the provider takes, as JSON.
	Config []byte
	// Services and EndpointsPerService make the large snapshot; 10,000 and 10
	// if 0, or the provider's limits if these are lower.
	Services, EndpointsPerService int
	// Reconciles is how often the search for leaks changes things; 200 if 0.
	Reconciles int
	// Patience bounds one call that has much to do, such as the large snapshot;
	// 30 s if 0.
	Patience time.Duration
	// Only are ids or groups of checks ("reconcile", "watch.first"); empty: all.
	Only []string
	// Observe reads what is programmed from the system: the number of endpoints
	// of each service. Nil: the provider's gauges are read.
	Observe func(context.Context) (map[dataplane.Key]int, error)
}

func (o Options) withDefaults() Options {
	orDefault := func(n *int, d int) {
		if *n == 0 {
			*n = d
		}
	}
	orDefault(&o.Services, 10_000)
	orDefault(&o.EndpointsPerService, 10)
	orDefault(&o.Reconciles, 200)
	if o.Patience == 0 {
		o.Patience = 30 * time.Second
	}
	return o
}

// wants reports whether Only names a check.
func (o Options) wants(c Check) bool {
	if len(o.Only) == 0 {
		return true
	}
	for _, name := range o.Only {
		if name == c.ID || name == c.Group() {
			return true
		}
	}
	return false
}

// Validate says what is wrong with a target and its options, without a look at
// the provider.
func Validate(t Target, o Options) error {
	switch {
	case (t.Exec == "") == (t.Endpoint == ""):
		return errors.New("conformance: give either an executable or an endpoint")
	case t.Endpoint != "" && socketPath(t.Endpoint) == "":
		return fmt.Errorf("conformance: endpoint %q: want unix:PATH", t.Endpoint)
	case o.Services < 0 || o.EndpointsPerService < 0 || o.Reconciles < 0 || o.Patience < 0:
		return errors.New("conformance: a count or a time is below 0")
	}
	for _, name := range o.Only {
		known := false
		for _, c := range Checks() {
			known = known || name == c.ID || name == c.Group()
		}
		if !known {
			return fmt.Errorf("conformance: %q is neither a check nor a group of checks: fairlead plugin conform --list names them", name)
		}
	}
	return nil
}

func socketPath(endpoint string) string {
	path, ok := strings.CutPrefix(endpoint, "unix:")
	if !ok {
		return ""
	}
	return strings.TrimPrefix(path, "//")
}

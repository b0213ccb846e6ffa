// Package settings is what can be set about the proxy: one struct, its defaults,
// its check, and its JSON Schema. The same keys are read from the agent's
// section plugins.l7 (JSON), from l7.yaml, from FAIRLEAD_L7_* and from flags.
package settings

import (
	"net/netip"
	"time"
)

// Settings are all that can be set about the proxy. The zero value is of no
// use: begin with Default.
type Settings struct {
	Listen         []string       // HOST:PORT of the front, one at least
	Admin          string         // HOST:PORT of /livez, /readyz, /metrics; Off: none
	Zone           string         // of mesh names: web.default.ZONE
	AccessLog      string         // Off, AccessLogStderr or AccessLogStdout
	TrustedProxies []netip.Prefix // peers whose X-Forwarded-* and Forwarded are believed
	H2C            bool           // HTTP/2 without TLS, by prior knowledge
	MaxHeaderBytes int            // of a request's head
	MaxConnections int            // of clients at one address of Listen
	Announce       time.Duration  // at the end: requests are still taken, and clients asked to go
	Grace          time.Duration  // after that, for requests and tunnels under way
	Timeouts       Timeouts
	Retry          Retry
	Ejection       Ejection
	Idle           Idle
}

// Places of the access log besides Off.
const (
	AccessLogStderr = "stderr"
	AccessLogStdout = "stdout"
)

// Off disables a listener, and the access log.
const Off = "off"

// Timeouts bound the steps of a request; 0 is no bound, where it is allowed.
type Timeouts struct {
	Header    time.Duration // until a client's head is there
	Idle      time.Duration // of a client's connection between two requests
	Body      time.Duration // of a client without a byte of a body in its turn, and of a backend that takes none; 0: none
	Connect   time.Duration // to an endpoint
	FirstByte time.Duration // of an endpoint's answer, where no other one can be tried; 0: none
	Try       time.Duration // of an endpoint's answer, where another one can be tried; 0: as FirstByte
	Tunnel    time.Duration // of a WebSocket without a byte in either direction; 0: none
}

// MostRetries is the largest Retry.Most.
const MostRetries = 5

// Retry bounds further tries.
type Retry struct {
	Most   int // tries beyond the first, each on another endpoint
	Budget int // percent of the requests of a service that may be tried again
	Floor  int // further tries a second that are allowed in any case
}

// Ejection is how long an endpoint that failed is left out.
type Ejection struct {
	First, Most time.Duration // the back-off doubles from First to Most
}

// Idle bounds the connections to backends that wait for use.
type Idle struct {
	PerEndpoint int
	Time        time.Duration
}

// Default returns the settings of a proxy of which nothing is said.
func Default() Settings {
	return Settings{
		Listen: []string{"127.0.0.1:8080"}, Admin: Off, Zone: "mesh.internal", AccessLog: Off,
		MaxHeaderBytes: 64 << 10, MaxConnections: 8192, Announce: 500 * time.Millisecond, Grace: 10 * time.Second,
		Timeouts: Timeouts{
			Header: 10 * time.Second, Idle: 3 * time.Minute, Body: time.Minute, Connect: 3 * time.Second,
			FirstByte: 60 * time.Second, Try: 250 * time.Millisecond, Tunnel: time.Hour,
		},
		Retry:    Retry{Most: 2, Budget: 20, Floor: 10},
		Ejection: Ejection{First: time.Second, Most: 30 * time.Second},
		Idle:     Idle{PerEndpoint: 256, Time: 55 * time.Second},
	}
}

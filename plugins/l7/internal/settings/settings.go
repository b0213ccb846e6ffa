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
	AccessLog      AccessLog      // where a line per request goes
	TrustedProxies []netip.Prefix // peers whose X-Forwarded-* and Forwarded are believed
	H2C            bool           // HTTP/2 without TLS, by prior knowledge
	MaxHeaderBytes int            // of a request's head
	Grace          time.Duration  // for requests and tunnels at the end of the process
	Timeouts       Timeouts
	Retry          Retry
	Ejection       Ejection
	Idle           Idle
}

// AccessLog is where the lines of the access log go.
type AccessLog string

// The places. Lines on standard error are JSON, as all others there.
const (
	AccessLogOff    AccessLog = "off"
	AccessLogStderr AccessLog = "stderr"
)

// Off disables a listener.
const Off = "off"

// Timeouts bound the steps of a request; 0 is no bound, where it is allowed.
type Timeouts struct {
	Header    time.Duration // until a client's head is there
	Idle      time.Duration // of a client's connection between two requests
	Connect   time.Duration // to a backend
	FirstByte time.Duration // of a backend's answer, where no other endpoint can be tried; 0: none
	Try       time.Duration // of a backend's answer, where another endpoint can be tried
	Tunnel    time.Duration // of a WebSocket without a byte in either direction; 0: none
}

// Retry bounds further tries.
type Retry struct {
	Most   int // tries beyond the first, each on another endpoint
	Budget int // percent of the requests of a service that may be tried again
	Floor  int // further tries a second that are allowed in any case
}

// Ejection is how long an endpoint that failed is left out.
type Ejection struct {
	First, Most time.Duration // the back-off doubles from First to Most
	Share       int           // percent of a service's endpoints that may be left out
}

// Idle bounds the connections to backends that wait for use.
type Idle struct {
	PerEndpoint int
	Time        time.Duration
}

// Default returns the settings of a proxy of which nothing is said.
func Default() Settings {
	return Settings{
		Listen: []string{"127.0.0.1:8080"}, Admin: Off, Zone: "mesh.internal", AccessLog: AccessLogOff,
		MaxHeaderBytes: 64 << 10, Grace: 10 * time.Second,
		Timeouts: Timeouts{
			Header: 10 * time.Second, Idle: 3 * time.Minute, Connect: 3 * time.Second,
			FirstByte: 60 * time.Second, Try: 250 * time.Millisecond, Tunnel: time.Hour,
		},
		Retry:    Retry{Most: 2, Budget: 20, Floor: 10},
		Ejection: Ejection{First: time.Second, Most: 30 * time.Second, Share: 50},
		Idle:     Idle{PerEndpoint: 64, Time: 55 * time.Second},
	}
}

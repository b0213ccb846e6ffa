package proxy

import (
	"io"
	"net/netip"
	"os"
	"time"

	"github.com/fairlead/fairlead/plugins/l7/internal/backend"
	"github.com/fairlead/fairlead/plugins/l7/internal/balance"
	"github.com/fairlead/fairlead/plugins/l7/internal/files"
	"github.com/fairlead/fairlead/plugins/l7/internal/settings"
)

// options are what a request goes by. Durations of 0 are no bound.
type options struct {
	connect      time.Duration // until a backend took a connection
	connectAgain time.Duration // the same where another endpoint can be tried
	try          time.Duration // until the answer's first byte, where another endpoint can be tried
	firstByte    time.Duration // until the answer's first byte, and then its head, where none can
	bodyIdle     time.Duration // of a client without a byte of its body or that takes none of the answer; of a backend that takes none of a body
	tunnelIdle   time.Duration // of a WebSocket without a byte in either direction
	halfClosed   time.Duration // the same once one side has ended
	drain        time.Duration // of what goes on at an endpoint that is gone, if the service has no such time

	tries   int // beyond the first
	trusted []netip.Prefix
	log     *accessLog // nil: none
}

// mostTries is how often one request may be tried, the first time included.
const mostTries = settings.MostRetries + 1

// optionsOf are the options by the settings.
func optionsOf(s settings.Settings) options {
	return options{
		connect: s.Timeouts.Connect, connectAgain: connectAgainOf(s.Timeouts),
		try: s.Timeouts.Try, firstByte: s.Timeouts.FirstByte, bodyIdle: s.Timeouts.Body,
		tunnelIdle: s.Timeouts.Tunnel, halfClosed: time.Minute, drain: 30 * time.Second,
		// Invariant: an exchange has room for mostTries tries.
		tries: min(max(s.Retry.Most, 0), mostTries-1), trusted: s.TrustedProxies,
	}
}

// connectAgainOf is how long a connect may take where there is another endpoint:
// as long as an answer, as a host that is gone answers neither. Where packets
// vanish, a client with a limit of a second would else see the failure.
func connectAgainOf(t settings.Timeouts) time.Duration {
	d := min(time.Second, t.Connect)
	if t.Try > 0 {
		d = min(d, t.Try)
	}
	return d
}

// headBytes bounds the head of an answer.
const headBytes = 128 << 10

func backendOptionsOf(s settings.Settings) backend.Options {
	fit, _ := files.Room(1)
	return backend.Options{HeadBytes: headBytes, Open: fit, Idle: s.Idle.PerEndpoint, IdleTime: s.Idle.Time}
}

func balanceOf(s settings.Settings) balance.Config {
	return balance.Config{
		EjectFor: s.Ejection.First, EjectAtMost: s.Ejection.Most,
		RetryRatio: float64(s.Retry.Budget) / 100, RetryFloor: float64(s.Retry.Floor),
	}
}

// logTo is where the access log goes by the settings; nil: nowhere.
func logTo(s settings.Settings) io.Writer {
	switch s.AccessLog {
	case settings.AccessLogStderr:
		return os.Stderr
	case settings.AccessLogStdout:
		return os.Stdout
	}
	return nil
}

package settings

import (
	"fmt"
	"net/netip"
	"strings"
	"time"
)

// Key is one thing that can be set.
type Key struct {
	Name string // as in a file; FAIRLEAD_L7_ and capitals for the variable, two hyphens for the flag
	Doc  string // one line

	kind     kind
	min, max int64 // of numbers, and of durations in ns
	at       func(*Settings) any
}

// kind is what values of a key look like.
type kind uint8

const (
	kindText kind = iota
	kindList      // of texts; one text is split at commas
	kindBool
	kindInt
	kindDuration
)

// Keys lists all keys in the order in which people read them.
func Keys() []Key {
	text := func(name, doc string, at func(*Settings) any) Key { return Key{name, doc, kindText, 0, 0, at} }
	list := func(name, doc string, at func(*Settings) any) Key { return Key{name, doc, kindList, 0, 0, at} }
	flag := func(name, doc string, at func(*Settings) any) Key { return Key{name, doc, kindBool, 0, 0, at} }
	number := func(name, doc string, low, high int64, at func(*Settings) any) Key {
		return Key{name, doc, kindInt, low, high, at}
	}
	span := func(name, doc string, low, high time.Duration, at func(*Settings) any) Key {
		return Key{name, doc, kindDuration, int64(low), int64(high), at}
	}
	const ms, day = time.Millisecond, 24 * time.Hour
	return []Key{
		list("listen", "Addresses to take requests at, HOST:PORT; port 0 is any free one", func(s *Settings) any { return &s.Listen }),
		text("admin", "Address of /livez, /readyz and /metrics, HOST:PORT or off", func(s *Settings) any { return &s.Admin }),
		text("zone", "Ending of mesh names: service web answers to web.default.ZONE", func(s *Settings) any { return &s.Zone }),
		text("access_log", "Where a line of JSON per request goes: off, stderr or stdout", func(s *Settings) any { return &s.AccessLog }),
		list("trusted_proxies", "Networks of proxies in front, whose X-Forwarded-* and Forwarded are believed", func(s *Settings) any { return &s.TrustedProxies }),
		flag("h2c", "Take HTTP/2 without TLS, from clients that begin with it", func(s *Settings) any { return &s.H2C }),
		number("max_header_bytes", "Largest head of a request", 4<<10, 1<<20, func(s *Settings) any { return &s.MaxHeaderBytes }),
		number("max_connections", "Connections of clients at one address of listen, at most; fewer if the limit of open files has no room for them", 1, 1_000_000, func(s *Settings) any { return &s.MaxConnections }),
		span("announce_time", "How long a process that ends takes requests all the same: /readyz says 503, answers say Connection: close", 0, day, func(s *Settings) any { return &s.Announce }),
		span("grace", "How long requests and tunnels under way may go on after announce_time", 0, day, func(s *Settings) any { return &s.Grace }),
		span("header_timeout", "Until the head of a request is there", ms, day, func(s *Settings) any { return &s.Timeouts.Header }),
		span("idle_timeout", "How long a client's connection may wait for its next request", ms, day, func(s *Settings) any { return &s.Timeouts.Idle }),
		span("body_timeout", "How long a client may send or take nothing of a body, or a backend take nothing; 0: no bound", 0, day, func(s *Settings) any { return &s.Timeouts.Body }),
		span("connect_timeout", "For a connection to an endpoint", ms, day, func(s *Settings) any { return &s.Timeouts.Connect }),
		span("first_byte_timeout", "For an endpoint's answer to begin; 0: no bound", 0, day, func(s *Settings) any { return &s.Timeouts.FirstByte }),
		span("try_timeout", "For an endpoint's answer to begin, where the request may be tried at another endpoint; 0: as first_byte_timeout", 0, day, func(s *Settings) any { return &s.Timeouts.Try }),
		span("tunnel_timeout", "How long a WebSocket may be silent; 0: no bound", 0, 365*day, func(s *Settings) any { return &s.Timeouts.Tunnel }),
		number("retries", "Further tries of one request, each at another endpoint", 0, MostRetries, func(s *Settings) any { return &s.Retry.Most }),
		number("retry_budget", "Percent of a service's requests that may be tried again", 0, 100, func(s *Settings) any { return &s.Retry.Budget }),
		number("retry_floor", "Further tries a second that a service has in any case", 0, 100_000, func(s *Settings) any { return &s.Retry.Floor }),
		span("eject_first", "How long an endpoint that failed is left out at first; doubles with each failure", ms, day, func(s *Settings) any { return &s.Ejection.First }),
		span("eject_most", "How long an endpoint that failed is left out at most", ms, day, func(s *Settings) any { return &s.Ejection.Most }),
		number("idle_per_endpoint", "Connections to an endpoint that are kept for the next request", 1, 65_536, func(s *Settings) any { return &s.Idle.PerEndpoint }),
		span("idle_endpoint_timeout", "How long a connection to an endpoint is kept for the next request", ms, day, func(s *Settings) any { return &s.Idle.Time }),
	}
}

// Names lists the names of all keys.
func Names() []string {
	var names []string
	for _, k := range Keys() {
		names = append(names, k.Name)
	}
	return names
}

// Find returns the key of a name.
func Find(name string) (Key, bool) {
	for _, k := range Keys() {
		if k.Name == name {
			return k, true
		}
	}
	return Key{}, false
}

// IsBool reports whether a flag of this key needs no value.
func (k Key) IsBool() bool { return k.kind == kindBool }

// Show prints the value that s has, as it would be written in a variable.
func (k Key) Show(s Settings) string {
	switch v := k.at(&s).(type) {
	case *[]string:
		return strings.Join(*v, ",")
	case *[]netip.Prefix:
		var out []string
		for _, p := range *v {
			out = append(out, p.String())
		}
		return strings.Join(out, ",")
	case *string:
		return *v
	case *bool:
		return fmt.Sprint(*v)
	case *int:
		return fmt.Sprint(*v)
	case *time.Duration:
		return v.String()
	}
	return ""
}

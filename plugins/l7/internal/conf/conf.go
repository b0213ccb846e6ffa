package conf

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/plugins/l7/internal/settings"
)

// Keys that only a proxy which runs by itself has, beside those of settings.
const (
	keyFollow   = "follow"
	keySocket   = "provider_socket"
	keyLogLevel = "log_level"
	keyServices = "services"
)

// DefaultAdmin is where /livez, /readyz and /metrics are, unless said otherwise.
const DefaultAdmin = "127.0.0.1:7480"

// Config is what such a proxy is told.
type Config struct {
	File     string // that was read; "": none
	Settings settings.Settings
	LogLevel slog.Level

	// Where backends come from. Exactly one is set.
	Services []*dataplane.Service
	Follow   string // the agent: unix:PATH, or HOST:PORT on this host
	Socket   string // path at which an agent adopts the proxy

	static bool // services were written, be it an empty list
	places map[dataplane.Key]string
}

// Place says where a service was written, such as "l7.yaml:12".
func (c *Config) Place(k dataplane.Key) string { return c.places[k] }

// Input is all that Load looks at.
type Input struct {
	Args     []string // flags, without command
	Environ  []string // NAME=value
	ReadFile func(name string) ([]byte, error)
}

// ErrHelp is returned if the flags ask for help.
var ErrHelp = errors.New("l7: help was asked for")

// ErrUsage is wrapped by errors about the command line.
var ErrUsage = errors.New("l7: wrong arguments, see --help")

// Defaults are the settings of a proxy of which nothing is said.
func Defaults() settings.Settings {
	s := settings.Default()
	s.Admin = DefaultAdmin
	return s
}

// Load reads the configuration, and checks all of it. An error may be several,
// joined; each is one line.
func Load(in Input) (*Config, error) {
	l := &loader{in: in, cfg: &Config{Settings: Defaults(), places: map[dataplane.Key]string{}}, origins: map[string]string{}}
	flags, err := parseFlags(in.Args)
	if err != nil {
		return nil, err
	}
	variables := l.variables()
	l.cfg.File = flags.config
	if l.cfg.File == "" {
		l.cfg.File = variables[variableConfig]
	}
	delete(variables, variableConfig)
	if l.cfg.File != "" {
		l.file(l.cfg.File)
	}
	for _, name := range slices.Sorted(mapsKeys(variables)) {
		l.set(keyOfVariable(name), settings.Text(variables[name]), name)
	}
	for _, f := range flags.values {
		l.set(f.key, settings.Text(f.value), "--"+strings.ReplaceAll(f.key, "_", "-"))
	}
	if len(l.errs) == 0 {
		l.check()
	}
	if len(l.errs) > 0 {
		return nil, errors.Join(l.errs...)
	}
	return l.cfg, nil
}

type loader struct {
	in      Input
	cfg     *Config
	origins map[string]string // of keys
	errs    []error
}

func (l *loader) failf(origin, format string, args ...any) {
	l.errs = append(l.errs, fmt.Errorf("%s: %s", origin, fmt.Sprintf(format, args...)))
}

// set writes one value; origin is where it comes from.
func (l *loader) set(key string, value any, origin string) {
	l.origins[key] = origin
	text, isText := value.(string)
	if t, ok := value.(settings.Text); ok {
		text, isText = string(t), true
	}
	if k, ok := settings.Find(key); ok {
		if err := k.Set(&l.cfg.Settings, value); err != nil {
			l.errs = append(l.errs, fmt.Errorf("%s: %w", origin, err))
		}
		return
	}
	switch {
	case key == keyServices: // of a variable or a flag; the file goes another way
		l.servicesText(text, origin)
	case !isText:
		l.failf(origin, "%s is %v: want text", key, value)
	case key == keyFollow:
		l.cfg.Follow = text
		if strings.HasPrefix(text, "/") {
			l.cfg.Follow = "unix:" + text
		}
	case key == keySocket:
		l.cfg.Socket = strings.TrimPrefix(text, "unix:")
	case key == keyLogLevel:
		if err := l.cfg.LogLevel.UnmarshalText([]byte(text)); err != nil {
			l.failf(origin, "%s is %q: want debug, info, warn or error", key, text)
		}
	}
}

// check looks at what only the whole can tell.
func (l *loader) check() {
	if err := l.cfg.Settings.Check(); err != nil {
		for _, e := range unjoin(err) {
			var p *settings.Problem
			if errors.As(e, &p) && l.origins[p.Key] != "" {
				e = fmt.Errorf("%s: %w", l.origins[p.Key], p)
			}
			l.errs = append(l.errs, e)
		}
	}
	var sources []string
	for _, key := range []string{keyServices, keyFollow, keySocket} {
		if written := key == keyServices && l.cfg.static || key == keyFollow && l.cfg.Follow != "" || key == keySocket && l.cfg.Socket != ""; written {
			sources = append(sources, key)
		}
	}
	switch len(sources) {
	case 0:
		l.errs = append(l.errs, errors.New("l7: there is nothing to serve: write services, or follow: an agent, or provider_socket, into the file of --config or into FAIRLEAD_L7_SERVICES, FAIRLEAD_L7_FOLLOW, FAIRLEAD_L7_PROVIDER_SOCKET"))
	case 1:
	default:
		l.failf(l.origins[sources[1]], "%s and %s exclude each other: backends come from one of them; remove the other", sources[0], sources[1])
	}
	if why := checkFollow(l.cfg.Follow); why != "" {
		l.failf(l.origins[keyFollow], "%s is %q: %s", keyFollow, l.cfg.Follow, why)
	}
	if l.cfg.Socket != "" && !strings.HasPrefix(l.cfg.Socket, "/") {
		l.failf(l.origins[keySocket], "%s is %q: want the absolute path of a unix socket", keySocket, l.cfg.Socket)
	}
	l.checkServices()
}

// checkFollow says what is wrong with the address of an agent. Without TLS it has
// to be on this host.
func checkFollow(address string) string {
	if address == "" {
		return ""
	}
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		if !strings.HasPrefix(path, "/") {
			return "want the absolute path of the agent's socket"
		}
		return ""
	}
	host, port, err := net.SplitHostPort(address)
	if n, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil || n == 0 {
		return "want the agent's socket, such as /run/fairlead/api.sock, or HOST:PORT of its api.listen"
	}
	if ip, err := netip.ParseAddr(host); host != "localhost" && (err != nil || !ip.IsLoopback()) {
		return "the agent has to be on this host: give its socket, or a loopback address"
	}
	return ""
}

// names lists all keys.
func names() []string {
	return append(settings.Names(), keyFollow, keySocket, keyLogLevel, keyServices)
}

// unjoin takes apart what errors.Join put together.
func unjoin(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok { //nolint:errorlint // the join itself is meant, not what it holds
		return joined.Unwrap()
	}
	return []error{err}
}

package sdk

import (
	"log/slog"
	"time"
)

// Option changes how Serve and Run go about it.
type Option func(*settings)

type settings struct {
	newPrivileges string
	ownConfig     func(getenv func(string) string) ([]byte, error)
	stopTime      time.Duration
	afterLarge    func() // called after each large generation; nil: nothing
	largeOver     func() // called in the end; nil: nothing
	level         slog.Level
}

// defaultStopTime leaves a host that stops within 5 s the time to see it.
const defaultStopTime = 4 * time.Second

func newSettings(opts []Option) *settings {
	s := &settings{stopTime: defaultStopTime, level: slog.LevelInfo}
	for _, o := range opts {
		o(s)
	}
	return s
}

// AllowNewPrivileges leaves no_new_privs unset, for a provider that starts
// programs which gain rights by their file (set-user-id, file capabilities). The
// reason is logged.
func AllowNewPrivileges(reason string) Option {
	return func(s *settings) { s.newPrivileges = reason }
}

// OwnConfig lets a provider that runs by itself, without --config, take its
// configuration (JSON) from its environment. It is not called under an agent.
func OwnConfig(read func(getenv func(string) string) ([]byte, error)) Option {
	return func(s *settings) { s.ownConfig = read }
}

// StopTime bounds what SIGTERM takes, 4 s if not given: a third to finish the
// call under way, a third for it to notice that it is cancelled, the rest for
// Shutdown. When the host is gone it is 700 ms at most.
func StopTime(d time.Duration) Option {
	return func(s *settings) { s.stopTime = d }
}

// LogLevel is the least important level that is logged, Info if not given, until
// an agent that started the provider says another one; --debug logs all.
func LogLevel(l slog.Level) Option {
	return func(s *settings) { s.level = l }
}

// Logging is implemented by providers that log. UseLogger is called once, before
// all others. Its logger writes to standard error, and never blocks: what does
// not fit is counted and left out.
type Logging interface {
	UseLogger(log *slog.Logger)
}

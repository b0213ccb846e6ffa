package cli

import (
	"cmp"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
	"time"
)

// Env is what a command sees of the world.
type Env struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer

	// Environ holds NAME=value entries; of two equal names the last counts.
	Environ []string

	// Signals starts the delivery of SIGINT, SIGTERM and SIGHUP and returns
	// the way to end it. Without it signals do what they do by default.
	Signals func() (received <-chan os.Signal, stop func())

	// OutliveReader makes a write to a pipe that nobody reads any more an error,
	// also on standard output and error, where it otherwise ends the process.
	OutliveReader func() (stop func())

	// Executable is the path of this program, which dev and demo start again.
	Executable func() (string, error)

	// Now is the clock; its location is the one that times are shown in.
	Now func() time.Time

	// Terminal says whether Stdout is one: only there are words coloured.
	Terminal bool

	// Version is what `version` prints and agents tell.
	Version string
}

// SystemEnv returns the Env of this process, a program of this version; empty
// means what the Go tool stamped into it.
func SystemEnv(version string) Env {
	info, err := os.Stdout.Stat()
	return Env{
		Stdin:      os.Stdin,
		Stdout:     os.Stdout,
		Stderr:     os.Stderr,
		Environ:    os.Environ(),
		Signals:    systemSignals,
		Executable: os.Executable,
		Now:        time.Now,
		Terminal:   err == nil && info.Mode()&os.ModeCharDevice != 0,
		Version:    cmp.Or(version, buildVersion()),

		OutliveReader: outliveReader,
	}
}

// getenv returns the value of a variable, empty if it is not set.
func (e Env) getenv(name string) string {
	value := ""
	for _, entry := range e.Environ {
		if v, ok := strings.CutPrefix(entry, name+"="); ok {
			value = v
		}
	}
	return value
}

// colour follows no-color.org: any value of NO_COLOR switches it off.
func (e Env) colour() bool {
	return e.Terminal && e.getenv("NO_COLOR") == "" && e.getenv("TERM") != "dumb"
}

func systemSignals() (<-chan os.Signal, func()) {
	// Room for both a first and a second SIGTERM: neither may be lost.
	c := make(chan os.Signal, 4)
	signal.Notify(c, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	return c, func() { signal.Stop(c) }
}

// outliveReader catches SIGPIPE. To ignore it would be inherited by plugins.
func outliveReader() func() {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGPIPE)
	return func() { signal.Stop(c) }
}

// buildVersion is what the Go tool stamped: a release tag or a pseudo-version
// with commit and +dirty.
func buildVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "(devel)"
	}
	return info.Main.Version
}

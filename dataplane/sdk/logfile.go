package sdk

import (
	"io"
	"os"

	"github.com/fairlead/fairlead/dataplane/sdk/handshake"
)

// logFile is a standard error that is a file, as of a provider that serves on
// without its host. While it does, nobody else keeps the file within bounds.
//
// Invariant: after a Write the file has at most handshake.MaxLogBytes, if all
// that is written comes this way and each line is below that.
type logFile struct{ file *os.File }

// boundedStderr returns what to log to: f itself, unless it is a log file that a
// host opened.
func boundedStderr(f *os.File, getenv func(string) string) io.Writer {
	if getenv(handshake.EnvOnHostLoss) != handshake.HostLossServe {
		return f
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return f
	}
	return logFile{f}
}

// Write appends p. A file that would grow too long is emptied first; the host
// opened it for appending, so it goes on at the beginning.
func (l logFile) Write(p []byte) (int, error) {
	if info, err := l.file.Stat(); err == nil && info.Size()+int64(len(p)) > handshake.MaxLogBytes {
		_ = l.file.Truncate(0) // if that fails the line is worth more than the bound
	}
	return l.file.Write(p)
}

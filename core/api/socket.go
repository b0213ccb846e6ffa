package api

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// MaxSocketPath is the longest path of a Unix socket that is accepted, in
// bytes. Linux has room for 107; the rest is left for tools that append to it.
const MaxSocketPath = 100

// Errors of ListenUnix.
var (
	ErrSocketPath  = errors.New("api: bad socket path")
	ErrSocketInUse = errors.New("api: another agent answers on the socket")
)

// ListenUnix opens the Unix socket at path with mode 0600. Missing directories
// are made. A socket that a crashed agent left is replaced; one where somebody
// answers is not, and neither is a file that is no socket.
func ListenUnix(path string) (net.Listener, error) {
	if len(path) > MaxSocketPath {
		return nil, fmt.Errorf("%w: %s has %d bytes, the kernel's limit leaves %d: choose a shorter one with api.socket", ErrSocketPath, path, len(path), MaxSocketPath)
	}
	// Others may reach the directory, for example to see whether an agent
	// runs; the socket itself keeps them out.
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("%w: %w: create the directory for the agent's user, or set api.socket", ErrSocketPath, err)
	}
	if err := removeStale(path); err != nil {
		return nil, err
	}

	// The mode of the unbound descriptor becomes the mode of the file that
	// bind makes, so there is no moment in which others may connect.
	var chmodErr error
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		if err := c.Control(func(fd uintptr) { chmodErr = unix.Fchmod(int(fd), 0o600) }); err != nil {
			return err
		}
		return chmodErr
	}}
	l, err := config.Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w: the agent's user needs write access to the directory, or set api.socket", ErrSocketPath, err)
	}
	file, err := os.Lstat(path)
	if err != nil {
		_ = l.Close()
		return nil, fmt.Errorf("%w: %w", ErrSocketPath, err)
	}
	ul := l.(*net.UnixListener)
	ul.SetUnlinkOnClose(false)
	return &unixListener{UnixListener: ul, path: path, file: file}, nil
}

// unixListener removes its socket when closed, but not that of a successor.
type unixListener struct {
	*net.UnixListener
	path string
	file fs.FileInfo
	once sync.Once
}

// Close implements net.Listener.
func (l *unixListener) Close() error {
	l.once.Do(func() {
		if now, err := os.Lstat(l.path); err == nil && os.SameFile(now, l.file) {
			_ = os.Remove(l.path)
		}
	})
	return l.UnixListener.Close()
}

// removeStale makes room at path if what is there is a socket that nobody
// answers.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("%w: %w", ErrSocketPath, err)
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("%w: %s exists and is no socket: remove it, or set api.socket", ErrSocketPath, path)
	}
	conn, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		_ = conn.Close()
		return fmt.Errorf("%w %s: stop it (fairlead leave --api %s), or give this one another api.socket", ErrSocketInUse, path, path)
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		// A full backlog or a missing right is no proof that nobody is there.
		return fmt.Errorf("%w %s, or may: %w", ErrSocketInUse, path, err)
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("%w: remove a stale socket: %w", ErrSocketPath, err)
	}
	return nil
}

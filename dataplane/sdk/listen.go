package sdk

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/dataplane/sdk/handshake"
)

// socket is a listening unix socket that answers root and its own user only.
type socket struct {
	*net.UnixListener
	path    string
	file    os.FileInfo // of path, to remove no one else's
	dir     string      // to remove with it; "": not ours
	refused func(error)

	closing sync.Once // gRPC closes what it serves, and so do we
	err     error     // of Close
}

// listenUnix listens on a path. Its directory is made if it is missing; a socket
// that nobody answers on is replaced. The new one appears at the path complete,
// by a rename.
func listenUnix(path string) (*socket, error) {
	if len(path) > handshake.MaxSocketPathBytes {
		return nil, fmt.Errorf("the path of socket %s has %d bytes, %d at most: choose a shorter one, such as below /run", path, len(path), handshake.MaxSocketPathBytes)
	}
	if !filepath.IsAbs(path) {
		return nil, fmt.Errorf("the path of socket %s is relative: give an absolute one", path)
	}
	if err := privateDir(filepath.Dir(path)); err != nil {
		return nil, err
	}
	if err := removeStale(path); err != nil {
		return nil, err
	}
	fresh := fmt.Sprintf("%s.%d", path, os.Getpid()%10000)
	if err := os.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: fresh, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("cannot listen on socket %s: %w", path, err)
	}
	l.SetUnlinkOnClose(false)
	s := &socket{UnixListener: l, path: path, refused: func(error) {}}
	if err := s.publish(fresh); err != nil {
		_ = l.Close()
		_ = os.Remove(fresh)
		return nil, fmt.Errorf("cannot listen on socket %s: %w", path, err)
	}
	return s, nil
}

func (s *socket) publish(fresh string) (err error) {
	if err := os.Chmod(fresh, 0o600); err != nil {
		return err
	}
	if s.file, err = os.Lstat(fresh); err != nil {
		return err
	}
	return os.Rename(fresh, s.path)
}

// privateDir makes a directory, or checks that nobody else writes there: who
// does could put another socket into the place of ours.
func privateDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("cannot make directory %s for the socket: %w", dir, err)
	}
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("directory %s of the socket: %w", dir, err)
	}
	owner := info.Sys().(*syscall.Stat_t).Uid
	switch {
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("directory %s of the socket has mode %04o, so others may write there: chmod 0700 it, or choose another one", dir, info.Mode().Perm())
	case owner != 0 && owner != uint32(os.Geteuid()):
		return fmt.Errorf("directory %s of the socket belongs to user %d: choose one that belongs to user %d or to root", dir, owner, os.Geteuid())
	}
	return nil
}

// removeStale makes room at path, unless somebody answers there.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("socket %s: %w", path, err)
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("%s is there and is no socket: remove it, or choose another path", path)
	}
	c, err := net.DialTimeout("unix", path, time.Second)
	switch {
	case err == nil:
		_ = c.Close()
		return fmt.Errorf("somebody answers on socket %s already: stop that process, or choose another path", path)
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, fs.ErrNotExist):
		return nil
	}
	return fmt.Errorf("socket %s is there and does not answer: %w: remove it if nobody uses it", path, err)
}

// Accept returns the next connection of somebody who may connect.
func (s *socket) Accept() (net.Conn, error) {
	for {
		c, err := s.AcceptUnix()
		if err != nil {
			return nil, err
		}
		err = checkPeer(c)
		if err == nil {
			return c, nil
		}
		_ = c.Close()
		s.refused(err)
	}
}

// Addr is the path that was asked for.
func (s *socket) Addr() net.Addr { return &net.UnixAddr{Name: s.path, Net: "unix"} }

// Close stops listening, and removes the path unless it is another's by now.
func (s *socket) Close() error {
	s.closing.Do(func() { s.err = s.close() })
	return s.err
}

func (s *socket) close() error {
	err := s.UnixListener.Close()
	if now, statErr := os.Lstat(s.path); statErr == nil && os.SameFile(now, s.file) {
		err = errors.Join(err, os.Remove(s.path))
	}
	if s.dir != "" {
		err = errors.Join(err, os.Remove(s.dir))
	}
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// checkPeer asks the kernel who connected.
func checkPeer(c *net.UnixConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var peer *syscall.Ucred
	var peerErr error
	if err := raw.Control(func(fd uintptr) {
		peer, peerErr = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	}); err != nil {
		return err
	}
	if peerErr != nil {
		return fmt.Errorf("who connected is not known: %w", peerErr)
	}
	if peer.Uid != 0 && peer.Uid != uint32(os.Geteuid()) {
		return fmt.Errorf("process %d of user %d connected: only root and user %d may", peer.Pid, peer.Uid, os.Geteuid())
	}
	return nil
}

// unixPath reads "unix:PATH" and "unix://PATH".
func unixPath(address string) (string, bool) {
	path, ok := strings.CutPrefix(address, "unix:")
	if !ok || path == "" {
		return "", false
	}
	if rest, slashes := strings.CutPrefix(path, "//"); slashes {
		path = rest
	}
	return path, path != ""
}

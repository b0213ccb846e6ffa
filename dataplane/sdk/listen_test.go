package sdk

import (
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// shortDir is a directory whose path leaves room for a socket's name.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "sdk-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// "socket 0600 in a 0700 directory"
func TestSocketIsPrivate(t *testing.T) {
	path := filepath.Join(shortDir(t), "new", "p.sock")
	s, err := listenUnix(path)
	if err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]os.FileMode{path: 0o600, filepath.Dir(path): 0o700} {
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", file, info.Mode(), err)
		}
	}
	if entries, _ := os.ReadDir(filepath.Dir(path)); len(entries) != 1 {
		t.Errorf("got %v", entries)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if entries, _ := os.ReadDir(filepath.Dir(path)); len(entries) != 0 {
		t.Errorf("left %v", entries)
	}
	if err := s.Close(); err != nil {
		t.Errorf("a second Close: %v", err)
	}
}

func TestSocketRefusals(t *testing.T) {
	dir := shortDir(t)
	answering := filepath.Join(dir, "busy.sock")
	s, err := listenUnix(answering)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	open := filepath.Join(dir, "open")
	if err := os.Mkdir(open, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		answering:                      "somebody answers on socket " + answering,
		file:                           "is no socket",
		filepath.Join(open, "p"):       "chmod 0700",
		filepath.Join(file, "p"):       "cannot make directory",
		"relative.sock":                "give an absolute one",
		"/" + strings.Repeat("x", 100): "has 101 bytes, 100 at most",
		filepath.Join("/proc", "self"): "",
	} {
		if s, err := listenUnix(path); err == nil {
			_ = s.Close()
			t.Errorf("%s was taken", path)
		} else if !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", path, err)
		}
	}
	if c, err := net.Dial("unix", answering); err != nil {
		t.Errorf("the first one is gone: %v", err)
	} else {
		_ = c.Close()
	}
}

// "stale socket removed only if nobody answers"
func TestStaleSocketIsReplaced(t *testing.T) {
	path := filepath.Join(shortDir(t), "p.sock")
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	_ = dead.Close()
	s, err := listenUnix(path)
	if err != nil {
		t.Fatal(err)
	}
	// A successor at the same path is not removed by the one before.
	_ = os.Remove(path)
	next, err := listenUnix(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("another's socket was removed: %v", err)
	}
	_ = next.Close()
}

// "SO_PEERCRED: same uid or root"
func TestOthersMayNotConnect(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to become another user")
	}
	dir := shortDir(t)
	path := filepath.Join(dir, "p.sock")
	s, err := listenUnix(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	for file, mode := range map[string]os.FileMode{dir: 0o711, path: 0o666} {
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
	}
	refused := make(chan error, 1)
	s.refused = func(err error) { refused <- err }
	accepted := make(chan net.Conn, 1)
	go func() {
		if c, err := s.Accept(); err == nil {
			accepted <- c
		}
	}()
	const nobody = 65534
	asUser(t, nobody, func() error {
		c, err := net.Dial("unix", path)
		if err != nil {
			return err
		}
		return c.Close()
	})
	if err := receive(t, "the refusal", refused); !strings.Contains(err.Error(), "of user 65534 connected") {
		t.Fatal(err)
	}
	c, err := net.Dial("unix", path) // root
	if err != nil {
		t.Fatal(err)
	}
	_ = receive(t, "the connection", accepted).Close()
	_ = c.Close()
}

// asUser runs f on a thread of its own with another effective user.
func asUser(t *testing.T, uid int, f func() error) {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, ^uintptr(0), uintptr(uid), ^uintptr(0)); errno != 0 {
			done <- errno
			return
		}
		done <- f()
	}()
	if err := receive(t, "the other user", done); err != nil {
		t.Fatal(err)
	}
}

func TestUnixPath(t *testing.T) {
	for address, want := range map[string]string{
		"unix:/a": "/a", "unix:///a": "/a", "unix:": "", "/a": "", "tcp:1": "", "unix://": "",
	} {
		if got, ok := unixPath(address); got != want || ok != (want != "") {
			t.Errorf("%s: got %q, %v", address, got, ok)
		}
	}
}

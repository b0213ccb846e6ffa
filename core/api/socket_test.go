package api_test

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/fairlead/fairlead/core/api"
	"github.com/fairlead/fairlead/core/api/client"
)

func TestSocketIsPrivate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run", "fairlead", "a.sock")
	l, err := api.ListenUnix(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode() != fs.ModeSocket|0o600 {
		t.Errorf("mode %v, want a socket with 0600", info.Mode())
	}
}

func TestSocketPathIsRefused(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("keep"), 0o600); err != nil {
		t.Fatal(err)
	}
	long := filepath.Join(dir, strings.Repeat("x", 101-len(dir)-1))
	cases := map[string]struct {
		path  string
		words []string
	}{
		"one byte too long":  {long, []string{long, "101 bytes", "100", "api.socket"}},
		"a plain file":       {file, []string{file, "no socket", "api.socket"}},
		"below a plain file": {filepath.Join(file, "a.sock"), []string{file, "api.socket"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			l, err := api.ListenUnix(c.path)
			if err == nil {
				l.Close()
			}
			if !errors.Is(err, api.ErrSocketPath) {
				t.Fatalf("got %v, want ErrSocketPath", err)
			}
			for _, w := range c.words {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%q lacks %q", err, w)
				}
			}
		})
	}
	if text, _ := os.ReadFile(file); string(text) != "keep" {
		t.Error("the plain file was touched")
	}
}

func TestLongestSocketPathWorks(t *testing.T) {
	dir := t.TempDir()
	l, err := api.ListenUnix(filepath.Join(dir, strings.Repeat("x", api.MaxSocketPath-len(dir)-1)))
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
}

func TestStaleSocketIsReplacedAndALiveOneIsNot(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.sock")
	stale(t, path)

	first, err := api.ListenUnix(path)
	if err != nil {
		t.Fatalf("over a stale socket: %v", err)
	}
	_, err = api.ListenUnix(path)
	if !errors.Is(err, api.ErrSocketInUse) || !strings.Contains(err.Error(), path) {
		t.Errorf("over a live socket: %v, want ErrSocketInUse with the path", err)
	}
	if conn, err := net.Dial("unix", path); err != nil {
		t.Errorf("the live one no longer answers: %v", err)
	} else {
		conn.Close()
	}
	first.Close()
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after Close: %v, want the socket gone", err)
	}
}

// A successor took the path over: its socket is not ours to remove.
func TestCloseKeepsASuccessorsSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.sock")
	first, err := api.ListenUnix(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	second, err := api.ListenUnix(path)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	first.Close()
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("the successor's socket is gone: %v", err)
	}
}

func TestPortInUse(t *testing.T) {
	l, err := api.ListenTCP("http.listen", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, err = api.ListenTCP("http.listen", l.Addr().String())
	if !errors.Is(err, syscall.EADDRINUSE) {
		t.Fatalf("got %v, want EADDRINUSE", err)
	}
	for _, w := range []string{"http.listen", l.Addr().String(), "off"} {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q lacks %q", err, w)
		}
	}
}

func TestDialSaysWhatToDo(t *testing.T) {
	dir := t.TempDir()
	dead := filepath.Join(dir, "stale.sock")
	stale(t, dead)
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	for name, target := range map[string]string{
		"no file":     filepath.Join(dir, "nope.sock"),
		"stale":       dead,
		"no socket":   file,
		"closed port": closed.Addr().String(),
		"bad address": "127.0.0.1:port",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := client.Dial(t.Context(), target)
			if !errors.Is(err, client.ErrNoAgent) {
				t.Fatalf("got %v, want ErrNoAgent", err)
			}
			for _, w := range []string{target, "fairlead agent", "--api", "FAIRLEAD_API"} {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%q lacks %q", err, w)
				}
			}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := client.Dial(ctx, dead); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled Dial: %v", err)
	}
}

// stale leaves a socket file that nobody listens on, as a killed agent does.
func stale(t *testing.T, path string) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
}

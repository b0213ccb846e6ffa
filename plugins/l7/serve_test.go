package l7

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/fairlead/fairlead/test/await"
	"github.com/fairlead/fairlead/test/short"
	"github.com/fairlead/fairlead/test/transcript"
)

// TestServeWithinTheTest is a whole life without a process of its own: serve,
// reload, follow nobody, end.
func TestServeWithinTheTest(t *testing.T) {
	a := backend(t, "a")
	file := filepath.Join(t.TempDir(), "l7.yaml")
	write(t, file, anyPort+"announce_time: 0s\n"+services("web", address(a)))
	signals, out := make(chan os.Signal, 4), &transcript.Buffer{}
	code := make(chan int, 1)
	go func() {
		code <- Serve(context.Background(), Process{Args: []string{"--config", file}, Version: "test", Stdout: out, Stderr: out, Signals: signals})
	}()
	said := func(pattern string) string {
		t.Helper()
		var m []string
		await.For(t, pattern+" in the log", func() bool {
			m = regexp.MustCompile(pattern).FindStringSubmatch(out.String())
			return m != nil
		})
		return m[len(m)-1]
	}
	listen := said(`msg=serving .*listen=([0-9.]+:\d+)`)
	answers(t, listen, "a")
	write(t, file, anyPort+"follow: 127.0.0.1:1\n")
	signals <- syscall.SIGHUP
	said(`that needs a restart`)
	write(t, file, anyPort+"announce_time: 0s\n"+services("other", address(a)))
	signals <- syscall.SIGHUP
	said(`(the configuration was reloaded)`)
	if status, _, err := ask(clientOf(t, listen), "http://web/"); err != nil || status != 404 {
		t.Errorf("after the reload web answers %d, %v", status, err)
	}
	signals <- syscall.SIGTERM
	if got := <-code; got != exitOK {
		t.Errorf("exit code %d\n%s", got, out)
	}
}

// A proxy whose link to an agent cannot be made ends, and says so.
func TestServeWithoutALink(t *testing.T) {
	out := &transcript.Buffer{}
	args := []string{"--provider-socket", "/proc/none/l7.sock", "--listen", "127.0.0.1:0", "--admin", "off", "--announce-time", "0s"}
	if code := Serve(context.Background(), Process{Args: args, Version: "test", Stdout: out, Stderr: out}); code != exitFailed || !strings.Contains(out.String(), "/proc/none") {
		t.Errorf("exit code %d\n%s", code, out)
	}
}

func TestServeUntilTheContextEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	out := &transcript.Buffer{}
	code := make(chan int, 1)
	socket := filepath.Join(short.Dir(t), "l7.sock")
	go func() {
		code <- Serve(ctx, Process{Args: []string{"--provider-socket", socket, "--listen", "127.0.0.1:0", "--admin", "off", "--announce-time", "0s"}, Version: "test", Stdout: out, Stderr: out})
	}()
	await.For(t, "its socket is there", func() bool {
		_, err := os.Stat(socket)
		return err == nil
	})
	cancel()
	if got := <-code; got != exitOK {
		t.Errorf("exit code %d\n%s", got, out)
	}
	if _, err := os.Stat(socket); err == nil {
		t.Error("the socket is left")
	}
}

func TestValidate(t *testing.T) {
	for args, want := range map[string]string{
		"--services=[{name: a}]": "1 services", "--follow=unix:/run/x": "follows unix:/run/x", "--provider-socket=/run/x": "waits for an agent at /run/x",
	} {
		out := &transcript.Buffer{}
		if code := Validate(Process{Args: []string{args}, Stdout: out, Stderr: out}); code != exitOK || !strings.Contains(out.String(), want) {
			t.Errorf("%s: exit code %d, %q", args, code, out)
		}
	}
	for args, code := range map[string]int{"--help": exitOK, "--x": exitUsage, "--listen=x": exitFailed} {
		out := &transcript.Buffer{}
		if got := Validate(Process{Args: []string{args}, Stdout: out, Stderr: out}); got != code || out.String() == "" {
			t.Errorf("%s: exit code %d, want %d: %s", args, got, code, fmt.Sprint(out))
		}
	}
}
